package workload_test

import (
	"bytes"
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

// A distant lock is one whose answers to a release take a while, so that callers
// give up on some that are done.
type distant struct {
	lock.Locker

	anybodys bool // a release ends the grant that there is, whoever has it

	mu     sync.Mutex
	latest map[string]*lock.Hold // by lock
}

const trip = 250 * time.Microsecond // less than callers wait at most

func (d *distant) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := d.Locker.Acquire(ctx, name, o)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest[name] = h
	return lock.NewHold(h.Lease(), distantHold{h, d}), nil
}

type distantHold struct {
	*lock.Hold

	by *distant
}

func (h distantHold) Extend(ctx context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	err := h.Hold.Extend(ctx, d)
	return h.Lease().Expires, err
}

func (h distantHold) Release(ctx context.Context, l lock.Lease) error {
	time.Sleep(trip)
	ends := h.Hold
	if h.by.anybodys {
		h.by.mu.Lock()
		ends = h.by.latest[l.Name]
		h.by.mu.Unlock()
	}
	err := ends.Release(context.WithoutCancel(ctx))
	time.Sleep(trip)
	if ctx.Err() != nil {
		return ctx.Err() // what became of it, the caller does not learn
	}
	return err
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
			d := &distant{Locker: memory.New(), anybodys: tt.anybodys, latest: map[string]*lock.Hold{}}
			h := record(t, workload.Config{Kinds: []string{tt.kind}, Wait: 300 * time.Millisecond}, 6*time.Second, d)
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

// A forgetful service answers the first of some releases with an error.
type forgetful struct {
	lock.Locker

	errors int
}

func (f *forgetful) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := f.Locker.Acquire(ctx, name, o)
	if err != nil {
		return nil, err
	}
	return lock.NewHold(h.Lease(), forgetfulHold{distantHold{h, nil}, f}), nil
}

type forgetfulHold struct {
	distantHold

	by *forgetful
}

func (h forgetfulHold) Release(ctx context.Context, _ lock.Lease) error {
	if h.by.errors > 0 {
		h.by.errors--
		return errors.New("no answer")
	}
	return h.Hold.Release(ctx)
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
			var b bytes.Buffer
			r := history.NewRecorder(&b)
			c := &workload.Client{Name: "a", Locker: &forgetful{memory.New(), tt.errors}, Recorder: r, Processes: &workload.Processes{}}
			require.Equal(t, history.OK, c.Ask(t.Context(), workload.Request{Locks: []string{"l"}, Lease: time.Minute}))
			got := []history.Type{c.Release(t.Context()), c.ReleaseAgain(t.Context()), c.ReleaseAgain(t.Context())}
			require.Equal(t, tt.want, got)
			require.False(t, c.Holding())
			require.Equal(t, history.Fail, c.ExtendReleased(t.Context(), time.Minute), "a handle that was released extends nothing")
			require.NoError(t, r.Close())
			h, err := history.ReadAll(&b)
			require.NoError(t, err)
			var recorded []history.Type
			for _, op := range h.Operations() {
				if op.Invoke.Op == history.Release {
					require.Equal(t, "l", op.Invoke.Lock)
					require.Equal(t, "a#1", op.Invoke.Owner)
					recorded = append(recorded, op.Complete.Type)
				}
			}
			require.Equal(t, tt.want, recorded)
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
	return lock.NewHold(h.Lease(), agreeableHold{distantHold{h, nil}, a.refuses}), nil
}

type agreeableHold struct {
	distantHold

	refuses bool
}

func (h agreeableHold) Release(ctx context.Context, _ lock.Lease) error { return h.Hold.Release(ctx) }

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
		var b bytes.Buffer
		r := history.NewRecorder(&b)
		c := &workload.Client{Name: "a", Locker: agreeable{memory.New(), refuses}, Recorder: r, Processes: &workload.Processes{}}
		require.Equal(t, history.OK, c.Ask(t.Context(), workload.Request{Locks: []string{"l"}, Lease: time.Minute}))
		require.Equal(t, history.OK, c.Release(t.Context()))
		require.Equal(t, history.Fail, c.ReleaseAgain(t.Context()))
		require.NoError(t, r.Close())
		h, err := history.ReadAll(&b)
		require.NoError(t, err)
		last := h.Events[len(h.Events)-1]
		require.Equal(t, history.Release, last.Op)
		require.Equal(t, want, last.What)
	}
}
