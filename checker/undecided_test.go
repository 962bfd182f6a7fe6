package checker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// requireInWindows requires that windows of any size, and of any memory, give a
// property the verdict of the whole.
func requireInWindows(t *testing.T, want checker.Verdict, property checker.Checker, events ...history.Event) {
	t.Helper()
	h := &history.History{Events: events}
	for i := range h.Events {
		h.Events[i].Index = int64(i)
	}
	require.Equal(t, want, verdictOf(checker.Check(t.Context(), h, property), property.Name()))
	for least := range len(h.Events) {
		for _, forget := range []bool{false, true} {
			parts, err := checker.CheckPieces(t.Context(), list(h), 1+least, forget, property)
			require.NoError(t, err)
			require.Equal(t, want, verdictOf(parts, property.Name()), "windows of %d, forgetful: %v: %+v", 1+least, forget, parts.Results)
		}
	}
}

// A refusal that an extend under way may explain ends the hold at the earliest
// instant that it can in the end: the extend may turn out to explain nothing.
func TestRefusalBesideAnExtendUnderWay(t *testing.T) {
	t.Parallel()
	permits := func(at time.Duration, process int, typ history.Type, op history.Op, lease, expires time.Duration) history.Event {
		owner := "a"
		if process == 3 {
			owner = "b"
		}
		return history.Event{
			Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner, Mode: history.Permit, Permits: 2, Lease: lease, Expires: expires,
		}
	}
	for _, c := range []struct {
		typ     history.Type
		expires time.Duration
		want    checker.Verdict
	}{
		{history.Info, 0, checker.Valid},
		{history.OK, 120, checker.Invalid},
	} {
		requireInWindows(t, c.want, checker.Capacity(),
			history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindSemaphore, Capacity: 3},
			permits(0, 1, history.Invoke, history.Acquire, 64, 0),
			permits(24, 3, history.Invoke, history.Acquire, 24, 0),
			permits(32, 1, history.OK, history.Acquire, 64, 104),
			permits(56, 1, history.Invoke, history.Release, 0, 0),
			permits(57, 3, history.OK, history.Acquire, 24, 0),
			permits(80, 2, history.Invoke, history.Extend, 40, 0),
			permits(88, 1, history.Fail, history.Release, 0, 0),
			permits(96, 2, c.typ, history.Extend, 40, c.expires),
			history.Event{Time: 100, Process: 9, Type: history.Invoke, Op: history.Acquire, Lock: "z", Owner: "z"},
			history.Event{Time: 101, Process: 9, Type: history.OK, Op: history.Acquire, Lock: "z", Owner: "z"},
		)
	}
}

// A hold that is known for no certain time may still turn out to have lasted, which
// breaks another property.
func TestHoldThatMayHaveLasted(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, op history.Op, mode history.Mode, lease time.Duration) history.Event {
		owner := "reader"
		if process > 4 {
			owner = "writer"
		}
		return history.Event{Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner, Mode: mode, Lease: lease}
	}
	events := []history.Event{
		event(0, 1, history.Invoke, history.Acquire, history.Read, 96),
		event(0, 5, history.Invoke, history.Acquire, history.Write, 32),
		event(16, 5, history.OK, history.Acquire, history.Write, 32),
		event(16, 1, history.Info, history.Acquire, history.Read, 96),
		event(24, 6, history.Invoke, history.Extend, history.Write, 80),
		event(24, 3, history.Invoke, history.Extend, "", 72),
		event(32, 2, history.Invoke, history.Release, history.Read, 0),
		event(40, 6, history.OK, history.Extend, history.Write, 80),
		event(40, 3, history.OK, history.Extend, "", 72),
		event(56, 2, history.Info, history.Release, history.Read, 0),
		event(80, 4, history.Invoke, history.Release, history.Read, 0),
		event(88, 4, history.OK, history.Release, history.Read, 0),
	}
	for _, property := range []checker.Checker{checker.Ownership(), checker.MutualExclusion()} {
		want := checker.Valid
		if property.Name() == checker.MutualExclusion().Name() {
			want = checker.Invalid
		}
		requireInWindows(t, want, property, events...)
	}
}

