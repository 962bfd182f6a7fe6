package reports_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// ms is a time in milliseconds.
func ms(n float64) time.Duration { return time.Duration(n * 1e6) }

// A script writes a history by hand. Events may come in any order; indices
// follow time.
type script struct{ events []history.Event }

func (s *script) at(t float64, e history.Event) {
	e.Time = ms(t)
	s.events = append(s.events, e)
}

func (s *script) declare(lock string) {
	s.declareAs(lock, history.Event{Kind: "mutex"})
}

// acquire asks at from and is answered at to; a lease of 0 leaves it out.
func (s *script) acquire(p int, lock, owner, node string, from, to, lease float64) {
	e := history.Event{Process: p, Type: history.Invoke, Op: history.Acquire, Lock: lock, Owner: owner, Lease: ms(lease)}
	s.at(from, e)
	e.Type, e.Node, e.Lease = history.OK, node, 0
	if lease > 0 {
		e.Expires = ms(from + lease)
	}
	s.at(to, e)
}

func (s *script) attempt(p int, op history.Op, lock, owner string, from, to float64, end history.Type, why string) {
	e := history.Event{Process: p, Type: history.Invoke, Op: op, Lock: lock, Owner: owner}
	s.at(from, e)
	e.Type, e.Error = end, why
	s.at(to, e)
}

func (s *script) release(p int, lock, owner, node string, from, to float64) {
	s.attempt(p, history.Release, lock, owner, from, to, history.OK, "")
	s.events[len(s.events)-1].Node = node
}

func (s *script) access(p int, lock, owner, resource, value string, from, to float64) {
	e := history.Event{Process: p, Type: history.Invoke, Op: history.Access, Lock: lock, Owner: owner, Resource: resource}
	s.at(from, e)
	e.Type, e.Value = history.OK, value
	s.at(to, e)
}

func (s *script) fault(op history.Op, fault, target string, from, to float64, end history.Type, effect, why string) {
	e := history.Event{Process: history.NoProcess, Type: history.Invoke, Op: op, Fault: fault, Target: target}
	s.at(from, e)
	e.Type, e.Value, e.Error = end, effect, why
	s.at(to, e)
}

func (s *script) observe(t float64, node, what, value string) {
	s.at(t, history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Observe, Node: node, What: what, Value: value})
}

// history sorts and numbers what was written.
func (s *script) history() *history.History {
	slices.SortStableFunc(s.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range s.events {
		s.events[i].Index = int64(i)
	}
	return &history.History{Events: s.events}
}

// find is the index of the event of that kind by that owner or process.
func find(h *history.History, op history.Op, end history.Type, owner string) int64 {
	for _, e := range h.Events {
		if e.Op == op && e.Type == end && e.Owner == owner {
			return e.Index
		}
	}
	panic(fmt.Sprintf("no %s %s of %s", op, end, owner))
}

func sentinel() history.Topology {
	t := history.Topology{Name: "sentinel", Nodes: []history.Node{
		{Name: "redis-1", Kind: "redis", Role: "master", Address: "127.0.0.1:21001"},
		{Name: "redis-2", Kind: "redis", Role: "replica", Address: "127.0.0.1:21002"},
		{Name: "redis-3", Kind: "redis", Role: "replica", Address: "127.0.0.1:21003"},
		{Name: "sentinel-1", Kind: "sentinel"},
		{Name: "sentinel-2", Kind: "sentinel"},
		{Name: "sentinel-3", Kind: "sentinel"},
		{Name: "zone-a", Kind: "zone"},
		{Name: "zone-b", Kind: "zone"},
	}}
	for _, l := range [][3]string{
		{"zone-a", "redis-1", "client"},
		{"zone-b", "redis-1", "client"},
		{"zone-a", "redis-2", "client"},
		{"zone-b", "redis-2", "client"},
		{"redis-2", "redis-1", "replication"},
		{"redis-3", "redis-1", "replication"},
	} {
		t.Links = append(t.Links, history.Link{Name: l[0] + ">" + l[1], Kind: l[2], From: l[0], To: l[1]})
	}
	return t
}

func run() history.Run {
	return history.Run{
		Version: history.RunVersion, Program: "v0.1.0", Seed: 42, Topology: sentinel(),
		Servers: map[string]string{"redis": "7.0.15", "sentinel": "7.0.15"},
		Lock:    "mutex", Started: time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC),
	}
}

func held(name, engine, summary string) checker.Result {
	return checker.Result{Name: name, Verdict: checker.Valid, Engine: engine, Summary: summary, Took: 42 * time.Microsecond}
}

