package workload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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

// record runs a workload for so long, in virtual time, and reads back what it
// recorded.
func record(t *testing.T, c workload.Config, length time.Duration, locker lock.Locker) *history.History {
	t.Helper()
	var b bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		r := history.NewRecorder(&b)
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		zones := []workload.Zone{{Name: "zone-a", Locker: locker}, {Name: "zone-b", Locker: locker}}
		for _, name := range c.LockNames() {
			r.Record(history.Event{Process: history.NoProcess, Op: history.Declare, Type: history.OK, Lock: name, Kind: history.KindMutex, Reentrant: true})
		}
		workload.Run(ctx, c, zones, r, &workload.Processes{})
		require.NoError(t, r.Close())
	})
	h, err := history.ReadAll(&b)
	require.NoError(t, err)
	return h
}

// clientOf returns a client of a lock, and what ends its record and reads it back.
func clientOf(t *testing.T, locker lock.Locker) (*workload.Client, func() *history.History) {
	t.Helper()
	var b bytes.Buffer
	r := history.NewRecorder(&b)
	return &workload.Client{Name: "a", Locker: locker, Recorder: r, Processes: &workload.Processes{}}, func() *history.History {
		require.NoError(t, r.Close())
		h, err := history.ReadAll(&b)
		require.NoError(t, err)
		return h
	}
}

// A released lock is another one whose holds a function releases.
type released struct {
	lock.Locker

	release func(ctx context.Context, h *lock.Hold) error
}

func (r released) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := r.Locker.Acquire(ctx, name, o)
	if err != nil {
		return nil, err
	}
	return lock.NewHold(h.Lease(), releasedHold{h, r.release}), nil
}

type releasedHold struct {
	*lock.Hold

	release func(ctx context.Context, h *lock.Hold) error
}

func (h releasedHold) Extend(ctx context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	err := h.Hold.Extend(ctx, d)
	return h.Lease().Expires, err
}

func (h releasedHold) Release(ctx context.Context, _ lock.Lease) error { return h.release(ctx, h.Hold) }

// invalid are the properties that a report found violated.
func invalid(r checker.Report) []string {
	var names []string
	for _, result := range r.Results {
		if result.Verdict == checker.Invalid {
			names = append(names, result.Name)
		}
	}
	return names
}

// Clients find what a lock does wrong, and blame a correct one for nothing, nor for what they do themselves. A second release
// that ends another client's grant is right for as long as all release once.
func TestVerdicts_NoRace(t *testing.T) {
	const short = 50 * time.Millisecond
	twice, late := []string{"release-twice"}, []string{"late-release"}
	defaults := []string{workload.Contended, "release-twice", "late-release"} // of a lock of the user's own
	for _, tt := range []struct {
		name   string
		config workload.Config
		locker lock.Locker
		want   []string // the properties that are violated
		met    []string // what a correct lock's run has met
	}{
		{"correct", workload.Config{Lease: short}, memory.New(), nil, []string{history.MetExpiries}},
		{"correct, by default", workload.Config{Kinds: defaults, Locks: 1, Lease: time.Second}, memory.New(), nil, nil},
		{"careless", workload.Config{Lease: short, Careless: true}, memory.New(), []string{"use-within-lease"}, nil},
		{"no lock", workload.Config{}, agreeable{}, []string{"mutual-exclusion", "protected-resource", "linearizability"}, nil},
		{"a lease that never ends", workload.Config{Kinds: defaults, Locks: 1, Lease: time.Second}, keeping{memory.New()}, []string{"progress"}, nil},
		{"released twice", workload.Config{Kinds: twice, Wait: 300 * time.Millisecond}, distant(false), nil, []string{history.MetNotHeld, history.MetUnknown}},
		{"released twice, the bug", workload.Config{Kinds: twice, Wait: 300 * time.Millisecond}, distant(true), []string{"mutual-exclusion"}, nil},
		{"released late", workload.Config{Kinds: late, Wait: 300 * time.Millisecond}, distant(false), nil, []string{history.MetNotHeld}},
		{"released late, the bug", workload.Config{Kinds: late, Wait: 300 * time.Millisecond}, distant(true), []string{"mutual-exclusion"}, nil},
		{"released once, the bug", workload.Config{Wait: 300 * time.Millisecond}, distant(true), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			length := 8 * time.Second
			if slices.Contains(tt.want, "progress") { // which takes longer to be certain
				length = 40 * time.Second
			}
			report := checker.Check(t.Context(), record(t, tt.config, length, tt.locker))
			got := invalid(report)
			require.Subset(t, got, tt.want)
			require.Equal(t, slices.Contains(tt.want, "mutual-exclusion"), slices.Contains(got, "mutual-exclusion"), "%v", got)
			if tt.want == nil {
				require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
			}
			for _, name := range tt.met {
				require.Positive(t, met(t, report)[name], name)
			}
		})
	}
}

