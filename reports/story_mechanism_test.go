package reports_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// ghost is a release that replicas are cut off from, and the promotion of one of them. The
// links are cut at an instant in milliseconds.
func ghost(cut float64) reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 12, 30000)
	for _, server := range []string{"redis-1", "redis-2"} {
		s.observe(14, server, history.ObserveKey, "orders a#1")
	}
	s.fault(history.Inject, "cut", "redis-2>redis-1 redis-3>redis-1", cut, cut+1, history.OK, "2 links refusing", "")
	s.release(1, "orders", "a#1", "redis-1", 20, 21)
	s.observe(25, "redis-1", history.ObserveRole, "replica")
	s.observe(500, "redis-2", history.ObserveRole, "master")
	s.fault(history.Heal, "cut", "redis-2>redis-1 redis-3>redis-1", 900, 901, history.OK, "", "")
	s.attempt(2, history.Acquire, "orders", "b#1", 1000, 19000, history.Fail, "not acquired")
	for _, server := range []string{"redis-1", "redis-2"} {
		s.observe(19010, server, history.ObserveKey, "orders a#1")
	}
	s.observe(20000, "redis-1", history.ObserveEpoch, "1")
	return judged(run(), s.history())
}

// A release that could not reach the next master is why that still has the key; of one that
// could, that is not said.
func TestStuckSaysWhichReleaseWasLost(t *testing.T) {
	const lost = "The release of client a at 0.021 s could not reach redis-2, which was promoted to master at 0.500 s and had the key."
	r := reports.Summarize(ghost(16))
	require.Equal(t, 1, r.Causes[0].Violations[checker.Stuck], r.Story.String())
	require.Contains(t, r.Story.String(), lost)
	require.NotContains(t, reports.Summarize(ghost(30)).Story.String(), "could not reach")
}

// A key that a server lost with its role, and has again as a copy, was not there in between.
func TestAKeyThatCameBackWasGone(t *testing.T) {
	page := withoutCode(htmlOf(t, ghost(16)))
	require.Contains(t, page, "redis-1 was seen to have the key of a at 19.010 s")
	require.NotRegexp(t, `redis-1 had the key of a, granted at 0\.012 s, until 19`, page)
}

// clockVote are two majorities of Redlock whose common server has a clock so many
// milliseconds ahead.
func clockVote(by string) reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "", 10, 14, 3000)
	s.looked(15, "orders", "a#1", "a#1", "a#1", "", "")
	s.shifted(history.Inject, "clock-forward", "redis-3", "by", by, 20)
	s.acquire(2, "orders", "b#1", "", 30, 34, 3000)
	s.looked(35, "orders", "a#1", "a#1", "b#1", "b#1", "b#1")
	s.observe(90, "redis-1", history.ObserveEpoch, "1")
	r := run()
	r.Lock, r.Topology = "redlock", independent()
	return judged(r, s.history())
}

// A vote that a clock took back is said to be that, where the clock went far enough.
func TestAVoteThatAClockTookBack(t *testing.T) {
	story := func(by string) string { return reports.Summarize(clockVote(by)).Story.String() }
	const because = ", since by its clock the lease of client a was over"
	require.Contains(t, story("31000"), "redis-3 voted for both"+because+": without that, client b had 2 of 5 votes")
	require.Contains(t, story("100"), "redis-3 voted for both: without that")
}

// faultless is a double grant of Redlock, which a clock explains if there is such a fault.
func faultless(command string, fault bool) reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "", 10, 14, 3000)
	if fault {
		s.shifted(history.Inject, "clock-forward", "redis-3", "by", "60000", 20)
	}
	s.acquire(2, "orders", "b#1", "", 30, 34, 3000)
	s.observe(90, "redis-1", history.ObserveEpoch, "1")
	r := run()
	r.Command, r.Scenario, r.Lock, r.Topology = command, "", "redlock", independent()
	return judged(r, s.history())
}

// Of a double grant without any fault the reader is told what tells a defect of the lock from
// a limit of the servers, and that it is not known which of them granted.
func TestWhatToDoWithoutAFault(t *testing.T) {
	in := faultless
	const command = "lockchaos run --topology independent --seed 3"
	const advice = command + " --control repeats the plan with a correct lock"
	story := reports.Summarize(in(command, false)).Story.String()
	require.Contains(t, story, advice)
	require.Contains(t, story, "Which of the 5 servers granted it is not recorded.")
	require.NotContains(t, reports.Summarize(in("go test ./...", false)).Story.String(), "--control")
	require.NotContains(t, reports.Summarize(in(command, true)).Story.String(), "--control", "the clock explains it")
	with := in(command, false)
	with.Run.Control = &history.Control{Lock: "redlock", Verdict: "valid"}
	require.NotContains(t, reports.Summarize(with).Story.String(), "--control")
}

