package locktests

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// trips counts what a client sends: each write is a round trip, however many
// commands are in it.
type trips struct{ n atomic.Int64 }

func (r *trips) use(o *redis.Options) {
	network, addr := o.Network, o.Addr
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return countedConn{conn, &r.n}, err
	}
}

type countedConn struct {
	net.Conn

	writes *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// benchClient is a client whose round trips are counted, on a server of its own.
func benchClient(b *testing.B, c lock.Config) (*lock.Client, *trips, *redis.Client) {
	b.Helper()
	s := redistest.Start(b)
	r := &trips{}
	client, err := lock.New(s.Client(b, r.use), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	return client, r, s.Client(b, nil)
}

// serverCommands is how many commands the server ran, those of scripts included.
func serverCommands(b *testing.B, rdb *redis.Client) int64 {
	b.Helper()
	stats, err := rdb.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum int64
	for line := range strings.SplitSeq(stats, "\r\n") {
		if _, rest, ok := strings.Cut(line, ":calls="); ok && !strings.HasPrefix(line, "cmdstat_info") {
			calls, _, _ := strings.Cut(rest, ",")
			n, _ := strconv.ParseInt(calls, 10, 64)
			sum += n
		}
	}
	return sum
}

// BenchmarkUncontended is an acquire and a release of a lock that no other client
// wants: two round trips.
func BenchmarkUncontended(b *testing.B) {
	for _, lease := range []time.Duration{time.Minute, 0} {
		name := "lease"
		if lease == 0 {
			name = "watchdog"
		}
		b.Run(name, func(b *testing.B) {
			c, r, rdb := benchClient(b, lock.Config{})
			cycle := func() {
				h, err := c.Acquire(b.Context(), "orders", lock.Options{Lease: lease})
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			cycle() // so that the server knows the scripts
			trips, commands := r.n.Load(), serverCommands(b, rdb)
			for b.Loop() {
				cycle()
			}
			b.ReportMetric(float64(r.n.Load()-trips)/float64(b.N), "trips/op")
			b.ReportMetric(float64(serverCommands(b, rdb)-commands)/float64(b.N), "commands/op")
		})
	}
}

// BenchmarkHandover passes a lock around among waiters of one client.
func BenchmarkHandover(b *testing.B) {
	for _, waiters := range []int{2, 16, 100} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			c, r, rdb := benchClient(b, lock.Config{})
			var turns atomic.Int64
			turns.Store(int64(b.N))
			trips, most := r.n.Load(), atomic.Int64{}
			b.ResetTimer()
			var all sync.WaitGroup
			for range waiters {
				all.Go(func() {
					for turns.Add(-1) >= 0 {
						h, err := c.Mutex("orders").Acquire(b.Context(), within(lock.Forever, lock.Options{Lease: time.Minute}))
						if err != nil {
							b.Error(err)
							return
						}
						if n, err := rdb.PubSubNumSub(b.Context(), "lock:{orders}:released").Result(); err == nil {
							for _, subscribed := range n {
								most.Store(max(most.Load(), subscribed))
							}
						}
						if err := h.Release(b.Context()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(r.n.Load()-trips)/float64(b.N), "trips/op")
			b.ReportMetric(float64(most.Load()), "subscriptions")
		})
	}
}

// BenchmarkRenewals holds 10,000 locks with one client's watchdog. An operation
// is a period in which each of them is renewed once.
func BenchmarkRenewals(b *testing.B) {
	const locks, watchdog = 10_000, 6 * time.Second
	c, r, rdb := benchClient(b, lock.Config{Watchdog: watchdog})
	before := heap()
	holds := make([]*lock.Hold, locks)
	for i := range holds {
		var err error
		if holds[i], err = c.Acquire(b.Context(), strconv.Itoa(i), lock.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	grown := heap() - before
	trips, commands, cpu := r.n.Load(), serverCommands(b, rdb), processorTime(b)
	begin := time.Now()
	for b.Loop() {
		time.Sleep(watchdog / 3)
	}
	seconds := time.Since(begin).Seconds()
	b.ReportMetric(float64(grown)/locks, "B/lock")
	b.ReportMetric(float64(r.n.Load()-trips)/seconds, "trips/s")
	b.ReportMetric(float64(serverCommands(b, rdb)-commands)/seconds, "commands/s")
	b.ReportMetric(100*(processorTime(b)-cpu).Seconds()/seconds, "%cpu")
	b.ReportMetric(seconds*locks/(watchdog/3).Seconds()/float64(max(r.n.Load()-trips, 1)), "renewals/trip")
	for i, h := range holds {
		select {
		case <-h.Lost():
			b.Fatalf("lock %d was lost", i)
		default:
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processorTime is what this process has used, in user and system mode.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkManyKeys is as many callers, each with a lock of its own: what an
// acquire and a release cost together when requests share round trips.
func BenchmarkManyKeys(b *testing.B) {
	for _, callers := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c, r, rdb := benchClient(b, lock.Config{})
			cycle := func(name string) error {
				h, err := c.Acquire(b.Context(), name, lock.Options{Lease: time.Minute})
				if err != nil {
					return err
				}
				return h.Release(b.Context())
			}
			if err := cycle("warm"); err != nil {
				b.Fatal(err)
			}
			trips, used, served := r.n.Load(), processorTime(b), serverTime(b, rdb)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					name := strconv.Itoa(i)
					for left.Add(-1) >= 0 {
						if err := cycle(name); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(2*float64(b.N)/float64(r.n.Load()-trips), "calls/trip")
			b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(b.N), "client-ns/op")
			b.ReportMetric(float64((serverTime(b, rdb)-served).Nanoseconds())/float64(b.N), "server-ns/op")
		})
	}
}

// serverTime is what the server has used, in user and system mode.
func serverTime(b *testing.B, rdb *redis.Client) time.Duration {
	b.Helper()
	info, err := rdb.InfoMap(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}