func broken(name, engine, summary string, v ...checker.Violation) checker.Result {
	return checker.Result{
		Name: name, Verdict: checker.Invalid, Engine: engine, Summary: summary,
		Violations: v, Total: len(v), Took: 310 * time.Microsecond,
	}
}

func report(results ...checker.Result) checker.Report {
	r := checker.Report{Results: results}
	var all []checker.Verdict
	for _, one := range results {
		all = append(all, one.Verdict)
	}
	r.Verdict = checker.Worst(all...)
	return r
}

// failover is the failure that most people know: a lock on a master whose
// replicas never hear of the grant.
func failover() reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 40, 41.2, 30000)
	s.access(1, "orders", "a#1", "ledger", "39>40", 60, 61)
	s.acquire(2, "orders", "b#1", "redis-1", 50, 121.5, 30000)
	s.release(1, "orders", "a#1", "redis-1", 120, 120.8)
	s.access(2, "orders", "b#1", "ledger", "40>41", 160, 161)
	s.release(2, "orders", "b#1", "redis-1", 260, 260.9)
	s.fault(history.Inject, "cut", "replication", 398, 402, history.OK, "2 links refuse", "")
	s.acquire(1, "orders", "a#2", "redis-1", 411, 412.3, 30000)
	s.fault(history.Inject, "kill", "redis-1", 413, 415, history.OK, "redis-1 exited", "")
	s.attempt(2, history.Acquire, "orders", "b#2", 620, 1121, history.Info, "dial redis-1: connection refused")
	s.observe(1713, "redis-2", history.ObserveRole, "master")
	s.acquire(3, "orders", "b#3", "redis-2", 1180, 1716, 30000)
	s.observe(1718, "redis-2", history.ObserveKey, "orders b#3")
	s.access(1, "orders", "a#2", "ledger", "41>42", 1950, 2051)
	s.access(3, "orders", "b#3", "ledger", "41>42", 1990, 2110)
	s.fault(history.Heal, "cut", "replication", 2700, 2704, history.OK, "", "")
	s.observe(2956, "redis-2", history.ObserveKey, "orders b#3")
	h := s.history()

	r := run()
	r.Command = "lockchaos reproduce failover-double-grant"
	r.Scenario, r.Expect = "failover-double-grant", "invalid"
	r.Title = "A lock on a master with replicas is granted twice when the master fails before it has replicated the grant."
	r.Source = "the Redis documentation, “Why failover-based implementations are not enough”"
	r.Cures = []string{"a lock on independent masters (Redlock) or one held by consensus", "a fencing token that the resource itself checks"}
	a, b := find(h, history.Acquire, history.OK, "a#2"), find(h, history.Acquire, history.OK, "b#3")
	x, y := find(h, history.Access, history.OK, "a#2"), find(h, history.Access, history.OK, "b#3")
	return reports.Input{Run: r, History: h, Report: report(
		held("assumptions", "counts", "4 grants; 2 requests met a hold of another client; 2 of 2 faults took effect"),
		broken("mutual-exclusion", "interval sweep", "2 clients hold orders at the same time", checker.Violation{
			Kind: checker.DoubleGrant, Lock: "orders", Events: []int64{a, b}, From: ms(1716), Until: ms(30411),
			Explanation: "a#2 is entitled to hold orders from 0.412 s to 30.411 s, and b#3 was granted it at 1.716 s.",
		}),
		held("use-within-lease", "interval sweep", "4 accesses, each within the belief of its owner"),
		broken("protected-resource", "register replay", "an update of ledger was lost", checker.Violation{
			Kind: checker.LostUpdate, Lock: "orders", Resource: "ledger", Events: []int64{x, y}, From: ms(2051), Until: ms(2110),
			Explanation: "a#2 and b#3 both read 41 from ledger and wrote 42.",
		}),
		held("ownership", "interval sweep", "2 releases were confirmed, each for the holder"),
	)}
}

