package locktests

import (
	"context"
	"net"
	"runtime"
	"strconv"
	"strings"
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
