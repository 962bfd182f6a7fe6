package reports_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// deposed is a failover after which the old master goes on for a while, and two grants
// after the failover was reported done: while there are two masters, or later.
func deposed(grants float64) reports.Input {
	s := &script{}
	s.declare("orders")
	s.fault(history.Inject, "failover", "", 100, 200, history.OK, "redis-2 took over from redis-1", "")
	s.observe(150, "redis-2", history.ObserveRole, "master")
	s.observe(600, "redis-1", history.ObserveRole, "replica")
	s.acquire(1, "orders", "zone-a.1#1", "", grants, grants+1, 100)
	s.acquire(2, "orders", "zone-b.1#1", "", grants+10, grants+11, 100)
	s.observe(1500, "redis-2", history.ObserveEpoch, "2")
	return judged(run(), s.history())
}

// A failover explains what happens until the old master follows, and no more.
func TestAFailoverLastsUntilTheOldMasterFollows(t *testing.T) {
	r := reports.Summarize(deposed(300))
	require.Len(t, r.Causes, 1)
	require.Equal(t, "failover", r.Causes[0].Fault)
	require.Contains(t, r.Story.String(), "At 0.100 s a failover was ordered", "the story begins with it")
	require.Contains(t, r.Story.String(), "At that time redis-1 and redis-2 were masters at once, as far as it was seen; which of them granted what is not recorded.")

	r = reports.Summarize(deposed(700))
	require.Len(t, r.Causes, 1)
	require.Empty(t, r.Causes[0].Fault)
	require.NotContains(t, r.Story.String(), "masters at once")
}

// splitBrain is one of a master, and two grants of which the lock does not say the server.
func splitBrain(params map[string]string) reports.Input {
	s := &script{}
	s.declare("orders")
	s.fault(history.Inject, "split-brain", "redis-1", 5, 8, history.OK, "simulated", "")
	for i := range s.events {
		s.events[i].Params = params
	}
	s.observe(9, "redis-2", history.ObserveRole, "master")
	s.acquire(1, "orders", "zone-a.1#1", "", 20, 21, 3000)
	s.acquire(2, "orders", "zone-b.1#1", "", 30, 31, 3000)
	s.observe(4000, "redis-2", history.ObserveEpoch, "1")
	return judged(run(), s.history())
}

// A simulated split-brain leaves the clients on both sides: which of the two masters granted is
// known only where the lock says it.
func TestASplitBrainThatKeepsTheClients(t *testing.T) {
	t.Parallel()
	story := func(params map[string]string) string {
		return reports.Summarize(splitBrain(params)).Story.String()
	}
	kept := story(map[string]string{"clients": "kept"})
	require.Contains(t, kept, "redis-1 was cut off from all other servers")
	require.Contains(t, kept, "At that time redis-1 and redis-2 were masters at once")
	require.NotContains(t, kept, "by redis-2")
	require.Contains(t, story(nil), "client zone-a.1 was granted orders by redis-2")
}

// Masters of other keys are not beside the one that was replaced.
func TestMastersAtOnceAreThoseOfOneShard(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.declare("orders")
	s.observe(0, "redis-1", history.ObserveRole, "master")
	s.observe(0, "redis-2", history.ObserveRole, "master")
	s.fault(history.Inject, "failover", "", 5, 8, history.OK, "redis-3 took over from redis-1", "")
	s.observe(9, "redis-3", history.ObserveRole, "master")
	s.acquire(1, "orders", "a#1", "", 20, 21, 3000)
	s.acquire(2, "orders", "b#1", "", 30, 31, 3000)
	r := run()
	r.Topology = shards()
	require.Contains(t, reports.Summarize(judged(r, s.history())).Story.String(), "At that time redis-1 and redis-3 were masters at once")
}

