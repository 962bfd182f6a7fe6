package workload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

func TestASecondReleaseIsRecordedForWhatItShows(t *testing.T) {
	for name, tt := range map[string]struct {
		errors int
		want   []history.Type // releases, the first first
		late   time.Duration  // for how long a release of a hold without a lease is on its way, which is over by then
	}{
		"confirmed, and refused":                                {0, []history.Type{history.OK, history.Fail, history.Fail}, 0},
		"confirmed when the first may have been done":           {1, []history.Type{history.Info, history.Info, history.Fail}, 0},
		"confirmed when the first or second may have been":      {2, []history.Type{history.Info, history.Info, history.Info}, 0},
		"unknown to the end, so that it may be held until then": {3, []history.Type{history.Info, history.Info, history.Info}, 0},
		"over while it was on its way":                          {1, []history.Type{history.Info, history.Fail, history.Fail}, 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			errs := tt.errors // of the service, before it does anything
			c, end := clientOf(t, released{memory.New(), func(ctx context.Context, h *lock.Hold) error {
				switch errs--; {
				case errs >= 0 && tt.late > 0:
					time.Sleep(tt.late)
					return lock.ErrNotHeld
				case errs >= 0:
					return errors.New("no answer")
				}
				return h.Release(ctx)
			}})
			lease := time.Minute
			if tt.late > 0 {
				lease = 0
			}
			require.Equal(t, history.OK, c.Ask(t.Context(), workload.Request{Locks: []string{"l"}, Lease: lease}))
			got := []history.Type{c.Release(t.Context()), c.ReleaseAgain(t.Context()), c.ReleaseAgain(t.Context())}
			require.Equal(t, tt.want, got)
			require.False(t, c.Holding())
			require.Equal(t, history.Fail, c.ExtendReleased(t.Context(), time.Minute), "a handle that was released extends nothing")
			h := end()
			for _, e := range h.Events {
				require.Equal(t, history.Owner{Lock: "l", Name: "a#1"}, history.Owner{Lock: e.Lock, Name: e.Owner})
			}
			require.Equal(t, tt.want, outcomes(h, history.Release))
			report := checker.Check(t.Context(), h, checker.Ownership(), checker.MutualExclusion(), checker.Linearizability())
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
		})
	}
}

// An agreeable service is no lock at all: it grants every request, and confirms each release, unless it refuses that of
// what is over.
type agreeable struct{ refuses bool }

func (a agreeable) Acquire(_ context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return lock.NewHold(lock.Lease{Name: name, Owner: o.Owner, Holds: 1, Expires: time.Now().Add(time.Minute)}, a), nil
}

func (agreeable) Extend(context.Context, lock.Lease, time.Duration) (time.Time, error) {
	return time.Now().Add(time.Minute), nil
}

func (agreeable) Release(context.Context, lock.Lease) error { return nil }

func (agreeable) ExtendLate(context.Context, lock.Lease, time.Duration) error { return lock.ErrNotHeld }

func (a agreeable) ReleaseLate(context.Context, lock.Lease) error {
	if a.refuses {
		return lock.ErrNotHeld
	}
	return nil
}

// A second release that the service confirms again is a refusal that says so, and no other is.
func TestAReleaseThatIsConfirmedAgainIsMarked(t *testing.T) {
	t.Parallel()
	for refuses, want := range map[bool]string{false: history.ConfirmedAgain, true: ""} {
		c, end := clientOf(t, agreeable{refuses})
		require.Equal(t, history.OK, c.Ask(t.Context(), workload.Request{Locks: []string{"l"}, Lease: time.Minute}))
		require.Equal(t, history.OK, c.Release(t.Context()))
		require.Equal(t, history.Fail, c.ReleaseAgain(t.Context()))
		h := end()
		last := h.Events[len(h.Events)-1]
		require.Equal(t, history.Release, last.Op)
		require.Equal(t, want, last.What)
	}
}

// Clients that hold for longer than their lease lose it, and a correct lock is not
// blamed for that.
func TestLongHoldsBlameNoCorrectLock_NoRace(t *testing.T) {
	for _, k := range workload.Kinds() {
		if k.Needs.Readers || k.Needs.Permits || k.Needs.Queue {
			continue // the lock in memory can't have these
		}
		t.Run(k.Name, func(t *testing.T) {
			runs := uint64(2)
			if os.Getenv("LOCKCHAOS_TEST_NIGHTLY") == "1" {
				runs = 20
			}
			for seed := range runs {
				c := workload.Config{
					Kinds: []string{k.Name}, Seed: seed, Clients: 4, Locks: 2,
					Lease: time.Second, Hold: 150 * time.Millisecond, Wait: 300 * time.Millisecond,
				}
				length := time.Minute
				if k.Name == "bursts" { // of which there are many more
					length /= 6
				}
				h := record(t, c, length, memory.New())
				report := checker.Check(t.Context(), h)
				require.Equal(t, checker.Valid, report.Verdict, "seed %d: %+v", seed, report)
				if k.Name != "bursts" && k.Name != "release-twice" && k.Name != "watchdog" { // which have no holds beyond a lease
					require.Positive(t, met(t, report)[history.MetExpiries], "seed %d", seed)
				}
			}
		})
	}
}

