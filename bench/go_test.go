package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/adapters/redislock"
	"github.com/lockchaos/lockchaos/adapters/redsync"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// benchmarked are the locks of the benchmarks for benchstat: ours, and two others
// by the same Redis client.
func benchmarked() []System {
	opens := map[string]func([]redis.UniversalClient) (lock.Locker, func(), error){
		"ours": func(servers []redis.UniversalClient) (lock.Locker, func(), error) {
			if len(servers) > 1 {
				r, err := lock.NewRedlock(servers, lock.RedlockConfig{})
				return r, r.Close, err
			}
			c, err := lock.New(servers[0], lock.Config{})
			return c, c.Close, err
		},
		"redislock": func(servers []redis.UniversalClient) (lock.Locker, func(), error) {
			return redislock.New(servers[0], nil), func() {}, nil
		},
		"redsync": func(servers []redis.UniversalClient) (lock.Locker, func(), error) {
			return redsync.New(servers, redsync.Config{}), func() {}, nil
		},
	}
	var systems []System
	for _, name := range []string{"ours", "redislock", "redsync"} {
		systems = append(systems, System{
			Name: name,
			Unfit: func(w Workload) string {
				return only(name != "redislock" || w.Servers == 0, "lives on one deployment")
			},
			Open: func(_ context.Context, servers []redis.UniversalClient) (Acquire, func(), error) {
				l, closeLocker, err := opens[name](servers)
				if err != nil {
					return nil, nil, err
				}
				return Locker(l), closeLocker, nil
			},
		})
	}
	return systems
}

// BenchmarkWorkload is an acquire and a release by the driver of the command, for
// benchstat:
//
//	go test -run '^$' -bench Workload -count 10 ./bench | tee new.txt; benchstat -col /lock new.txt
//
// p50-us and p99-us are those of the workload's metric: of a hand-over where
// workers wait, else of a cycle.
func BenchmarkWorkload(b *testing.B) {
	NeedsRedis(b)
	workloads, err := WorkloadsByName("uncontended-1", "uncontended-16", "contended-16", "contended-64x4", "handover", "redlock-3")
	if err != nil {
		b.Fatal(err)
	}
	at := places{backend: process.Backend{}, open: map[string]topologies.Deployment{}}
	b.Cleanup(func() {
		if err := at.close(); err != nil {
			b.Error(err)
		}
	})
	for _, w := range workloads {
		topology, o := topologies.Single, topologies.Options{}
		if w.Servers > 0 {
			topology, o = topologies.Independent, topologies.Options{Nodes: w.Servers}
		}
		d, err := at.at(b.Context(), topology, o)
		if err != nil {
			b.Fatal(err)
		}
		g, err := prepare(b.Context(), d, w)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := g.heal(context.Background()); err != nil {
				b.Error(err)
			}
		})
		for _, s := range append(Baselines(), benchmarked()...) {
			if s.unfit(w) == "" {
				b.Run("workload="+w.Name+"/lock="+s.Name, func(b *testing.B) { benchmarkSystem(b, g, w, s) })
			}
		}
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
	require.Equal(t, time.Duration(p.Rounds)*(warmUp+length+between)*4, p.Estimate(), "of four baselines")
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

func benchmarkSystem(b *testing.B, g *testServers, w Workload, s System) {
	b.Helper()
	if err := g.sweep(b.Context()); err != nil {
		b.Fatal(err)
	}
	instances, closeAll, err := s.open(b.Context(), g, w)
	if err != nil {
		b.Fatal(err)
	}
	defer closeAll()
	run := func(n int, name string) (*driver, cost) {
		d := newDriver(w, instances, name)
		d.limit = int64(n)
		d.phase.Store(measuring)
		before, err := spent(b.Context(), g.live)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		d.work(ctx, 1)
		after, err := spent(b.Context(), g.live)
		if err != nil {
			b.Fatal(err)
		}
		return d, after.minus(before)
	}
	run(w.Workers, "warm-up") // so that connections are open and the scripts are known
	b.ResetTimer()
	d, used := run(b.N, "bench-"+strconv.Itoa(b.N))
	b.StopTimer()
	r := d.slice(used, b.Elapsed().Seconds())
	if r.violations > 0 || r.lost > 0 || len(r.errors) > 0 {
		b.Fatalf("%d violations, %d lost, errors %v", r.violations, r.lost, r.errors)
	}
	l := latencyOf(r.cycle)
	if w.Contended() {
		l = latencyOf(r.handed)
	}
	b.ReportMetric(l.P50, "p50-us")
	b.ReportMetric(l.P99, "p99-us")
	b.ReportMetric(r.Requests, "requests/op")
	b.ReportMetric(r.ServerMicros, "server-us/op")
}