// A fault of links explains nothing to clients of another zone, or where no request met it.
func TestAFaultThatTheClientsDidNotMeet(t *testing.T) {
	with := func(target, met string) string {
		s := &script{}
		s.declare("orders")
		s.fault(history.Inject, "latency", target, 10, 20, history.OK, "1 link delayed", "")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 30, 31, 300)
		s.acquire(2, "orders", "zone-a.2#1", "redis-1", 40, 41, 300)
		s.fault(history.Heal, "latency", target, 390, 400, history.OK, "", "")
		if met != "" {
			s.at(401, history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Observe, Node: history.ObserveClients, What: history.ObserveMet, Fault: "latency", Target: target, Value: met})
		}
		r := reports.Summarize(judged(run(), s.history()))
		require.Len(t, r.Causes, 1)
		return r.Causes[0].Fault
	}
	require.Equal(t, "latency", with("zone-a>redis-1", ""))
	require.Equal(t, "latency", with("zone-a>redis-1", "3"))
	require.Empty(t, with("zone-a>redis-1", "0"))
	require.Empty(t, with("zone-b>redis-1", "3"))
}

// What two properties find in one answer is told once.
func TestALateReleaseIsToldOnce(t *testing.T) {
	in := fixtures()["plain-delete"]()
	for _, r := range in.Report.Results {
		if r.Name == "ownership" {
			r.Name = "linearizability"
			in.Report.Results = append(in.Report.Results, r)
		}
	}
	n := 0
	for _, m := range reports.Summarize(in).Story.Events {
		if m.Kind == reports.EventLock {
			n++
		}
	}
	require.Equal(t, 1, n)
}

// What no variant shows is not said to have prevented anything.
func TestACureThatNothingShows(t *testing.T) {
	in := failover()
	in.Run.Cures = []string{"count a grant only after replicas acknowledged it (see failover-double-grant/replica-acks)", "keep calm"}
	page := htmlOf(t, in)
	require.Contains(t, page, "What would have prevented it")
	require.Contains(t, page, `keep calm <span class="soft">(which no variant shows)</span>`)
	require.Contains(t, reports.Summarize(in).Story.String(), "keep calm (which no variant shows)")

	in.Run.Cures = in.Run.Cures[1:]
	require.NotContains(t, htmlOf(t, in), "would have prevented")
	require.Contains(t, reports.Summarize(in).Story.String(), "What may prevent it: keep calm.")
}

func TestHeadlineNamesALockOnce(t *testing.T) {
	in := failover()
	require.Contains(t, reports.Summarize(in).Story.Headline, "held the lock orders")
	for i := range in.History.Events {
		if e := &in.History.Events[i]; e.Lock == "orders" {
			e.Lock = "lock-1"
		}
	}
	for i := range in.Report.Results {
		for j := range in.Report.Results[i].Violations {
			in.Report.Results[i].Violations[j].Lock = "lock-1"
		}
	}
	require.Contains(t, reports.Summarize(in).Story.Headline, "held lock-1")
}

// A loss while there are two masters says so, and has the cures of a failover.
func TestALossBetweenTwoMasters(t *testing.T) {
	with := func(at float64) reports.Cause {
		s := &script{}
		s.declare("orders")
		s.fault(history.Inject, "failover", "", 100, 200, history.OK, "redis-2 took over from redis-1", "")
		s.observe(150, "redis-2", history.ObserveRole, "master")
		s.observe(600, "redis-1", history.ObserveRole, "replica")
		s.acquire(1, "orders", "zone-a.1#1", "", at, at+1, 3000)
		s.attempt(1, history.Release, "orders", "zone-a.1#1", at+20, at+21, history.Fail, "not held")
		s.observe(1500, "redis-2", history.ObserveEpoch, "2")
		return reports.Summarize(judged(run(), s.history())).Causes[0]
	}
	c := with(300)
	require.Contains(t, c.Story.String(), "When it was granted redis-1 and redis-2 were masters at once")
	require.NotEmpty(t, c.Cures)
	c = with(700)
	require.NotContains(t, c.Story.String(), "masters at once")
	require.Empty(t, c.Cures)
}

