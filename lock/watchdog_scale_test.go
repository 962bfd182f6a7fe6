package lock

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// many is how many holds one client must be able to keep alive.
const many = 100_000

// A queueServer renews in virtual time, one hold after the other.
type queueServer struct {
	each  time.Duration // that the server needs for one
	trip  time.Duration // of a request there and its answer back
	stall time.Duration // of the server, when it gets the first request
	stuck int           // so many requests, the first ones, get no answer

	mu       sync.Mutex
	watchdog *watchdog[int]
	free     time.Time   // when it will have done what it has
	due      []time.Time // of each hold; zero after a renewal that failed
	done     []bool      // whether it was renewed
	inFlight int
	most     int           // in flight
	waited   time.Duration // from when a renewal was due until it was sent, at most
	failed   int           // renewals
	lost     int
}

func (s *queueServer) batches(due []*watch[int]) [][]*watch[int] {
	return slices.Collect(slices.Chunk(due, maxBatch))
}

func (s *queueServer) expires(sent time.Time, lease time.Duration) time.Time { return sent.Add(lease) }

func (s *queueServer) taskGroup() *taskGroup   { return nil }
func (s *queueServer) onLost(_ *Hold, l Lease) { s.observe(Lost, l, 0, nil) }
func (s *queueServer) onEnd(h *Hold)           { s.watchdog.remove(h) }
func (s *queueServer) onMove(*Hold)            {}

func (s *queueServer) renew(ctx context.Context, batch []int) []error {
	answer := time.NewTimer(time.Until(s.arrive(batch)))
	defer answer.Stop()
	errs := make([]error, len(batch))
	select {
	case <-answer.C:
	case <-ctx.Done():
		for i := range errs {
			errs[i] = ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	return errs
}

// arrive says when a request that is sent now will be answered.
func (s *queueServer) arrive(batch []int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, i := range batch {
		if !s.due[i].IsZero() {
			s.waited = max(s.waited, now.Sub(s.due[i]))
		}
		s.due[i] = now.Add(s.watchdog.period)
	}
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	if s.stuck > 0 {
		s.stuck--
		return now.Add(time.Hour)
	}
	there := now.Add(s.trip / 2)
	if s.free.IsZero() {
		s.free = there.Add(s.stall)
	}
	if s.free.Before(there) {
		s.free = there
	}
	s.free = s.free.Add(time.Duration(len(batch)) * s.each)
	return s.free.Add(s.trip / 2)
}

func (s *queueServer) observe(kind EventKind, l Lease, _ time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := int(l.Token)
	switch {
	case kind == Lost:
		s.lost++
	case kind == Renewed && err != nil:
		s.failed++
		s.due[i] = time.Time{}
	case kind == Renewed:
		s.done[i] = true
	}
}

// However many holds are due at one time (BenchmarkWatchdog has more), and whatever the server is like, each
// renewal is sent soon, and no hold is lost.
func TestManyHoldsAreDueAtOnce(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	for _, test := range []struct {
		name   string
		server *queueServer
		holds  int
		most   int // pipelines at once; 0 for any number
		failed bool
	}{
		{name: "near", server: &queueServer{each: 10 * time.Microsecond, trip: 100 * time.Microsecond}, holds: many / 4, most: maxPipelines},
		{name: "stalled", server: &queueServer{each: 100 * time.Microsecond, trip: 100 * time.Microsecond, stall: time.Second}, holds: many / 10, most: maxPipelines},
		{name: "far", server: &queueServer{each: 10 * time.Microsecond, trip: time.Second}, holds: many / 10},
		{name: "slow", server: &queueServer{each: 600 * time.Microsecond, trip: 100 * time.Microsecond}, holds: many / 10},
		{name: "stalled for long", server: &queueServer{each: 100 * time.Microsecond, trip: 100 * time.Microsecond, stall: 12 * time.Second}, holds: many / 10, failed: true},
		{name: "over broken connections", server: &queueServer{each: 100 * time.Microsecond, trip: 100 * time.Microsecond, stuck: 20}, holds: many / 10, failed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := test.server, newTaskGroup()
				d := newWatchdog(s, l, lease)
				s.watchdog = d
				s.due, s.done = make([]time.Time, test.holds), make([]bool, test.holds)
				for i := range test.holds {
					s.due[i] = time.Now().Add(d.period)
					h := newHold(Lease{Token: int64(i), Expires: time.Now().Add(lease)}, nil)
					h.hooks = s
					h.start()
					d.add(h, i, lease, d.period, d.period)
				}
				time.Sleep(lease + d.period/4) // of those that aren't renewed, none is left
				l.end()
				t.Logf("%d in flight at most, %d failed, and a renewal waited for %v at most", s.most, s.failed, s.waited)
				require.NotContains(t, s.done, false)
				require.Zero(t, s.lost)
				require.Equal(t, test.failed, s.failed > 0)
				require.LessOrEqual(t, s.waited, d.period/4)
				if test.most > 0 {
					require.LessOrEqual(t, s.most, test.most)
				}
			})
		})
	}
}

