package reports_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// judged has a history judged, without the figures.
func judged(r history.Run, h *history.History) reports.Input {
	in := reports.Input{Run: r, History: h, Report: checker.Check(context.Background(), h)}
	for i := range in.Report.Results {
		r := &in.Report.Results[i]
		r.Took, r.Memory = 0, 0
	}
	in.Report.Took = 0
	return in
}

// corpus is a history that the checkers must reject, with their own verdicts.
func corpus(name string) func() reports.Input {
	return func() reports.Input {
		f, err := os.Open(filepath.Join("..", "checker", "testdata", "invalid", name+".jsonl"))
		if err != nil {
			panic(err)
		}
		defer f.Close()
		h, err := history.ReadAll(f)
		if err != nil {
			panic(err)
		}
		r := run()
		r.Command = "lockchaos run --topology sentinel --seed 42"
		return judged(r, h)
	}
}

// kinds are the histories for the kinds of violation that no fixture made by
// hand has.
var kinds = map[string]string{
	"over-capacity":     "over-capacity--three-of-two",
	"reentrancy":        "reentrancy--another-token",
	"fence-regress":     "fence-regress--after-expiry",
	"fence-duplicate":   "fence-duplicate--after-a-failover",
	"stale-access":      "stale-access--accepted",
	"stuck":             "stuck--after-the-fault",
	"overtaken":         "overtaken--mutex",
	"foreign-extension": "double-grant+foreign-release--extend",
}

// unexplained is a history without an order that explains it, of which nothing
// else is known.
func unexplained() reports.Input {
	in := forgotten()
	h := in.History
	in.Report = report(broken("linearizability", "porcupine", "no order explains the answers", checker.Violation{
		Kind: checker.NotLinearizable, Lock: "orders", From: ms(401), Until: ms(401),
		Events:      []int64{find(h, history.Acquire, history.OK, "a#1"), find(h, history.Release, history.Fail, "a#1")},
		Explanation: "a#1 was granted orders and released by nobody, and its release was refused.",
	}))
	return in
}

// cutShort is a script of which a step could not be done, though a violation
// was there by then.
func cutShort() reports.Input {
	in := failover()
	in.Report.Results = slices.DeleteFunc(in.Report.Results, func(r checker.Result) bool { return r.Verdict == checker.Invalid })
	in.Report.Verdict = checker.Unknown
	in.Run.AbortReason = "step 9 (heal cut): the link redis-2>redis-1 still refuses after 10s"
	in.Report.Results = append(in.Report.Results, checker.Result{
		Name: "run", Engine: "the record of the run", Verdict: checker.Unknown,
		Summary: "the scenario could not be played to its end: " + in.Run.AbortReason,
	})
	return in
}

// notPermitted is a run in which the server refused nearly everything, for want
// of a permission.
func notPermitted() reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
	s.release(1, "orders", "a#1", "redis-1", 20, 21)
	for i := range 40 {
		at := 30 + 10*float64(i)
		s.attempt(2+i, history.Acquire, "orders", "b#1", at, at+1, history.Info, "NOPERM User lockchaos has no permissions to run the 'evalsha' command")
	}
	r := run()
	r.Command = "lockchaos run --topology sentinel --seed 42"
	return judged(r, s.history())
}

// fenced is the failover once more, with a resource that refuses what is out of
// date.
func fenced() reports.Input {
	s := &script{}
	s.declare("orders")
	grant := func(p int, owner, node string, from, to float64, token int64) {
		s.acquire(p, "orders", owner, node, from, to, 30000)
		s.events[len(s.events)-1].Token = token
	}
	write := func(p int, owner string, token int64, value string, from, to float64, refused bool) {
		s.access(p, "orders", owner, "ledger", value, from, to)
		e := &s.events[len(s.events)-1]
		e.Token = token
		if refused {
			e.Type, e.Value, e.Error = history.Fail, "", "stale token"
		}
	}
	s.fault(history.Inject, "cut", "replication", 398, 402, history.OK, "2 links refuse", "")
	grant(1, "a#1", "redis-1", 411, 412.3, 33)
	s.fault(history.Inject, "crash-failover", "redis-1", 413, 1715, history.OK, "redis-2 is the master", "")
	s.observe(1713, "redis-2", history.ObserveRole, "master")
	grant(2, "b#1", "redis-2", 1180, 1716, 34)
	write(2, "b#1", 34, "41>42", 1990, 2010, false)
	write(1, "a#1", 33, "", 1950, 2051, true)
	s.attempt(1, history.Release, "orders", "a#1", 2060, 2061, history.Fail, "lock not held")
	r := run()
	r.Command = "lockchaos run --topology sentinel --lock mutex-fenced --seed 42"
	r.Lock = "mutex-fenced"
	return judged(r, s.history())
}

// half is a random run with one acknowledgement of two: what would have
// prevented it is not what it had.
func half() reports.Input {
	in := failover()
	in.Run.Scenario, in.Run.Expect, in.Run.Title, in.Run.Source, in.Run.Cures = "", "", "", "", nil
	in.Run.Command = "lockchaos run --topology sentinel --replica-acks 1 --seed 42"
	return in
}

// Every kind of violation that there is has golden files, and so has what is
// none.
func TestGoldenKinds(t *testing.T) {
	told := map[string][]string{}
	for name, fixture := range fixtures() {
		for _, r := range fixture().Report.Results {
			for _, v := range r.Violations {
				told[v.Kind] = append(told[v.Kind], name)
			}
		}
	}
	for _, kind := range checker.Kinds() {
		require.NotEmpty(t, told[kind.Name], "no fixture has a violation of the kind %s", kind.Name)
	}
	// The kind that is told is the one that the fixture is named after.
	for name := range kinds {
		r := reports.Summarize(fixtures()[name]())
		require.Equal(t, checker.Invalid, r.Verdict, name)
		require.True(t, slices.ContainsFunc(r.Story.Events, func(m reports.StoryEvent) bool { return m.Kind == reports.EventViolation }), name)
	}
}
