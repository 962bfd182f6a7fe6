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
			history.Event{Process: history.Nobody, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindSemaphore, Capacity: 3},
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