// A single server that is cut off has no other that grants instead: that explains no order.
func TestOneServerAloneIsNotReplaced(t *testing.T) {
	for name, explains := range map[string]bool{"single": false, "sentinel": true} {
		s := &script{}
		s.declare("orders")
		s.fault(history.Inject, "partition", "{redis-1}", 5, 6, history.OK, "cut", "")
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 50)
		s.acquire(2, "orders", "b#1", "redis-1", 70, 71, 50)
		in := judged(run(), s.history())
		if name == "single" {
			in.Run.Topology.Nodes = []history.Node{{Name: "zone-a", Kind: "zone"}, {Name: "redis-1", Kind: "redis", Role: "master"}}
		}
		in.Report = report(broken("fairness", "", "", checker.Violation{Kind: checker.Overtaken, Lock: "orders", Events: []int64{3, 6}, From: ms(71), Until: ms(71)}))
		require.Equal(t, explains, reports.Summarize(in).Causes[0].Fault == "partition", name)
	}
}

// A fault of a message says of which, and once.
func TestAFaultOfAMessageIsSaidOnce(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
	s.fault(history.Inject, "hold-reply", "zone>redis", 20, 21, history.OK, "the reply to the 7th EVAL on zone-b>redis-1 was held back", "")
	s.acquire(2, "orders", "b#1", "redis-1", 40, 41, 300)
	require.Contains(t, reports.Summarize(judged(run(), s.history())).Story.String(), "At 0.021 s the reply to the 7th EVAL on zone-b>redis-1 was held back (hold-reply). ")
}

// What an overlap damaged is what its two clients did, each under its hold: an update that
// another client lost before, beside or after it is not.
func TestDamageIsOfTheOverlapThatIsTold(t *testing.T) {
	// The holds of a and b overlap from 1.0 to 1.2 s.
	story := func(with func(s *script)) string {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "a#1", "redis-1", 900, 901, 300)
		s.acquire(2, "orders", "b#1", "redis-1", 999, 1000, 4000)
		with(s)
		s.observe(6000, "redis-1", history.ObserveEpoch, "1")
		in := judged(run(), s.history())
		// The story of that overlap, however long others are.
		for i := range in.Report.Results {
			r := &in.Report.Results[i]
			r.Violations = slices.DeleteFunc(r.Violations, func(v checker.Violation) bool { return v.Kind != checker.DoubleGrant || v.From != ms(1000) })
		}
		in.Report.Results = slices.DeleteFunc(in.Report.Results, func(r checker.Result) bool {
			return r.Verdict == checker.Invalid && len(r.Violations) == 0
		})
		text := reports.Summarize(in).Story.String()
		require.Contains(t, text, "client b was granted orders")
		return text
	}
	use := func(p int, owner, value string, from, to float64) func(s *script) {
		return func(s *script) { s.access(p, "orders", owner, "stock", value, from, to) }
	}
	all := func(of ...func(s *script)) func(s *script) {
		return func(s *script) {
			for _, do := range of {
				do(s)
			}
		}
	}
	third := func(from float64) func(s *script) {
		return func(s *script) { s.acquire(3, "orders", "c#1", "redis-1", from, from+1, 1000) }
	}

	// Their own damage, inside the overlap and after it.
	require.Contains(t, story(all(use(1, "a#1", "40>41", 1010, 1020), use(2, "b#1", "40>41", 1030, 1040))), "changed stock, which both had read as 40: one of the two updates is lost.")
	require.Contains(t, story(all(use(1, "a#1", "40>41", 1010, 1020), use(2, "b#1", "40>41", 3000, 3001))),
		"In that time client a read 40 from stock and wrote 41 at 1.020 s, which client b changed too (at 3.001 s): one of the two updates is lost.")
	require.NotContains(t, story(all(use(1, "a#1", "40>41", 1010, 1020), use(2, "b#1", "41>42", 1030, 1040))), "lost")

	// That of b and a third, much later, and without a.
	late := story(all(third(2990), use(2, "b#1", "50>51", 3000, 3010), use(3, "c#1", "50>51", 3020, 3030)))
	require.Contains(t, late, "Neither of them used the protected resource in that time.")
	require.NotContains(t, late, "lost")
	// The same with an access of b that was begun in the overlap, and was under way for long.
	require.NotContains(t, story(all(third(2990), use(2, "b#1", "50>51", 1100, 3010), use(3, "c#1", "50>51", 3020, 3030))), "lost")
	// A third that held the lock beside one of them at that time, or had held it before, or
	// used the resource without a hold.
	require.NotContains(t, story(all(third(1090), use(2, "b#1", "50>51", 1100, 1110), use(3, "c#1", "50>51", 1120, 1130))), "lost")
	require.NotContains(t, story(all(third(880), use(3, "c#1", "50>51", 885, 890), use(2, "b#1", "50>51", 1100, 1110))), "lost")
	require.NotContains(t, story(all(use(2, "b#1", "50>51", 1100, 1110), use(9, "c#1", "50>51", 1120, 1130))), "lost")
	// An access under another lock is not one of the two.
	other := func(s *script) { s.access(1, "stock-keeper", "a#1", "stock", "50>51", 1100, 1105) }
	require.NotContains(t, story(all(other, use(2, "b#1", "50>51", 1100, 1110))), "lost")
}