// An extend that was sent before a release was answered may prolong the hold, though
// it is answered long after: the hold meets what it overlaps then.
func TestExtendThatIsAnsweredAfterTheRelease(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, op history.Op, lease time.Duration) history.Event {
		owner := "a"
		if process > 4 {
			owner = "b"
		}
		return history.Event{Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner, Lease: lease}
	}
	for answer, want := range map[history.Type]checker.Verdict{history.OK: checker.Invalid, history.Info: checker.Valid} {
		requireInWindows(t, want, checker.Ownership(),
			event(0, 5, history.Invoke, history.Acquire, 0),
			event(0, 1, history.Invoke, history.Acquire, 240),
			event(16, 5, history.Info, history.Acquire, 0),
			event(17, 1, history.OK, history.Acquire, 240),
			event(23, 6, history.Invoke, history.Release, 0),
			event(24, 1, history.Invoke, history.Release, 0),
			event(80, 6, history.OK, history.Release, 0),
			event(88, 2, history.Invoke, history.Extend, 24),
			event(96, 1, history.OK, history.Release, 0),
			event(152, 6, history.Invoke, history.Acquire, 8),
			event(160, 6, history.OK, history.Acquire, 8),
			event(168, 2, answer, history.Extend, 24),
		)
	}
}

// A grant of an acquire that is under way, which a confirmed extend shows, counts in
// the end, though it is given back before the acquire is answered.
func TestGrantThatIsNotAnsweredYet(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, op history.Op, owner string, lease time.Duration) history.Event {
		return history.Event{Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner, Lease: lease}
	}
	requireInWindows(t, checker.Invalid, checker.MutualExclusion(),
		event(0, 8, history.Invoke, history.Acquire, "b", 0),
		event(0, 5, history.Invoke, history.Acquire, "a", 232),
		event(24, 7, history.Invoke, history.Extend, "a", 136),
		event(24, 8, history.OK, history.Acquire, "b", 0),
		event(32, 7, history.OK, history.Extend, "a", 136),
		event(64, 8, history.Invoke, history.Release, "b", 0),
		event(96, 8, history.Info, history.Release, "b", 0),
		event(152, 6, history.Invoke, history.Release, "a", 0),
		event(192, 6, history.OK, history.Release, "a", 0),
		event(680, 36, history.Invoke, history.Acquire, "c", 56),
		event(688, 36, history.OK, history.Acquire, "c", 112),
		event(696, 32, history.Invoke, history.Extend, "d", 24),
		event(728, 30, history.Invoke, history.Acquire, "d", 152),
		event(736, 32, history.Info, history.Extend, "d", 24),
		event(744, 30, history.Info, history.Acquire, "d", 152),
		event(784, 33, history.Invoke, history.Extend, "d", 64),
		event(808, 33, history.OK, history.Extend, "d", 64),
		history.Event{Time: 912, Process: 156, Type: history.Invoke, Op: history.Access, Lock: "k", Resource: "r"},
		history.Event{Time: 974, Process: 156, Type: history.OK, Op: history.Access, Lock: "k", Resource: "r"},
	)
}

// A use under such a grant is judged when the acquire is answered.
func TestUseUnderAGrantThatIsNotAnsweredYet(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, op history.Op, owner string) history.Event {
		return history.Event{Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner, Lease: 72}
	}
	events := []history.Event{
		event(26, 6, history.Invoke, history.Acquire, "a"),
		event(40, 5, history.Invoke, history.Extend, "a"),
		event(41, 5, history.OK, history.Extend, "a"),
		event(44, 7, history.Invoke, history.Access, "a"),
		event(46, 7, history.OK, history.Access, "a"),
		event(67, 9, history.Invoke, history.Acquire, "b"),
		event(68, 9, history.Fail, history.Acquire, "b"),
		event(69, 9, history.Invoke, history.Acquire, "b"),
		event(70, 9, history.Fail, history.Acquire, "b"),
		event(71, 6, history.Fail, history.Acquire, "a"),
	}
	for answer, want := range map[history.Type]checker.Verdict{history.Info: checker.Valid, history.Fail: checker.Unknown} {
		events[len(events)-1].Type = answer
		requireInWindows(t, want, checker.UseWithinLease(), events...)
	}
}