// generated is a record of many clients at many locks with so many grants, a tenth of the requests refused, and, if it
// is to be broken, another grant of the last lock in its middle: then it has the evidence of the double grant.
func generated(locks, clients, grants int, slow float64, breaks bool) (*script, *checker.Violation) {
	rng := rand.New(rand.NewPCG(3, 4))
	free, idle, value := make([]float64, locks), make([]float64, clients), make([]int, locks)
	s, v := &script{}, &checker.Violation{Kind: checker.DoubleGrant, Explanation: "2 clients held it at the same time"}
	for n := range grants {
		c, l := rng.IntN(clients), rng.IntN(locks)
		lock, owner := fmt.Sprintf("lock-%d", l), fmt.Sprintf("zone-%c.%d#%d", 'a'+rune(c%2), c, n)
		begin := idle[c] + slow*4*rng.Float64()
		if rng.IntN(10) == 0 {
			s.attempt(c, history.Acquire, lock, owner, begin, begin+slow*0.3, history.Fail, "")
			begin += slow * 0.4
		}
		grant := max(begin, free[l]) + slow*(0.2+0.8*rng.Float64())
		end := grant + slow*(1+3*rng.Float64())
		s.acquire(c, lock, owner, "", begin, grant, 10_000)
		s.events[len(s.events)-1].Token = int64(n + 1)
		s.access(c, lock, owner, "stock-"+lock, fmt.Sprintf("%d>%d", value[l], value[l]+1), grant+slow*0.1, grant+slow*0.4)
		value[l]++
		s.release(c, lock, owner, "", end, end+slow*0.3)
		if breaks && l == locks-1 && n > grants/2 && v.Lock == "" {
			s.acquire(clients, lock, "zone-a.intruder#1", "", grant, grant+slow*0.02, 1000)
			v.Lock, v.Resource, v.From = lock, owner, ms(grant+slow*0.02) // the owner until its event is known
		}
		free[l], idle[c] = end+slow*0.31, end+slow*0.31
	}
	return s, v
}

// crowded is a run with a double grant of the last of its locks.
func crowded(locks, clients, grants int) reports.Input {
	s, v := generated(locks, clients, grants, 1, true)
	h := s.history()
	v.Events, v.Until = []int64{find(h, history.Acquire, history.OK, v.Resource), find(h, history.Acquire, history.OK, "zone-a.intruder#1")}, v.From+ms(1)
	v.Resource = ""
	r := run()
	r.Command = "lockchaos run --topology sentinel"
	return reports.Input{Run: r, History: h, Report: report(
		held("assumptions", "counts", "every assumption of the run holds"),
		broken("mutual-exclusion", "interval sweep", "2 clients hold a lock at the same time", *v),
	)}
}

// busy is a random run without a violation: clients in two zones, two locks, and three faults.
func busy(clients, grants int, slow float64) reports.Input {
	s, _ := generated(2, clients, grants, slow, false)
	end := float64(s.history().End()) / 1e6
	for i, f := range [][3]string{{"latency", "zone-a>redis-1", "1 link delayed"}, {"pause", "redis-3", "redis-3 stopped"}, {"cut", "redis-2>redis-1", "1 link refuses"}} {
		from := end * (0.2 + 0.2*float64(i))
		s.fault(history.Inject, f[0], f[1], from, from+2, history.OK, f[2], "")
		s.fault(history.Heal, f[0], f[1], from+end*0.3, from+end*0.3+2, history.OK, "", "")
	}
	r := run()
	r.Command = "lockchaos run --topology sentinel --lock mutex --faults network --duration 3s --seed 42"
	r.Workload, r.Faults = "counter", "network"
	r.Plan = []history.PlannedStep{{At: ms(end * 0.2), For: ms(end * 0.3), Fault: "latency", Target: "zone-a>redis-1"}}
	return reports.Input{Run: r, History: s.history(), Report: report(
		held("assumptions", "counts", "every assumption of the run holds"),
		held("mutual-exclusion", "interval sweep", "no two clients held a lock at the same time"),
		held("protected-resource", "register replay", "no update was lost"),
		held("linearizability", "porcupine", "an order of the operations explains every result"),
	)}
}

func valid() reports.Input { return busy(4, 80, 6) }

// undecided is a run whose fault never took effect.
func undecided() reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 40, 41.2, 2000)
	s.fault(history.Inject, "cut", "replication", 100, 1100, history.Fail, "", "redis-2 still replicates after 1 s")
	s.acquire(2, "orders", "b#1", "redis-1", 50, 1206, 2000)
	s.release(1, "orders", "a#1", "redis-1", 1200, 1201)
	s.attempt(2, history.Release, "orders", "b#1", 1500, 2000, history.Info, "i/o timeout")
	r := run()
	r.Command = "lockchaos reproduce failover-double-grant"
	r.Scenario, r.Expect = "failover-double-grant", "invalid"
	r.Title = failover().Run.Title
	return reports.Input{Run: r, History: s.history(), Report: report(
		checker.Result{
			Name: "assumptions", Verdict: checker.Unknown, Engine: "counts", Took: 11 * time.Microsecond,
			Summary: "the fault cut replication never took effect",
		},
		held("mutual-exclusion", "interval sweep", "no two clients held a lock at the same time"),
		held("ownership", "interval sweep", "1 release was confirmed, for the holder"),
	)}
}