// A fault that only delays messages explains no violation that came up without it as well.
func TestAFaultThatTheViolationDidNotNeed(t *testing.T) {
	causes := func(alone bool, fault string) []reports.Cause {
		s := &script{}
		s.declare("orders")
		s.fault(history.Inject, fault, "zone-a>redis-1", 10, 20, history.OK, "1 link", "")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 30, 31, 300)
		s.acquire(2, "orders", "zone-a.2#1", "redis-1", 40, 41, 300)
		s.fault(history.Heal, fault, "zone-a>redis-1", 390, 400, history.OK, "", "")
		if alone {
			s.acquire(1, "orders", "zone-a.1#2", "redis-1", 1030, 1031, 300)
			s.acquire(2, "orders", "zone-a.2#2", "redis-1", 1040, 1041, 300)
		}
		return reports.Summarize(judged(run(), s.history())).Causes
	}
	for _, fault := range []string{"latency", "cut", "reset"} {
		both := causes(true, fault)
		require.Len(t, both, 1, fault)
		require.Empty(t, both[0].Fault, fault)
		require.Equal(t, 2, both[0].Violations[checker.DoubleGrant], fault)
	}
	alone := causes(false, "latency")
	require.Len(t, alone, 1)
	require.Equal(t, "latency", alone[0].Fault)
}

// A server that was the master already was not made one by the failover that followed.
func TestALaterFailoverIsNotTheCause(t *testing.T) {
	cause := func(promoted float64) string {
		s := &script{}
		s.declare("orders")
		s.fault(history.Inject, "split-brain", "{redis-1 sentinel-1 zone-a}", 10, 60, history.OK, "redis-2 is the master of the majority", "")
		s.fault(history.Inject, "failover", "", 100, 300, history.OK, "redis-3 took over", "")
		s.observe(promoted, "redis-2", history.ObserveRole, "master")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 120, 121, 2000)
		s.acquire(2, "orders", "zone-b.2#1", "redis-2", 130, 131, 2000)
		s.observe(290, "redis-3", history.ObserveRole, "master")
		s.fault(history.Heal, "split-brain", "{redis-1 sentinel-1 zone-a}", 500, 510, history.OK, "", "")
		s.observe(600, "redis-1", history.ObserveRole, "replica")
		causes := reports.Summarize(judged(run(), s.history())).Causes
		require.Len(t, causes, 1)
		return causes[0].Fault
	}
	require.Equal(t, "split-brain", cause(50))
	require.Equal(t, "failover", cause(110), "the promotion followed the failover")
}

// A client that was stopped explains its use of the resource after its lease better than a
// failover in the same time.
func TestAPauseExplainsALateUse(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "zone-a.1#1", "redis-1", 10, 11, 200)
	s.fault(history.Inject, "pause", "zone-a", 20, 23, history.OK, "zone-a stopped", "")
	s.fault(history.Inject, "failover", "", 100, 180, history.OK, "redis-2 took over from redis-1", "")
	s.observe(150, "redis-2", history.ObserveRole, "master")
	s.observe(190, "redis-1", history.ObserveRole, "replica")
	s.fault(history.Heal, "pause", "zone-a", 500, 503, history.OK, "", "")
	s.access(1, "orders", "zone-a.1#1", "stock", "1>2", 510, 511)
	causes := reports.Summarize(judged(run(), s.history())).Causes
	require.Len(t, causes, 1)
	require.Equal(t, map[string]int{checker.UseAfterLease: 1}, causes[0].Violations)
	require.Equal(t, "pause", causes[0].Fault)
}

// shifted is a fault of a clock with what it was set to.
func (s *script) shifted(op history.Op, name, target, param, value string, t float64) {
	e := history.Event{Process: history.NoProcess, Type: history.Invoke, Op: op, Fault: name, Target: target, Params: map[string]string{param: value}}
	s.at(t, e)
	e.Type = history.OK
	s.at(t, e)
}