// A grant beside an acquire of its owner that is under way may turn out to be an
// inner one, which has no token of its own.
func TestGrantThatMayBeAnInnerOne(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, owner string, lease time.Duration, token int64) history.Event {
		return history.Event{Time: at, Process: process, Type: typ, Op: history.Acquire, Lock: "k", Owner: owner, Lease: lease, Token: token}
	}
	declared := history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindMutex, Reentrant: true}
	place := func(e history.Event, queued int64) history.Event {
		e.Queued = &queued
		return e
	}
	requireInWindows(t, checker.Valid, checker.FencingOrder(), declared,
		event(7, 1, history.Invoke, "a", 0, 0),
		event(8, 1, history.OK, "a", 0, 1),
		event(46, 3, history.Invoke, "b", 0, 0),
		event(48, 3, history.OK, "b", 0, 0),
		event(56, 3, history.Invoke, "b", 0, 0),
		event(77, 4, history.Invoke, "b", 9, 0),
		event(78, 4, history.OK, "b", 9, 1),
		event(90, 9, history.Invoke, "c", 9, 0),
		event(91, 9, history.Fail, "c", 9, 0),
	)
	declared.Fair = true
	requireInWindows(t, checker.Valid, checker.Fairness(), declared,
		event(46, 3, history.Invoke, "b", 0, 0),
		place(event(48, 3, history.OK, "b", 0, 0), 1),
		event(49, 1, history.Invoke, "a", 1, 0),
		place(event(50, 1, history.OK, "a", 1, 0), 9),
		event(56, 3, history.Invoke, "b", 0, 0),
		event(77, 4, history.Invoke, "b", 9, 0),
		place(event(78, 4, history.OK, "b", 9, 0), 2),
		event(90, 9, history.Invoke, "c", 9, 0),
		event(91, 9, history.Fail, "c", 9, 0),
	)
}

// A fault that began before the first lock was asked for goes on.
func TestFaultBeforeTheFirstRequest(t *testing.T) {
	t.Parallel()
	requireInWindows(t, checker.Valid, checker.Progress(0),
		history.Event{Time: 2 * time.Second, Process: history.NoProcess, Type: history.Invoke, Op: history.Inject, Fault: "pause", Target: "n1"},
		history.Event{Time: 3 * time.Second, Process: history.NoProcess, Type: history.OK, Op: history.Inject, Fault: "pause", Target: "n1"},
		history.Event{Time: 25 * time.Second, Process: 1, Type: history.Invoke, Op: history.Acquire, Lock: "k"},
		history.Event{Time: 38 * time.Second, Process: 1, Type: history.OK, Op: history.Acquire, Lock: "k"},
	)
}

// Of two grants that were answered at one instant, neither was before the other.
func TestGrantsAnsweredAtOneInstantHaveNoOrder(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, owner string, queued *int64) history.Event {
		return history.Event{Time: at, Process: process, Type: typ, Op: history.Acquire, Lock: "k", Owner: owner, Queued: queued}
	}
	places := []int64{5, 6}
	a, b := event(3, 1, history.OK, "a", &places[0]), event(3, 2, history.OK, "b", &places[1])
	for _, answers := range [][2]history.Event{{a, b}, {b, a}} {
		requireInWindows(t, checker.Valid, checker.Fairness(),
			history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindMutex, Fair: true},
			event(1, 1, history.Invoke, "a", nil), event(2, 2, history.Invoke, "b", nil), answers[0], answers[1])
	}
}