// fixtures are the inputs that golden files exist for: some made by hand, and a history of each kind that the checkers
// must reject, with their own verdicts.
func fixtures() map[string]func() reports.Input {
	all := map[string]func() reports.Input{
		"failover": failover, "valid": valid, "unknown": undecided, "cut-short": cutShort,
		"not-permitted": notPermitted, "fenced": fenced, "half": half, "empty": func() reports.Input { return reports.Input{} },
	}
	for kind, name := range kinds {
		all[kind] = corpus(kind + "--" + name)
	}
	return all
}

// kinds are the histories for the kinds of violation that no fixture made by hand has.
var kinds = map[string]string{
	"over-capacity": "three-of-two", "reentrancy": "another-token", "fence-regress": "after-expiry", "fence-duplicate": "after-a-failover",
	"stale-access": "accepted", "stuck": "after-the-fault", "overtaken": "mutex", "double-grant+foreign-release": "extend",
	"use-after-lease": "overslept", "lost-update": "older-version", "foreign-release": "confirmed", "premature-loss": "watchdog",
}

// writeRun writes what a run leaves behind, without its reports.
func writeRun(tb testing.TB, dir string, in reports.Input) {
	tb.Helper()
	require.NoError(tb, os.MkdirAll(dir, 0o755))
	out, err := json.MarshalIndent(in.Run, "", "  ")
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(filepath.Join(dir, reports.RunFile), append(out, '\n'), 0o644))
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, e := range in.History.Events {
		require.NoError(tb, enc.Encode(e))
	}
	require.NoError(tb, os.WriteFile(filepath.Join(dir, reports.HistoryFile), b.Bytes(), 0o644))
}

// twoFaults is a failover that loses two grants and, later, a split brain with double grants of which some lose
// an update.
func twoFaults() reports.Input {
	s := &script{}
	for i := range 3 {
		s.declare(fmt.Sprintf("lock-%d", i+1))
	}
	for i := range 2 {
		lock, owner := fmt.Sprintf("lock-%d", i+1), fmt.Sprintf("zone-b.%d#1", i+2)
		s.acquire(200+i, lock, owner, "redis-2", 480, 481, 2000)
		s.attempt(200+i, history.Release, lock, owner, 620, 621, history.Fail, "lock: not held")
	}
	s.fault(history.Inject, "failover", "", 500, 600, history.OK, "redis-3 is the master", "")
	s.observe(560, "redis-3", history.ObserveRole, "master")
	const sides, at = "{redis-1 sentinel-1 zone-a}", 2500.0
	s.fault(history.Inject, "split-brain", sides, at, at+60, history.OK, "redis-2 is the master of the majority", "")
	s.observe(at+50, "redis-2", history.ObserveRole, "master")
	for i := range 6 {
		from, lock := at+70+15*float64(i), fmt.Sprintf("lock-%d", i%3+1)
		a, b := fmt.Sprintf("zone-a.1#%d", i), fmt.Sprintf("zone-b.1#%d", i)
		s.acquire(101, lock, a, "redis-1", from, from+1, 300)
		s.acquire(102, lock, b, "redis-2", from+2, from+3, 300)
		if i > 1 {
			s.access(101, lock, a, lock+"-stock", fmt.Sprintf("%d>%d", i, i+1), from+4, from+5)
			s.access(102, lock, b, lock+"-stock", fmt.Sprintf("%d>%d", i, i+1), from+6, from+7)
		}
		s.release(101, lock, a, "redis-1", from+9, from+10)
		s.release(102, lock, b, "redis-2", from+11, from+12)
	}
	s.observe(at+800, "redis-1", history.ObserveRole, "replica")
	s.fault(history.Heal, "split-brain", sides, at+790, at+810, history.OK, "", "")
	s.acquire(400, "lock-1", "zone-b.7#1", "redis-2", at+1500, at+1501, 300) // the run goes on
	s.release(400, "lock-1", "zone-b.7#1", "redis-2", at+1520, at+1521)
	r := run()
	r.Command = "lockchaos run --topology sentinel --seed 42"
	return judged(r, s.history())
}

// declareAs declares a lock of a kind.
func (s *script) declareAs(lock string, is history.Event) {
	is.Process, is.Type, is.Op, is.Lock = history.NoProcess, history.OK, history.Declare, lock
	s.at(0, is)
}

// in sets what the last operation was asked and granted with.
func (s *script) in(set func(e *history.Event)) {
	for i := len(s.events) - 2; i < len(s.events); i++ {
		set(&s.events[i])
	}
}

// mode is how the last operation asked for the lock.
func (s *script) mode(m history.Mode) { s.in(func(e *history.Event) { e.Mode = m }) }

// paragraph is the whole story.
func paragraph(r reports.Results) string { return strings.Join(r.Story.Lines(), " ") }

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
}
