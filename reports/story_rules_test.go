package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

func summarized(s *script) reports.Results {
	r := run()
	r.Command = "lockchaos run --topology sentinel --seed 42"
	return reports.Summarize(judged(r, s.history()))
}

// The first violation with damage is told, and not one before it, or a longer one.
func TestTheFirstViolationWithDamageIsTold(t *testing.T) {
	r := reports.Summarize(twoFaults())
	require.Equal(t, "Two clients held lock-3 at the same time for 6 ms", r.Story.Headline)
	require.Contains(t, r.Story.String(), "Damage by these clients: 2 lost updates, the first at 2.607 s.")
	require.Equal(t, ms(2603), r.Story.Events[1].At)
	require.Equal(t, reports.EventViolation, r.Story.Events[1].Kind)
}

// In a chain of overlaps the first one is told: the release of the client whose hold overlaps on both sides is
// rightful, and is not blamed.
func TestTheFirstOverlapOfAChainIsTold(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 300)
	s.acquire(3, "orders", "c#1", "redis-1", 95, 96, 300)
	s.release(1, "orders", "a#1", "redis-1", 100, 101)
	s.acquire(2, "orders", "b#1", "redis-1", 109, 110, 300)
	s.access(3, "orders", "c#1", "ledger", "1>2", 120, 121)
	s.access(2, "orders", "b#1", "ledger", "1>2", 122, 123)
	s.release(3, "orders", "c#1", "redis-1", 200, 201)
	r := summarized(s)
	require.Equal(t, "Two clients held the lock orders at the same time for 4 ms", r.Story.Headline)
	require.Contains(t, r.Story.Events[0].Text, "client a was granted orders")
	for _, c := range r.Story.Cures {
		require.NotContains(t, c.ID, "owner-checked", "no release was wrong")
	}
}

// A fault that was in effect is named with its time, and never as the cause; so is that none was.
func TestFaultsInEffectAreNamed(t *testing.T) {
	doubled := func(at, healed float64) reports.Story {
		s := &script{}
		s.declare("orders")
		if at > 0 {
			s.fault(history.Inject, "latency", "zone-a>redis-1", at, at+1, history.OK, "slower", "")
			s.fault(history.Heal, "latency", "zone-a>redis-1", healed, healed+1, history.OK, "", "")
		}
		s.acquire(1, "orders", "a#1", "redis-1", 100, 101, 300)
		s.acquire(2, "orders", "b#1", "redis-1", 140, 141, 300)
		s.observe(900, "redis-1", history.ObserveEpoch, "1")
		return summarized(s).Story
	}
	require.Equal(t, "In effect at the time: latency zone-a>redis-1 (from 0.021 s to 0.131 s).", doubled(20, 130).InEffectText)
	require.Equal(t, "No fault was in effect at the time; the last before it was latency zone-a>redis-1, until 0.051 s.", doubled(20, 50).InEffectText)
	require.Equal(t, "No fault was in effect at the time.", doubled(500, 600).InEffectText)
	require.Equal(t, "No fault was injected.", doubled(0, 0).InEffectText)
}

// An extension that was confirmed after the lease of its hold began the overlap: it is told as the violation, with
// what prevents it.
func TestALateExtensionIsTold(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 1000)
	s.acquire(2, "orders", "b#1", "redis-1", 900, 1013, 10000)
	e := history.Event{Process: 1, Type: history.Invoke, Op: history.Extend, Lock: "orders", Owner: "a#1"}
	s.at(1090, e)
	e.Type, e.Expires = history.OK, ms(11100)
	s.at(1102, e)
	s.observe(4000, "redis-1", history.ObserveEpoch, "1")
	r := summarized(s)
	var marked string
	for _, ev := range r.Story.Events {
		if ev.Kind == reports.EventViolation {
			marked = ev.Text
		}
	}
	require.Contains(t, marked, "client a was confirmed an extension of orders")
	require.Equal(t, "owner-checked-extension", r.Story.Cures[0].ID)
}

// Two processes that hold a lock under one owner are not told as one client.
func TestTwoProcessesOfOneOwner(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "host-1", "redis-1", 0, 1, 1000)
	s.acquire(2, "orders", "host-1", "redis-1", 100, 101, 1000)
	s.observe(900, "redis-1", history.ObserveEpoch, "1")
	require.Contains(t, summarized(s).Story.Headline, "under the owner host-1, by the processes p1 and p2")
}