// A release without a mode belongs to the first acquire of its owner, though that is
// not answered yet and a later one is.
func TestReleaseOfAnAcquireUnderWay(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, op history.Op, mode history.Mode) history.Event {
		return history.Event{Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: "b", Mode: mode, Lease: 100}
	}
	requireInWindows(t, checker.Unknown, checker.Ownership(),
		event(0, 2, history.Invoke, history.Acquire, history.Read),
		event(10, 3, history.Invoke, history.Release, ""),
		event(11, 3, history.OK, history.Release, ""),
		event(17, 3, history.Invoke, history.Acquire, history.Read),
		event(21, 3, history.OK, history.Acquire, history.Read),
		event(22, 3, history.Invoke, history.Release, history.Read),
		event(24, 4, history.OK, history.Lost, history.Read),
	)
}

// A hold that ends with an extend under way, as far as is known, may turn out to have
// lasted until it was refused.
func TestRefusalAfterAnExtendUnderWay(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, op history.Op, owner string, permits int, lease time.Duration) history.Event {
		return history.Event{Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner, Mode: history.Permit, Permits: permits, Lease: lease}
	}
	requireInWindows(t, checker.Invalid, checker.Capacity(),
		history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindSemaphore, Capacity: 3},
		event(0, 1, history.Invoke, history.Acquire, "a", 1, 80),
		event(16, 2, history.Invoke, history.Acquire, "c", 2, 112),
		event(32, 1, history.OK, history.Acquire, "a", 1, 80),
		event(40, 1, history.Invoke, history.Extend, "a", 0, 0),
		event(41, 2, history.OK, history.Acquire, "c", 2, 112),
		event(48, 3, history.Invoke, history.Extend, "a", 0, 88),
		event(48, 4, history.Invoke, history.Acquire, "b", 1, 48),
		event(56, 4, history.OK, history.Acquire, "b", 1, 48),
		event(64, 1, history.Fail, history.Extend, "a", 0, 0),
		event(216, 5, history.Invoke, history.Acquire, "d", 1, 216),
		event(232, 5, history.OK, history.Acquire, "d", 1, 216),
		event(256, 5, history.Invoke, history.Extend, "d", 0, 16),
		event(272, 6, history.Invoke, history.Extend, "d", 0, 88),
		event(312, 6, history.OK, history.Extend, "d", 0, 88),
		event(328, 6, history.Invoke, history.Extend, "d", 0, 184),
		event(336, 5, history.OK, history.Extend, "d", 0, 16),
		event(344, 6, history.OK, history.Extend, "d", 0, 184),
	)
}

// A hold that seems to go on is kept with what its owner did since: a later grant,
// which breaks another property, was given back.
func TestGrantWithinAHold(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, process int, typ history.Type, op history.Op, owner string, lease time.Duration) history.Event {
		return history.Event{Time: at, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner, Lease: lease}
	}
	requireInWindows(t, checker.Valid, checker.Ownership(),
		event(3, 2, history.Invoke, history.Acquire, "b", 0),
		event(4, 2, history.OK, history.Acquire, "b", 0),
		event(6, 2, history.Invoke, history.Acquire, "b", 38),
		event(7, 2, history.OK, history.Acquire, "b", 38),
		event(10, 2, history.Invoke, history.Release, "b", 0),
		event(11, 1, history.Invoke, history.Acquire, "a", 6),
		event(12, 1, history.OK, history.Acquire, "a", 6),
		event(12, 2, history.OK, history.Release, "b", 0),
		event(16, 1, history.Invoke, history.Release, "a", 0),
		event(18, 2, history.Invoke, history.Extend, "b", 12),
		event(19, 1, history.Info, history.Release, "a", 0),
		event(20, 2, history.Fail, history.Extend, "b", 12),
	)
}

// A summary gives each reason why a property could not be decided, unless there are very many.
func TestSummaryGivesAllReasons(t *testing.T) {
	require.Equal(t, "a; b; c", checker.Doubted("a", "b", "a", "c").Summary)
	require.Equal(t, "1; 2; 3; 4; 5; 6; 7; 8 (and 2 reasons more)", checker.Doubted("1", "2", "3", "4", "5", "6", "7", "8", "9", "10").Summary)
}