// A clock explains a second grant if it went ahead, after the first, by what was left of
// the lease.
func TestAClockThatCanHaveEndedALease(t *testing.T) {
	for _, test := range []struct {
		fault, param, value string
		from, to            float64 // of the fault; the leases are from 100 to 1,100, the second grant is at 500
		explains            bool
	}{
		{"clock-forward", "by", "700", 200, 2000, true},
		{"clock-forward", "by", "700", 200, 300, true}, // what has run out does not come back
		{"clock-forward", "by", "300", 200, 2000, false},
		{"clock-forward", "by", "700", 20, 2000, false}, // the lease was counted by it from the start
		{"clock-back", "by", "700", 50, 300, true},      // its heal sets it forward
		{"clock-back", "by", "700", 50, 2000, false},
		{"clock-freeze", "", "", 20, 450, false},
		{"clock-rate", "percent", "-50", 20, 450, false},
		{"clock-rate", "percent", "400", 200, 2000, true},
		{"clock-rate", "percent", "20", 200, 2000, false},
	} {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 100, 101, 1000)
		s.acquire(2, "orders", "zone-b.1#1", "redis-1", 500, 501, 1000)
		s.shifted(history.Inject, test.fault, "redis-1", test.param, test.value, test.from)
		s.shifted(history.Heal, test.fault, "redis-1", test.param, test.value, test.to)
		s.observe(3000, "redis-1", history.ObserveEpoch, "1")
		r := reports.Summarize(judged(run(), s.history()))
		require.Len(t, r.Causes, 1)
		require.Equal(t, test.explains, r.Causes[0].Fault == test.fault, "%+v: %s", test, r.Causes[0].Title)
	}
}

// A clock matters where a master has it.
func TestTheClockOfAReplicaExplainsNothing(t *testing.T) {
	for target, explains := range map[string]bool{"redis-1": true, "redis-2": false} {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "1#1", "", 100, 101, 1000)
		s.acquire(2, "orders", "2#1", "", 500, 501, 1000)
		s.shifted(history.Inject, "clock-forward", target, "by", "800", 200)
		s.fault(history.Inject, "cut", "zone-a>redis-1", 120, 130, history.OK, "", "")
		s.observe(3000, "redis-1", history.ObserveEpoch, "1")
		c := reports.Summarize(judged(run(), s.history())).Causes[0]
		require.Equal(t, explains, c.Fault == "clock-forward", c.Title)
	}
}

// Of several faults of links the cause is one that a request met which is told.
func TestAFaultOfALinkThatARequestMet(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "zone-a.1#1", "redis-1", 100, 101, 1000)
	s.fault(history.Inject, "stall", "zone-a>redis-1", 110, 111, history.OK, "", "")
	s.fault(history.Heal, "stall", "zone-a>redis-1", 140, 141, history.OK, "", "")
	s.fault(history.Inject, "delay-reply", "zone-b>redis-1", 210, 211, history.OK, "", "")
	s.fault(history.Inject, "cut", "zone-a>redis-1", 310, 311, history.OK, "", "")
	s.fault(history.Heal, "cut", "zone-a>redis-1", 320, 321, history.OK, "", "")
	s.acquire(2, "orders", "zone-b.1#1", "redis-1", 200, 501, 1000)
	s.observe(3000, "redis-1", history.ObserveEpoch, "1")
	c := reports.Summarize(judged(run(), s.history())).Causes[0]
	require.Equal(t, "delay-reply", c.Fault, c.Title)
}