// requests are those for a lock.
func requests(h *history.History) []history.Event {
	return slices.DeleteFunc(slices.Clone(h.Events), func(e history.Event) bool { return e.Op != history.Acquire || e.Type != history.Invoke })
}

// An open loop keeps its rate, the same seed makes the same choices, and the first of many skewed locks is asked for most.
func TestChoices(t *testing.T) {
	asked := func(c workload.Config, length time.Duration) (all []string, of map[string]int) {
		of = map[string]int{}
		for _, e := range requests(record(t, c, length, memory.New())) {
			all = append(all, fmt.Sprint(e.Lock, e.Time))
			of[e.Lock]++
		}
		return all, of
	}
	all, _ := asked(workload.Config{Rate: 50, Clients: 20}, 20*time.Second)
	require.InDelta(t, 1000, len(all), 150, "a Poisson process of 1,000 arrivals strays by 32 or so")
	one, _ := asked(workload.Config{Seed: 1, Clients: 1}, 2*time.Second)
	again, _ := asked(workload.Config{Seed: 1, Clients: 1}, 2*time.Second)
	two, _ := asked(workload.Config{Seed: 2, Clients: 1}, 2*time.Second)
	require.Equal(t, one, again)
	require.NotEqual(t, one, two)
	_, of := asked(workload.Config{Kinds: []string{"many-locks-skewed"}, Wait: time.Second}, 8*time.Second)
	require.Greater(t, len(of), 30)
	require.Greater(t, of["lock-1"], 10*of["lock-50"])
}

func TestOnlyADefiniteRefusalIsAFail(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want history.Type
	}{
		{nil, history.OK},
		{fmt.Errorf("acquire: %w", lock.ErrNotAcquired), history.Fail},
		{lock.ErrNotReplicated, history.Fail},
		{context.DeadlineExceeded, history.Info},
		{errors.New("connection reset"), history.Info},
	} {
		require.Equal(t, tt.want, workload.Outcome(tt.err, lock.ErrNotAcquired, lock.ErrNotReplicated), "%v", tt.err)
	}
	for want, err := range map[string]error{"no answer": errors.New("no answer"), "the lock under test returned neither a hold nor an error": nil} {
		processes := map[int]bool{}
		h := record(t, workload.Config{Clients: 1}, time.Second, lock.LockerFunc(func(context.Context, string, lock.Options) (*lock.Hold, error) { return nil, err }))
		for _, e := range answers(h, history.Acquire) {
			require.Equal(t, history.Info, e.Type, "whether it was granted is not known")
			require.Contains(t, e.Error, want)
			require.False(t, processes[e.Process], "after an unknown outcome a client goes on as a new process")
			processes[e.Process] = true
		}
		require.Greater(t, len(processes), 10)
	}
}

func TestRenewalsAreOperationsOfProcessesOfTheirOwn(t *testing.T) {
	c, end := clientOf(t, nil)
	o := workload.NewRenewals(c.Recorder, c.Processes)
	lease := lock.Lease{Name: "l", Owner: "a#1", Request: "r", Length: time.Second, Expires: time.Now().Add(time.Second)}
	for _, err := range []error{nil, lock.ErrNotHeld, errors.New("no answer")} {
		o.Observe(lock.Event{Kind: lock.Renewing, Lease: lease})
		o.Observe(lock.Event{Kind: lock.Renewed, Lease: lease, Err: err})
	}
	o.Observe(lock.Event{Kind: lock.Acquired, Lease: lease})
	h := end()
	require.Len(t, h.Events, 6)
	for i, want := range []history.Type{history.OK, history.Fail, history.Info} {
		e := answers(h, history.Extend)[i]
		require.Equal(t, "a#1", e.Owner)
		require.Equal(t, want, e.Type)
		require.Equal(t, i, e.Process)
		require.Equal(t, want == history.OK, e.Expires > 0)
	}
}

// A slow service is granted the first of several locks and renews it, before it is
// granted or refused the others.
type slow struct {
	lock.Locker

	renewed func(owner string)
	err     error
}

func (s *slow) Ask(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
	s.renewed(o.Owner)
	if s.err != nil {
		return nil, s.err
	}
	return s.Acquire(ctx, r.Locks[0], o)
}

