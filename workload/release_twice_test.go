package workload_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// distant is a lock whose answers to a release take a while, so that callers give up on some that are done. With the bug, a
// release ends the grant that there is, whoever has it.
func distant(bug bool) lock.Locker {
	const trip = 250 * time.Microsecond // less than callers wait at most
	locks := &latest{Locker: memory.New()}
	return released{locks, func(ctx context.Context, h *lock.Hold) error {
		time.Sleep(trip)
		if grant, ok := locks.holds.Load(h.Lease().Name); ok && bug {
			h, _ = grant.(*lock.Hold)
		}
		err := h.Release(context.WithoutCancel(ctx))
		time.Sleep(trip)
		if ctx.Err() != nil {
			return ctx.Err() // what became of it, the caller does not learn
		}
		return err
	}}
}

// latest knows the latest grant of each lock.
type latest struct {
	lock.Locker

	holds sync.Map
}

func (l *latest) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := l.Locker.Acquire(ctx, name, o)
	if err == nil {
		l.holds.Store(name, h)
	}
	return h, err
}

// A lock whose second release takes away another's grant is right for as long as
// everybody releases once.
func TestASecondReleaseThatEndsAnothersGrantIsFound(t *testing.T) {
	for _, tt := range []struct {
		name, kind string
		anybodys   bool
		want       checker.Verdict
	}{
		{"the correct lock", "release-twice", false, checker.Valid},
		{"the bug", "release-twice", true, checker.Invalid},
		{"the correct lock, released late", "late-release", false, checker.Valid},
		{"the bug, released late", "late-release", true, checker.Invalid},
		{"the bug, released once and in time", workload.Contended, true, checker.Valid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := record(t, workload.Config{Kinds: []string{tt.kind}, Wait: 300 * time.Millisecond}, 6*time.Second, distant(tt.anybodys))
			report := checker.Check(t.Context(), h)
			require.Equal(t, tt.want, report.Verdict, "%+v", report)
			found := met(t, report)
			if !tt.anybodys || tt.kind == "release-twice" { // else the bug confirms what it ought to refuse
				require.Equal(t, tt.kind != workload.Contended, found[history.MetNotHeld] > 0, "%v", found)
			}
			require.Equal(t, tt.kind == "release-twice", found[history.MetUnknown] > 0, "%v", found)
			for _, r := range report.Results {
				if r.Name == "mutual-exclusion" && tt.want == checker.Invalid {
					require.Equal(t, checker.DoubleGrant, r.Violations[0].Kind)
				}
			}
		})
	}
}

func TestASecondReleaseIsRecordedForWhatItShows(t *testing.T) {
	for name, tt := range map[string]struct {
		errors int
		want   []history.Type // releases, the first first
	}{
		"confirmed, and refused":                                {0, []history.Type{history.OK, history.Fail, history.Fail}},
		"confirmed when the first may have been done":           {1, []history.Type{history.Info, history.Info, history.Fail}},
		"confirmed when the first or second may have been":      {2, []history.Type{history.Info, history.Info, history.Info}},
		"unknown to the end, so that it may be held until then": {3, []history.Type{history.Info, history.Info, history.Info}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := tt.errors // of the service, before it does anything
			c, end := clientOf(t, released{memory.New(), func(ctx context.Context, h *lock.Hold) error {
				if errs--; errs >= 0 {
					return errors.New("no answer")
				}
				return h.Release(ctx)
			}})
			require.Equal(t, history.OK, c.Ask(t.Context(), workload.Request{Locks: []string{"l"}, Lease: time.Minute}))
			got := []history.Type{c.Release(t.Context()), c.ReleaseAgain(t.Context()), c.ReleaseAgain(t.Context())}
			require.Equal(t, tt.want, got)
			require.False(t, c.Holding())
			require.Equal(t, history.Fail, c.ExtendReleased(t.Context(), time.Minute), "a handle that was released extends nothing")
			h := end()
			for _, op := range h.Operations() {
				require.Equal(t, "l", op.Invoke.Lock)
				require.Equal(t, "a#1", op.Invoke.Owner)
			}
			require.Equal(t, tt.want, outcomes(h, history.Release))
			report := checker.Check(t.Context(), h, checker.Ownership(), checker.MutualExclusion(), checker.Linearizability())
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
		})
	}
}

// An agreeable service confirms each release of a hold, unless it refuses.
type agreeable struct {
	lock.Locker

	refuses bool
}

func (a agreeable) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := a.Locker.Acquire(ctx, name, o)
	if err != nil {
		return nil, err
	}
	return lock.NewHold(h.Lease(), agreeableHold{releasedHold{h, func(ctx context.Context, h *lock.Hold) error { return h.Release(ctx) }}, a.refuses}), nil
}

type agreeableHold struct {
	releasedHold

	refuses bool
}

func (h agreeableHold) ReleaseLate(context.Context, lock.Lease) error {
	if h.refuses {
		return lock.ErrNotHeld
	}
	return nil
}

func (agreeableHold) ExtendLate(context.Context, lock.Lease, time.Duration) error {
	return lock.ErrNotHeld
}

// A second release that the service confirms again is a refusal that says so, and no other is.
func TestAReleaseThatIsConfirmedAgainIsMarked(t *testing.T) {
	t.Parallel()
	for refuses, want := range map[bool]string{false: history.ConfirmedAgain, true: ""} {
		c, end := clientOf(t, agreeable{memory.New(), refuses})
		require.Equal(t, history.OK, c.Ask(t.Context(), workload.Request{Locks: []string{"l"}, Lease: time.Minute}))
		require.Equal(t, history.OK, c.Release(t.Context()))
		require.Equal(t, history.Fail, c.ReleaseAgain(t.Context()))
		h := end()
		last := h.Events[len(h.Events)-1]
		require.Equal(t, history.Release, last.Op)
		require.Equal(t, want, last.What)
	}
}