// What was not given back for certain is there until its lease ends: no fault that is over
// explains that it is there later, but a clock that was ahead.
func TestWhatALastGrantLeavesStuck(t *testing.T) {
	stuck := func(released history.Type, faults func(s *script)) reports.Cause {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 100, 101, 1000)
		if released != "" {
			s.attempt(1, history.Release, "orders", "zone-a.1#1", 300, 301, released, "")
		}
		faults(s)
		s.attempt(2, history.Acquire, "orders", "zone-b.1#1", 900, 950, history.Fail, "not acquired")
		s.attempt(2, history.Acquire, "orders", "zone-b.1#2", 1500, 16000, history.Fail, "not acquired")
		r := run()
		r.Progress = ms(2000)
		in := reports.Input{Run: r, History: s.history()}
		in.Report = checker.Check(t.Context(), in.History)
		causes := reports.Summarize(in).Causes
		require.Len(t, causes, 1)
		return causes[0]
	}
	killed := func(s *script) {
		s.fault(history.Inject, "kill", "redis-1", 400, 410, history.OK, "", "")
		s.fault(history.Heal, "kill", "redis-1", 500, 510, history.OK, "", "")
	}
	ahead := func(s *script) {
		s.shifted(history.Inject, "clock-forward", "redis-1", "by", "60000", 50)
		s.shifted(history.Heal, "clock-forward", "redis-1", "by", "60000", 200)
	}
	for _, released := range []history.Type{"", history.Info} {
		c := stuck(released, killed)
		require.Empty(t, c.Fault, c.Title)
		require.Contains(t, c.Story.String(), "have the servers end a grant with its lease")
		require.Contains(t, c.Story.String(), "At 0.950 s client zone-b.1 was refused orders, asked for at 0.900 s.")
		require.Equal(t, "clock-forward", stuck(released, ahead).Fault)
	}
	require.Contains(t, stuck(history.Info, killed).Story.String(), "At 0.301 s client zone-a.1 got no certain answer to its release of orders.")
	require.Equal(t, "kill", stuck(history.OK, killed).Fault, "it may have undone the release")
	require.Empty(t, stuck(history.OK, func(s *script) {
		s.fault(history.Inject, "kill", "redis-1", 40, 50, history.OK, "", "")
		s.fault(history.Heal, "kill", "redis-1", 60, 70, history.OK, "", "")
	}).Fault, "the lock was granted after it")
}

// chained are two grants because of a clock, a third, and perhaps a release before it by the
// first of the clients.
func (s *script) chained(released bool) {
	s.acquire(1, "orders", "zone-a.1#1", "redis-1", 100, 101, 1000)
	s.shifted(history.Inject, "clock-forward", "redis-1", "by", "900", 200)
	s.shifted(history.Heal, "clock-forward", "redis-1", "by", "900", 250)
	s.acquire(2, "orders", "zone-b.1#1", "redis-1", 300, 301, 1000)
	if released {
		s.release(1, "orders", "zone-a.1#1", "redis-1", 400, 401)
	}
	s.acquire(3, "orders", "zone-a.2#1", "redis-1", 500, 501, 1000)
	s.observe(3000, "redis-1", history.ObserveEpoch, "1")
}

// Two clients that hold a lock because of a fault, and a release of the first that ends the
// hold of the second: what follows is of the same cause, and the release is told.
func TestAReleaseThatEndsTheHoldOfAnother(t *testing.T) {
	with := func(released bool) reports.Results {
		s := &script{}
		s.declare("orders")
		s.chained(released)
		return reports.Summarize(judged(run(), s.history()))
	}
	r := with(true)
	require.Len(t, r.Causes, 1, "%v", r.Causes)
	require.Equal(t, "clock-forward", r.Causes[0].Fault)
	require.Equal(t, 2, r.Causes[0].Violations[checker.DoubleGrant])
	require.Contains(t, r.Causes[0].Story.String(), "At 0.401 s client zone-a.1 gave back orders, which client zone-b.1 held at the same time: without a look at the owner that ends the hold of the other.")
	require.Contains(t, r.Causes[0].Story.String(), "compare the owner and delete in one step")
	for _, c := range with(false).Causes {
		require.NotContains(t, c.Story.String(), "gave back orders, which")
	}
}

// Nothing of that is said where two masters granted, each for itself.
func TestAReleaseAtAnotherMaster(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.fault(history.Inject, "split-brain", "{redis-1 sentinel-1 zone-a}", 50, 60, history.OK, "", "")
	s.observe(90, "redis-2", history.ObserveRole, "master")
	s.acquire(1, "orders", "zone-b.1#1", "redis-2", 100, 101, 1000)
	s.acquire(2, "orders", "zone-a.1#1", "redis-1", 200, 201, 1000)
	s.release(1, "orders", "zone-b.1#1", "redis-2", 300, 301)
	s.acquire(3, "orders", "zone-b.2#1", "redis-2", 400, 401, 1000)
	s.observe(3000, "redis-1", history.ObserveEpoch, "1")
	r := reports.Summarize(judged(run(), s.history()))
	require.Len(t, r.Causes, 1)
	require.Equal(t, "split-brain", r.Causes[0].Fault)
	require.NotContains(t, r.Story.String(), "gave back")
	require.NotContains(t, strings.Join(r.Story.Cures, " "), "compare the owner")
}