// reentries is a client with three grants of one owner, the second of which ends
// first, and the third last.
func reentries(t *testing.T, careless bool, then func(c *workload.Client)) (h *history.History) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		locker := memory.New()
		c, end := clientOf(t, locker)
		c.Careless = careless
		c.Recorder.Record(history.Event{Process: history.NoProcess, Op: history.Declare, Type: history.OK, Lock: "l", Kind: history.KindMutex, Reentrant: true})
		for i, lease := range []time.Duration{2 * time.Second, time.Second, 3 * time.Second} {
			ask := workload.Request{Locks: []string{"l"}, Lease: lease, Again: i > 0}
			require.Equal(t, history.OK, c.Ask(t.Context(), ask))
		}
		// Another client, whose requests make contention.
		other := &workload.Client{Name: "b", Locker: locker, Recorder: c.Recorder, Processes: c.Processes}
		require.Equal(t, history.Fail, other.Acquire(t.Context(), "l", time.Second, 0))
		then(c)
		h = end()
	})
	return h
}

// answers are the events of a kind with which an operation ended.
func answers(h *history.History, op history.Op) []history.Event {
	return slices.DeleteFunc(slices.Clone(h.Events), func(e history.Event) bool { return e.Op != op || e.Type == history.Invoke })
}

// outcomes are those of the operations of a kind.
func outcomes(h *history.History, op history.Op) []history.Type {
	var all []history.Type
	for _, e := range answers(h, op) {
		all = append(all, e.Type)
	}
	return all
}

// A refusal for one of several grants of an owner says nothing of the others.
func TestOnlyTheRefusalForTheLastGrantOfAnOwnerSaysThatItDoesNotHold(t *testing.T) {
	for _, tt := range []struct {
		after    time.Duration // of the grants
		releases []history.Type
		extend   history.Type // of the last of them, before
	}{
		{500 * time.Millisecond, []history.Type{history.OK, history.OK, history.OK}, history.OK},
		{1500 * time.Millisecond, []history.Type{history.OK, history.Info, history.OK}, history.OK},
		{2500 * time.Millisecond, []history.Type{history.Info, history.Info, history.OK}, history.OK},
		{3500 * time.Millisecond, []history.Type{history.Info, history.Info, history.Fail}, history.Info},
	} {
		t.Run(fmt.Sprint(tt.after), func(t *testing.T) {
			h := reentries(t, false, func(c *workload.Client) {
				time.Sleep(tt.after)
				require.Equal(t, tt.extend, c.Extend(t.Context(), time.Minute))
				for _, want := range tt.releases {
					require.Equal(t, want, c.ReleaseFirst(context.Background()))
				}
			})
			require.Equal(t, tt.releases, outcomes(h, history.Release))
			report := checker.Check(t.Context(), h)
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
		})
	}
}

// Once one of its grants is over, a careful client uses nothing under the others:
// the record claims, of all of them, the first end.
func TestAClientThatLostOneOfItsGrantsUsesNothingUnderTheOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		careless bool
		want     checker.Verdict
	}{
		"careful":  {false, checker.Valid},
		"careless": {true, checker.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			h := reentries(t, tt.careless, func(c *workload.Client) {
				time.Sleep(1500 * time.Millisecond)
				var register workload.Register
				use := func() (used bool) {
					return c.Read(t.Context(), "l", &register) == nil && c.Write(t.Context(), "l", &register) == history.OK
				}
				require.Equal(t, tt.careless, use(), "the second grant is over")
				for range 2 { // the first, and the one that is over
					c.ReleaseFirst(t.Context())
				}
				require.Equal(t, tt.careless, use(), "only the third is left, which goes on")
				require.Equal(t, history.OK, c.Release(t.Context()))
			})
			report := checker.Check(t.Context(), h)
			require.Equal(t, tt.want, report.Verdict, "%+v", report)
		})
	}
}

// The first end that was claimed counts, also when the grant that has it was
// released in time: until the next grant, the record says nothing else.
func TestAClientBelievesNoLongerThanItsRecordClaims(t *testing.T) {
	h := reentries(t, false, func(c *workload.Client) {
		require.Equal(t, history.OK, c.ReleaseFirst(t.Context())) // of 2 s
		require.Equal(t, history.OK, c.ReleaseFirst(t.Context())) // of 1 s, which is the claim
		time.Sleep(1500 * time.Millisecond)
		var register workload.Register
		require.Error(t, c.Read(t.Context(), "l", &register), "the third grant lasts for 3 s, and the claim is over")
		require.Equal(t, history.OK, c.Ask(t.Context(), workload.Request{Locks: []string{"l"}, Lease: 3 * time.Second, Again: true}))
		require.NoError(t, c.Read(t.Context(), "l", &register), "the new claim is the end of the third grant")
		require.Equal(t, history.OK, c.Write(t.Context(), "l", &register))
	})
	report := checker.Check(t.Context(), h, checker.UseWithinLease(), checker.Ownership(), checker.MutualExclusion(), checker.Linearizability())
	require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
	grants := answers(h, history.Acquire)
	require.Equal(t, grants[1].Expires, grants[2].Expires, "the first end, after the third grant")
	require.Equal(t, grants[0].Owner, grants[1].Owner)
	require.Equal(t, 2, grants[1].Holds)
}