// takeMany takes n locks that a watchdog keeps, in pipelines.
func takeMany(tb testing.TB, c *Client, n int) []*Hold {
	tb.Helper()
	holds := make([]*Hold, 0, n)
	for len(holds) < n {
		grants := make([]*grant, min(1000, n-len(holds)))
		calls := make([]transport.Call, len(grants))
		for i := range grants {
			grants[i] = c.Mutex("lock-" + strconv.Itoa(len(holds)+i)).grant(Options{})
			grants[i].encodeIdentity()
			calls[i] = grants[i].kind.acquire(grants[i])
		}
		begin := time.Now()
		replies, _ := c.transport.Commit(tb.Context(), calls...)
		for i, r := range replies {
			require.NoError(tb, r.Err)
			require.Equal(tb, int64(1), r.Value)
			holds = append(holds, grants[i].makeHold(context.Background(), answer{granted: true, holds: 1, expires: c.expires(begin, grants[i].lease)}, begin))
		}
	}
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
	require.Positive(t, r.left)
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
	require.Greater(t, seen.inTime(t), stall/2, "some were on their way")
	allHeld(t, rdb, holds)
}

// used is the memory that is in use.
func used() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// renewalCount is an observer that costs next to nothing.
type renewalCount struct{ atomic.Int64 }

func (n *renewalCount) Observe(e Event) {
	if e.Kind == Renewed && e.Err == nil {
		n.Add(1)
	}
}

// BenchmarkWatchdog is what it costs to keep so many holds alive for the default
// lease. An operation is a period, in which each is renewed once. %client and
// %server are of one processor; the client is this process. Then all become due
// at once: burst-ms is how long their renewal takes, and others-ms how long the
// server lets another client wait in between, who asks every millisecond, at most
// (max) and for 99 of 100 answers.
func BenchmarkWatchdog(b *testing.B) {
	for _, n := range []int{10_000, many} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := redistest.Start(b)
			renewed := &renewalCount{}
			c, err := New(s.Client(b, nil), Config{Observer: renewed})
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
				time.Sleep(c.watchdog.period)
			}
			took := float64(time.Since(begin))
			b.ReportMetric(float64(memory)/float64(n), "B/hold")
			b.ReportMetric(100*float64(clientTime(b)-client)/took, "%client")
			b.ReportMetric(100*float64(serverTime(b, other)-server)/took, "%server")

			begin = time.Now()
			all := renewed.Load() + int64(n)
			c.watchdog.atOnce()
			var waits []time.Duration
			for renewed.Load() < all {
				time.Sleep(time.Millisecond)
				asked := time.Now()
				if err := other.Ping(b.Context()).Err(); err != nil {
					b.Fatal(err)
				}
				waits = append(waits, time.Since(asked))
			}
			b.ReportMetric(float64(time.Since(begin).Milliseconds()), "burst-ms")
			slices.Sort(waits)
			b.ReportMetric(waits[len(waits)*99/100].Seconds()*1000, "others-ms")
			b.ReportMetric(waits[len(waits)-1].Seconds()*1000, "others-max-ms")
			allHeld(b, other, holds)
		})
	}
}

// atOnce makes all holds due now.
func (d *watchdog[G]) atOnce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, w := range d.queue {
		w.alarm.at = now
	}
	d.poke <- struct{}{}
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