// A restart after which a server has all that it had explains no more than that it was gone:
// nothing that also came up without it.
func TestARestartThatKeepsTheData(t *testing.T) {
	for persistence, causes := range map[string]int{"everysec": 2, "always": 1} {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 100, 101, 1000)
		s.acquire(2, "orders", "zone-b.1#1", "redis-1", 200, 201, 1000)
		s.acquire(3, "orders", "zone-a.1#2", "redis-1", 2000, 2001, 1000)
		s.fault(history.Inject, "restart", "redis-1", 2100, 2150, history.OK, "", "")
		s.acquire(4, "orders", "zone-b.1#2", "redis-1", 2200, 2201, 1000)
		s.observe(4000, "redis-1", history.ObserveEpoch, "1")
		r := run()
		r.Topology.Options = map[string]string{"persistence": persistence}
		require.Len(t, reports.Summarize(judged(r, s.history())).Causes, causes, persistence)
	}
}

// A late or lost message explains no order of grants and of tokens.
func TestAFaultOfALinkExplainsNoOrder(t *testing.T) {
	s := &script{}
	s.declare("orders")
	grant := func(p int, owner string, at float64, token int64) {
		e := history.Event{Process: p, Type: history.Invoke, Op: history.Acquire, Lock: "orders", Owner: owner}
		s.at(at, e)
		e.Type, e.Node, e.Token = history.OK, "redis-1", token
		s.at(at+1, e)
		s.release(p, "orders", owner, "redis-1", at+10, at+11)
	}
	grant(1, "zone-a.1#1", 100, 7)
	s.fault(history.Inject, "latency", "zone-b>redis-1", 105, 106, history.OK, "", "")
	grant(2, "zone-b.1#1", 200, 7)
	s.observe(4000, "redis-1", history.ObserveEpoch, "1")
	causes := reports.Summarize(judged(run(), s.history())).Causes
	require.Len(t, causes, 1)
	require.Equal(t, 1, causes[0].Violations[checker.FenceDuplicate])
	require.Empty(t, causes[0].Fault, causes[0].Title)
}

// A lease that a server counted by a clock which was set back later, and then to the true time,
// ends no earlier by that; one that was extended in between does.
func TestAClockThatWasSetBackAndRight(t *testing.T) {
	cause := func(extended bool) reports.Cause {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 100, 101, 4000)
		s.shifted(history.Inject, "clock-back", "redis-1", "by", "2500.5", 1000)
		if extended {
			e := history.Event{Process: 1, Type: history.Invoke, Op: history.Extend, Lock: "orders", Owner: "zone-a.1#1", Lease: ms(4000)}
			s.at(1500, e)
			e.Type, e.Expires = history.OK, ms(5500)
			s.at(1501, e)
		}
		s.shifted(history.Heal, "clock-back", "redis-1", "by", "2500.5", 2000)
		s.acquire(2, "orders", "zone-b.1#1", "redis-1", 3500, 3501, 1000)
		s.observe(9000, "redis-1", history.ObserveEpoch, "1")
		causes := reports.Summarize(judged(run(), s.history())).Causes
		require.Len(t, causes, 1)
		return causes[0]
	}
	require.Empty(t, cause(false).Fault, cause(false).Title)
	require.Equal(t, "clock-back", cause(true).Fault, cause(true).Title)
	require.Contains(t, cause(true).Story.String(), "(by 2,500 ms)", "its unit is said")
}

// While a partition is healed, a client may reach the masters of both sides: what it is told then
// comes from either, and has the partition as its cause.
func TestAnAnswerDuringAHealIsOfEitherSide(t *testing.T) {
	for healing, cause := range map[float64]string{5000: "", 3000: "split-brain"} {
		s := &script{}
		s.declare("orders")
		s.fault(history.Inject, "split-brain", "{redis-1 sentinel-1 zone-a}", 100, 1300, history.OK, "redis-3 is the master of the rest", "")
		s.observe(800, "redis-3", history.ObserveRole, "master")
		s.acquire(1, "orders", "zone-a.3#1", "", 2900, 2905, 2000)
		s.attempt(1, history.Release, "orders", "zone-a.3#1", 3030, 3032, history.Fail, "lock not held")
		s.fault(history.Heal, "split-brain", "{redis-1 sentinel-1 zone-a}", healing, 6500, history.OK, "", "")
		s.observe(6400, "redis-1", history.ObserveRole, "replica")
		r := reports.Summarize(judged(run(), s.history()))
		require.Len(t, r.Causes, 1)
		require.Equal(t, cause, r.Causes[0].Fault, "the heal began at %v ms", healing)
	}
}

