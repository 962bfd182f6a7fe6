package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// What gets faster is let go on until an interval differs by less than a tenth from the one before, and no longer than the limit.
func TestSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		perSecond func(second int) int64
		want      time.Duration
	}{
		"steady":       {func(int) int64 { return 100 }, 2 * time.Second},
		"faster until": {func(second int) int64 { return 100 << min(second, 5) }, 7 * time.Second},
		"never":        {func(second int) int64 { return 100 << (second % 2) }, settleLimit},
		"nothing":      {func(int) int64 { return 0 }, settleLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, begun := &driver{}, time.Now()
				ctx, end := context.WithCancel(t.Context())
				var worker sync.WaitGroup
				worker.Go(func() {
					time.Sleep(settleInterval / 2)
					for second := 0; ctx.Err() == nil; second++ {
						d.served.Add(tt.perSecond(second))
						time.Sleep(settleInterval)
					}
				})
				require.NoError(t, d.settle(ctx))
				require.Equal(t, tt.want, time.Since(begun))
				end()
				worker.Wait()
			})
		})
	}
}

// Who left a lock learns that the next one was granted it, also if that one has
// left it by then.
func TestTheNextOneIsNotMissed(t *testing.T) {
	x, now := newExclusion(), time.Now()
	x.enter(0, now, now)
	x.leave(0, now)
	first := x.next()
	select {
	case <-first:
		t.Fatal("no worker was granted the lock")
	default:
	}
	x.enter(1, now, now)
	x.leave(1, now)
	second := x.next()
	<-first
	x.enter(0, now, now)
	<-second
}

// Both clients of a hand-over take turns, also if a release returns only when the
// next one has left the lock again.
func TestClientsTakeTurns(t *testing.T) {
	workloads, err := WorkloadsByName("handover")
	require.NoError(t, err)
	w := workloads[0]
	w.Hold = 0
	var order []int
	free := make(chan struct{}, 1)
	free <- struct{}{}
	left := make(chan struct{}) // by both: a release meets that of the other one
	client := func(i int) Acquire {
		return func(ctx context.Context, _ string) (func(context.Context) error, error) {
			select {
			case <-free:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			order = append(order, i)
			return func(context.Context) error {
				free <- struct{}{}
				give, take := left, (chan struct{})(nil)
				if i == 0 {
					give, take = nil, left
				}
				select {
				case give <- struct{}{}:
				case <-take:
				case <-ctx.Done(): // the other one has had its last turn
				}
				return nil
			}, nil
		}
	}
	d := newDriver(w, []Acquire{client(0), client(1)}, "turns")
	d.limit = 40
	d.work(t.Context(), 1)
	require.NotEmpty(t, order)
	for i := 1; i < len(order); i++ {
		require.NotEqual(t, order[i-1], order[i], "%v", order)
	}
}

// A release that fails is no operation that was done, however fast it fails.
func TestFailedReleasesAreNoCycles(t *testing.T) {
	t.Parallel()
	workloads, err := WorkloadsByName("uncontended-1")
	require.NoError(t, err)
	n := 0
	d := newDriver(workloads[0], []Acquire{func(context.Context, string) (func(context.Context) error, error) {
		return func(context.Context) error {
			if n++; n%4 == 0 {
				return nil
			}
			return errors.New("no connection")
		}, nil
	}}, "failing")
	d.limit = 40
	d.phase.Store(measuring)
	d.work(t.Context(), 1)
	s := d.slice(cost{}, 1)
	require.EqualValues(t, 10, s.Cycles)
	require.EqualValues(t, 10, s.release.TotalCount())
	require.EqualValues(t, 40, s.acquire.TotalCount())
	require.Equal(t, map[string]int64{"release: no connection": 30}, s.errors)
}

// A turn is long enough for hand-overs, however far away the server is.
func TestHandOversFitInATurn(t *testing.T) {
	p := Plan{Rounds: 3, Length: 200 * time.Millisecond, WarmUp: 100 * time.Millisecond}
	workloads, err := WorkloadsByName("uncontended-1", "handover-20ms")
	require.NoError(t, err)
	warmUp, length := p.times(workloads[0])
	require.Equal(t, p.WarmUp, warmUp)
	require.Equal(t, p.Length, length)
	far := workloads[1]
	require.GreaterOrEqual(t, far.Hold, 3*far.Delay)
	warmUp, length = p.times(far)
	require.GreaterOrEqual(t, warmUp, 2*(far.Hold+2*far.Delay))
	require.GreaterOrEqual(t, length, 8*(far.Hold+2*far.Delay))
	p.Workloads = workloads[1:]
	require.Equal(t, time.Duration(p.Rounds)*(warmUp+length+between)*3, p.Estimate(), "of three baselines")
}

// What the baseline costs is known, and counted to the request.
func TestCostOfTheBaseline(t *testing.T) {
	NeedsRedis(t)
	at := places{backend: process.Backend{}, open: map[string]topologies.Deployment{}}
	t.Cleanup(func() { require.NoError(t, at.close()) })
	d, err := at.at(t.Context(), topologies.Single, topologies.Options{})
	require.NoError(t, err)
	workloads, err := WorkloadsByName("uncontended-1")
	require.NoError(t, err)
	g, err := prepare(t.Context(), d, workloads[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.heal(context.Background())) })
	baseline := Baselines()[0]
	require.Equal(t, BaselineSetNX, baseline.Name)
	instances, closeAll, err := baseline.open(t.Context(), g, workloads[0])
	require.NoError(t, err)
	defer closeAll()
	cycles := func(n int64) Slice {
		d := newDriver(workloads[0], instances, fmt.Sprintf("cost-of-%d", n))
		d.limit = n
		d.phase.Store(measuring)
		before, err := spent(t.Context(), g.live)
		require.NoError(t, err)
		d.work(t.Context(), 1)
		after, err := spent(t.Context(), g.live)
		require.NoError(t, err)
		return d.slice(after.minus(before), 1)
	}
	cycles(1) // so that the connection is open and the script is known
	s := cycles(100)
	require.EqualValues(t, 100, s.Cycles)
	require.InDelta(t, 2.01, s.Requests, 1e-9, "one to acquire, and one to release; and one that asks what it cost")
	require.InDelta(t, 4, s.Commands, 1e-9, "SET, EVALSHA, and GET and DEL in it")
}
