package lock

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// many is how many holds one client must be able to keep alive.
const many = 100_000

// takeMany takes n locks that a watchdog keeps.
func takeMany(tb testing.TB, c *Client, n int) []*Hold {
	tb.Helper()
	holds := make([]*Hold, n)
	var left atomic.Int64
	var takers sync.WaitGroup
	for range 64 {
		takers.Go(func() {
			for i := left.Add(1) - 1; i < int64(n); i = left.Add(1) - 1 {
				h, err := c.Acquire(context.Background(), "lock-"+strconv.FormatInt(i, 10), Options{})
				if err != nil {
					tb.Error(err)
					return
				}
				holds[i] = h
			}
		})
	}
	takers.Wait()
	require.False(tb, tb.Failed())
	return holds
}

// renewals is an observer that sums up what a watchdog does.
type renewals struct {
	mu      sync.Mutex
	ends    map[string]time.Time // of the lease when its renewal began, by request
	renewed map[string]bool      // without an error, by request
	failed  int
	lost    int
	left    time.Duration // of a lease when it was renewed, at least
	longest time.Duration // that an answer took, or was awaited without an answer
	begin   func()        // called before each renewal; optional
}

func newRenewals() *renewals {
	return &renewals{ends: map[string]time.Time{}, renewed: map[string]bool{}, left: time.Hour}
}

func (r *renewals) Observe(e Event) {
	if e.Kind == Renewing && r.begin != nil {
		r.begin()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.Kind == Lost:
		r.lost++
	case e.Kind == Renewing:
		r.ends[e.Lease.Request] = e.Lease.Expires
	case e.Kind == Renewed && e.Err != nil:
		r.failed++
		r.longest = max(r.longest, e.Took)
	case e.Kind == Renewed:
		r.renewed[e.Lease.Request] = true
		r.left = min(r.left, r.ends[e.Lease.Request].Sub(e.At))
		r.longest = max(r.longest, e.Took)
	}
}

// count is how many holds were renewed.
func (r *renewals) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.renewed)
}

// inTime requires that all renewals came before the end, and returns how long an
// answer took at most.
func (r *renewals) inTime(t *testing.T) time.Duration {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Zero(t, r.lost)
	require.True(t, 0 < r.left)
	t.Logf("%d failed, an answer took %v at most, and %v were left of a lease at least", r.failed, r.longest, r.left)
	return r.longest
}

// allHeld requires that all are held, here and on the server.
func allHeld(tb testing.TB, rdb *redis.Client, holds []*Hold) {
	tb.Helper()
	n, err := rdb.DBSize(tb.Context()).Result()
	require.NoError(tb, err)
	require.Equal(tb, int64(len(holds)), n)
	for i, h := range holds {
		select {
		case <-h.Lost():
			tb.Fatalf("hold %d is lost", i)
		default:
		}
	}
}

// BenchmarkWatchdog does the same with more of them, and for longer.
func TestWatchdogKeepsManyHolds(t *testing.T) {
	t.Parallel()
	const n = many / 20 // which the race detector and a busy machine can bear
	s := redistest.Start(t)
	seen := newRenewals()
	c, err := New(s.Client(t, nil), Config{Observer: seen, Watchdog: 18 * time.Second})
	require.NoError(t, err)
	defer c.Close()
	holds := takeMany(t, c, n)
	redistest.Await(t, "all renewals", func() bool { return seen.count() == n })
	seen.inTime(t)
	allHeld(t, s.Client(t, nil), holds)
}

// A server that answers no client for a second, while renewals are on their way to
// it, costs no hold.
func TestWatchdogOutlivesAStall(t *testing.T) {
	t.Parallel()
	const n, stall = 2000, time.Second
	s := redistest.Start(t)
	seen := newRenewals()
	begun := make(chan struct{})
	seen.begin = sync.OnceFunc(func() { // before the first is sent, so that none is answered
		resume := s.Pause(t)
		time.AfterFunc(stall, resume)
		close(begun)
	})
	c, err := New(s.Client(t, nil), Config{Observer: seen, Watchdog: 15 * time.Second})
	require.NoError(t, err)
	defer c.Close()
	rdb := s.Client(t, nil)
	holds := takeMany(t, c, n)
	<-begun
	redistest.Await(t, "all renewals", func() bool { return seen.count() == n })
	require.True(t, stall/2 < seen.inTime(t), "some were on their way")
	allHeld(t, rdb, holds)
}

// used is the memory that is in use.
func used() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkWatchdog is what it costs to keep so many holds alive for the default
// lease. An operation is a period, in which each is renewed once. %client and
// %server are of one processor; the client is this process.
func BenchmarkWatchdog(b *testing.B) {
	for _, n := range []int{10_000, many} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := redistest.Start(b)
			c, err := New(s.Client(b, nil), Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			other := s.Client(b, nil)
			before := used()
			holds := takeMany(b, c, n)
			memory := used() - before
			client, server, begin := clientTime(b), serverTime(b, other), time.Now()
			for b.Loop() {
				time.Sleep(c.config.Watchdog / 3)
			}
			took := float64(time.Since(begin))
			b.ReportMetric(float64(memory)/float64(n), "B/hold")
			b.ReportMetric(100*float64(clientTime(b)-client)/took, "%client")
			b.ReportMetric(100*float64(serverTime(b, other)-server)/took, "%server")

			allHeld(b, other, holds)
		})
	}
}

// clientTime is what this process has used of processors.
func clientTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime is what a server has used of processors.
func serverTime(b *testing.B, rdb *redis.Client) time.Duration {
	b.Helper()
	info, err := rdb.InfoMap(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum time.Duration
	for _, mode := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := time.ParseDuration(info["CPU"][mode] + "s")
		if err != nil {
			b.Fatal(err)
		}
		sum += seconds
	}
	return sum
}