// A request has its place in the queue from when it joined: a clock that was wrong then is the
// cause, also where it was right again before the request was granted.
func TestAClockThatGaveTheWrongPlace(t *testing.T) {
	cause := func(joined float64) string {
		s := &script{}
		s.declareAs("orders", history.Event{Fair: true})
		s.shifted(history.Inject, "clock-forward", "redis-1", "by", "250", 810)
		s.acquire(1, "orders", "a#1", "redis-1", joined, 1044, 200)
		s.events[len(s.events)-1].Expires = ms(1039 + 200) // the try that was granted
		s.queued(1097)
		s.shifted(history.Heal, "clock-forward", "redis-1", "by", "250", 850)
		s.acquire(2, "orders", "b#1", "redis-1", 1047, 1061, 200)
		s.queued(1047)
		s.release(1, "orders", "a#1", "redis-1", 1053, 1054)
		causes := reports.Summarize(judged(run(), s.history())).Causes
		require.Len(t, causes, 1)
		require.Equal(t, 1, causes[0].Violations[checker.Overtaken])
		return causes[0].Fault
	}
	require.Equal(t, "clock-forward", cause(847))
	require.Empty(t, cause(900))
}

// miscounted is a semaphore of two permits that grants three, after a failover from 20 to 30 ms
// that forgot another permit, which was given back at some time.
func miscounted(lease, released float64) reports.Input {
	s := &script{}
	s.declareAs("orders", history.Event{Kind: history.KindSemaphore, Capacity: 2})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, lease)
	s.mode(history.Permit)
	s.fault(history.Inject, "failover", "", 20, 30, history.OK, "redis-2 is the master", "")
	s.observe(25, "redis-2", history.ObserveRole, "master")
	s.observe(26, "redis-1", history.ObserveRole, "replica")
	s.release(1, "orders", "a#1", "redis-2", released, released+1)
	for i, owner := range []string{"b#1", "c#1", "d#1"} {
		s.acquire(2+i, "orders", owner, "redis-2", 1000+float64(i), 1000.5+float64(i), 0)
		s.mode(history.Permit)
	}
	s.observe(3000, "redis-2", history.ObserveEpoch, "1")
	return judged(run(), s.history())
}

// Permits that a failover lost, and that were given back later, are missing from the count
// of a semaphore for good.
func TestPermitsThatWereMiscounted(t *testing.T) {
	for name, test := range map[string]struct {
		lease    float64 // of the permit that was lost; none: it is endless
		released float64
		cause    string
		counted  bool
	}{
		"given back later":  {0, 460, "failover", true},
		"given back before": {0, 15, "", false},
		"known by itself":   {500, 460, "", false},
		"still out":         {0, 1500, "failover", false},
	} {
		t.Run(name, func(t *testing.T) {
			causes := reports.Summarize(miscounted(test.lease, test.released)).Causes
			told := slices.IndexFunc(causes, func(c reports.Cause) bool { return c.Violations[checker.OverCapacity] > 0 })
			require.GreaterOrEqual(t, told, 0)
			require.Equal(t, test.cause, causes[told].Fault)
			require.Equal(t, test.counted, strings.Contains(causes[told].Story.String(), "has 1 permit too many to grant from when client a gave back"))
		})
	}
}