// What other clients were answered after a refused release shows whether the lock was forgotten: nothing is said
// that the record does not show.
func TestWhatFollowedARefusedRelease(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 5000)
	s.attempt(1, history.Release, "orders", "a#1", 1000, 1001, history.Fail, "lock: not held")
	s.attempt(2, history.Acquire, "orders", "b#1", 2000, 2002, history.Fail, "not acquired")
	s.attempt(2, history.Acquire, "orders", "b#2", 4900, 4902, history.Fail, "not acquired")
	s.acquire(2, "orders", "b#3", "redis-1", 5010, 5013, 1000)
	r := summarized(s)
	require.Equal(t, "Client a was told that it does not hold the lock orders, 3,999 ms before its lease was over", r.Story.Headline)
	require.Contains(t, r.Story.Outcome, "After that 2 requests of other clients were refused, the last at 4.902 s; client b was granted it at 5.013 s.")
}

// A client that changed a resource while its own release was sent is told so, and so is one that was refused.
func TestWorkOutsideAHold(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 5000)
	s.access(9, "orders", "a#1", "ledger", "1>2", 10, 260) // in a thread of its own
	s.release(1, "orders", "a#1", "redis-1", 100, 101)
	s.acquire(2, "orders", "b#1", "redis-1", 110, 111, 5000)
	s.access(2, "orders", "b#1", "ledger", "1>2", 120, 130)
	s.release(2, "orders", "b#1", "redis-1", 140, 141)
	r := summarized(s)
	require.NotEmpty(t, r.Story.Cures, "%+v", r)
	require.Equal(t, "finish-first", r.Story.Cures[0].ID, "%v", r.Story)
	require.Contains(t, r.Story.String(), "client a released orders")

	s = &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 5000)
	s.attempt(2, history.Acquire, "orders", "b#1", 10, 20, history.Fail, "not acquired")
	s.access(1, "orders", "a#1", "ledger", "1>2", 30, 60)
	s.access(2, "orders", "b#1", "ledger", "1>2", 40, 50)
	s.release(1, "orders", "a#1", "redis-1", 100, 101)
	r = summarized(s)
	require.Equal(t, checker.Invalid, r.Verdict)
	require.Contains(t, r.Story.String(), "though its request was refused at 0.020 s")
}

// What a run had already is no cure for it, nor is what helps against effects that no fault had.
func TestCuresGoByKindsEffectsAndSettings(t *testing.T) {
	ids := func(change func(in *reports.Input)) (all []string) {
		in := failover()
		in.Run.Scenario, in.Run.Cures, in.Run.Command = "", nil, "lockchaos run --topology sentinel --seed 1"
		for i := range in.History.Events {
			if e := &in.History.Events[i]; e.Fault == "kill" {
				e.Effects, e.Life = []history.Effect{history.Promotes, history.Stops}, history.Lasting
			}
		}
		change(&in)
		for _, c := range reports.Summarize(in).Story.Cures {
			all = append(all, c.ID)
		}
		return all
	}
	require.Equal(t, []string{"replica-acks", "fencing"}, ids(func(*reports.Input) {}))
	require.Equal(t, []string{"fencing"}, ids(func(in *reports.Input) { in.Run.Settings = []byte(`{"replica_acks":1}`) }))
	require.Equal(t, []string{"replica-acks"}, ids(func(in *reports.Input) { in.Run.Fencing = true }))
	require.Equal(t, []string{"fencing"}, ids(func(in *reports.Input) {
		for i := range in.History.Events {
			in.History.Events[i].Effects = nil
			if in.History.Events[i].Fault != "" {
				in.History.Events[i].Effects = []history.Effect{history.Delays}
			}
		}
	}))
}

// A client that used the resource and never held the lock is told so, and not that it was late.
func TestWorkWithoutTheLockIsToldAsSuch(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 0, 3, 30_000)
	s.attempt(2, history.Acquire, "orders", "b#1", 100, 103, history.Fail, "lock not acquired")
	s.access(2, "orders", "b#1", "stock", "1>2", 1200, 1210)
	s.release(1, "orders", "a#1", "redis-1", 1400, 1401)
	story := summarized(s).Story
	require.Equal(t, "Client b used stock without holding orders", story.Headline)
	require.Contains(t, story.String(), "though its request was refused at 0.103 s")
	require.Equal(t, "only-when-granted", story.Cures[0].ID)
	for _, c := range story.Cures {
		require.NotEqual(t, "stop-with-the-hold", c.ID)
	}
}