// What renews a part of a request before all of it is granted is no extend of a
// hold that anybody has; what renews it after that is.
func TestRenewalsOfPartsBeforeTheGrantAreNotRecorded(t *testing.T) {
	for name, refused := range map[string]error{"granted": nil, "refused": lock.ErrNotAcquired, "unknown": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			service := &slow{Locker: memory.New(), err: refused}
			c, end := clientOf(t, service)
			o := workload.NewRenewals(c.Recorder, c.Processes)
			service.renewed = func(owner string) {
				l := lock.Lease{Name: "one", Owner: owner, Request: "r", Length: time.Hour, Expires: time.Now().Add(time.Hour)}
				o.Observe(lock.Event{Kind: lock.Renewing, Lease: l})
				o.Observe(lock.Event{Kind: lock.Renewed, Lease: l})
				l.Name, l.Request, l.Expires = "two", "s", time.Now().Add(30*time.Minute)
				o.Observe(lock.Event{Kind: lock.Acquired, Lease: l})
				o.Observe(lock.Event{Kind: lock.Renewing, Lease: l}) // it is answered later
			}
			outcome := c.Ask(t.Context(), workload.Request{Locks: []string{"one", "two"}, Lease: time.Minute})
			require.Equal(t, refused == nil, outcome == history.OK)
			if refused == nil {
				service.renewed(c.Owner())
			}
			o.Observe(lock.Event{Kind: lock.Renewed, Lease: lock.Lease{Name: "two", Owner: c.Owner(), Request: "s", Length: time.Hour, Expires: time.Now().Add(time.Hour)}})
			h := end()
			if refused != nil {
				require.Empty(t, outcomes(h, history.Extend), "%v", h.Events)
				return
			}
			require.Len(t, outcomes(h, history.Extend), 2, "%v", h.Events)
			grants := answers(h, history.Acquire)
			require.Greater(t, grants[0].Expires, 59*time.Minute, "it was renewed")
			require.InDelta(t, 30*time.Minute, grants[1].Expires, float64(5*time.Minute), "its own end, not the first of the two")
		})
	}
}

// A keeping service keeps a grant until its release, whatever its lease.
type keeping struct{ lock.Locker }

func (k keeping) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	lease := o.Lease
	o.Lease = 24 * time.Hour
	h, err := k.Locker.Acquire(ctx, name, o)
	if err != nil {
		return nil, err
	}
	l := h.Lease()
	l.Expires = l.Expires.Add(lease - o.Lease)
	return lock.NewHold(l, releasedHold{h, func(ctx context.Context, h *lock.Hold) error { return h.Release(ctx) }}), nil
}

// A mortal lock has a process of its own, which ends.
type mortal struct {
	lock.Locker

	gone  chan struct{}
	lived time.Time
}

func (m mortal) Gone() <-chan struct{} { return m.gone }

func (m mortal) Lived() time.Time { return m.lived }

// Each client of a lock whose process ends has crashed then: nothing is done for it any more, and the others go on.
func TestClientsCrashWithTheProcessOfTheirLock(t *testing.T) {
	const end = 2 * time.Second
	var b bytes.Buffer
	c := workload.Config{Clients: 4, Lease: 50 * time.Millisecond, Careless: true}
	synctest.Test(t, func(t *testing.T) {
		r := history.NewRecorder(&b)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		l := memory.New()
		dies := mortal{l, make(chan struct{}), r.Start().Add(end / 2)}
		time.AfterFunc(end, func() { close(dies.gone) })
		workload.Run(ctx, c, []workload.Zone{{Name: "zone-a", Locker: dies}, {Name: "zone-b", Locker: l}}, r, &workload.Processes{})
		require.NoError(t, r.Close())
	})
	h, err := history.ReadAll(&b)
	require.NoError(t, err)
	crashed := map[int]bool{}
	after := map[string]int{}
	for i := range h.Events {
		e := &h.Events[i]
		if e.Op == history.Crash {
			require.GreaterOrEqual(t, e.Time, end)
			require.Less(t, e.Time, end+time.Millisecond, "at once")
			require.Equal(t, end/2, e.From, "when its process lived last")
			crashed[e.Process] = true
			continue
		}
		if e.Time > end+time.Millisecond && e.Type != history.Invoke {
			after[e.Owner[:len("zone-a")]]++
		}
		if crashed[e.Process] {
			require.False(t, e.Op == history.Access && e.Type == history.OK, "line %d: an access of a process that has crashed", i+1)
			require.NotEqual(t, history.Invoke, e.Type, "line %d: a request of a process that has crashed", i+1)
		}
	}
	require.Len(t, crashed, 2, "both clients of the zone")
	require.Positive(t, after["zone-b"], "the clients of the other zone go on")
	require.LessOrEqual(t, after["zone-a"], 2, "what was under way ends, and nothing begins")
}