// Of two permits of one owner it is not known which was lost: a clock that ended the first
// is the cause, also where the second was asked for when the clock was right again.
func TestALossOfOneOfTwoPermits(t *testing.T) {
	cause := func(first float64) string {
		s := &script{}
		s.declareAs("orders", history.Event{Kind: history.KindSemaphore, Capacity: 3})
		s.shifted(history.Inject, "clock-back", "redis-1", "by", "500", 100)
		s.acquire(1, "orders", "a#1", "redis-1", first, first+5, 200)
		s.mode(history.Permit)
		s.shifted(history.Heal, "clock-back", "redis-1", "by", "500", 1000)
		s.acquire(1, "orders", "a#1", "redis-1", 1040, 1041, 200)
		s.mode(history.Permit)
		s.release(1, "orders", "a#1", "redis-1", 1050, 1051)
		s.mode(history.Permit)
		s.attempt(1, history.Release, "orders", "a#1", 1052, 1053, history.Fail, "lock not held")
		s.mode(history.Permit)
		causes := reports.Summarize(judged(run(), s.history())).Causes
		require.Len(t, causes, 1)
		require.Equal(t, 1, causes[0].Violations[checker.PrematureLoss])
		return causes[0].Fault
	}
	require.Equal(t, "clock-back", cause(990))
	require.Empty(t, cause(1020), "both were asked for later")
}

// A grant that a restart had lost is not lost again by a failover that came later: what was
// granted beside it after that has the restart as its cause, too.
func TestWhatWasLostIsNotLostAgain(t *testing.T) {
	causes := func(restarted bool) []reports.Cause {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 9000)
		if restarted {
			s.fault(history.Inject, "kill", "redis-1", 100, 101, history.OK, "down", "")
			s.fault(history.Heal, "kill", "redis-1", 150, 151, history.OK, "up", "")
			s.acquire(2, "orders", "b#1", "redis-1", 200, 201, 500)
			s.release(2, "orders", "b#1", "redis-1", 300, 301)
		}
		s.fault(history.Inject, "failover", "", 1000, 1100, history.OK, "redis-2 is the master", "")
		s.observe(1050, "redis-2", history.ObserveRole, "master")
		s.observe(1060, "redis-1", history.ObserveRole, "replica")
		s.acquire(3, "orders", "c#1", "redis-2", 1200, 1201, 500)
		s.attempt(1, history.Release, "orders", "a#1", 1500, 1501, history.Fail, "lock not held")
		return reports.Summarize(judged(run(), s.history())).Causes
	}
	both := causes(true)
	require.Len(t, both, 1)
	require.Equal(t, "kill", both[0].Fault)
	require.Equal(t, 2, both[0].Violations[checker.DoubleGrant])
	require.Equal(t, 1, both[0].Violations[checker.PrematureLoss])
	require.Equal(t, "failover", causes(false)[0].Fault)
}

// A client that stood still is the cause of a lost update also where it is not known which
// servers granted the lock, whichever of the two holders it is.
func TestAPauseOfAHolderWithoutTheNamesOfServers(t *testing.T) {
	for _, zone := range []string{"zone-a", "zone-b"} { // the first holder's, and the second's
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "zone-a.1#1", "", 100, 101, 200)
		s.at(110, history.Event{Process: 1, Type: history.Invoke, Op: history.Access, Lock: "orders", Owner: "zone-a.1#1", Resource: "stock"})
		s.fault(history.Inject, "pause", zone, 150, 151, history.OK, "", "")
		s.acquire(2, "orders", "zone-b.1#1", "", 400, 401, 1000)
		s.access(2, "orders", "zone-b.1#1", "stock", "2>3", 410, 411)
		s.release(2, "orders", "zone-b.1#1", "", 412, 413)
		s.fault(history.Heal, "pause", zone, 500, 501, history.OK, "", "")
		s.at(502, history.Event{Process: 1, Type: history.OK, Op: history.Access, Lock: "orders", Owner: "zone-a.1#1", Resource: "stock", Value: "2>3"})
		r := run()
		r.Lock, r.Topology = "redlock", independent()
		causes := reports.Summarize(judged(r, s.history())).Causes
		require.Len(t, causes, 1, zone)
		require.Equal(t, map[string]int{checker.LostUpdate: 1}, causes[0].Violations, zone)
		require.Equal(t, "pause", causes[0].Fault, zone)
	}
}
