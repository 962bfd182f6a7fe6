package locktests

import (
	"context"
	"crypto/rand"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
)

// slowConn delivers what the server says after a while.
type slowConn struct {
	net.Conn

	delay time.Duration
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.delay)
	return n, err
}

// fanOut is the least that a lock on several servers sends: to all at once, and
// on with the answers of a majority.
func fanOut(ctx context.Context, servers []redis.UniversalClient, send func(ctx context.Context, rdb redis.UniversalClient) error) error {
	answers := make(chan error, len(servers))
	for _, rdb := range servers {
		go func() { answers <- send(ctx, rdb) }()
	}
	for range len(servers)/2 + 1 {
		if err := <-answers; err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkRedlock is an acquire and a release on five servers, in turn with two
// bare fan-outs of the same width: of SET and DEL, and of the scripts that a
// Mutex runs on one server. x-set and x-script say how much longer it takes, in
// the median.
func BenchmarkRedlock(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		b.Run("delay="+delay.String(), func(b *testing.B) {
			servers := startQuorum(b, 5).clients(b, func(_ int, o *redis.Options) {
				o.ReadTimeout = 0 // the default
				if network, addr := o.Network, o.Addr; delay > 0 {
					o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
						conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
						return slowConn{conn, delay}, err
					}
				}
			})
			r, err := lock.NewRedlock(servers, lock.RedlockConfig{NodeTimeout: patient})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			redlock := func(ctx context.Context) error {
				h, err := r.Acquire(ctx, "orders", lock.Options{Lease: time.Minute})
				if err != nil {
					return err
				}
				return h.Release(ctx)
			}
			set := func(ctx context.Context) error {
				err := fanOut(ctx, servers, func(ctx context.Context, rdb redis.UniversalClient) error {
					return rdb.SetArgs(ctx, "raw", "token", redis.SetArgs{TTL: time.Minute}).Err()
				})
				if err != nil {
					return err
				}
				return fanOut(ctx, servers, func(ctx context.Context, rdb redis.UniversalClient) error {
					return rdb.Del(ctx, "raw").Err()
				})
			}
			acquire, release := digest(b, "acquire"), digest(b, "release")
			script := func(ctx context.Context) error {
				request := rand.Text()
				keys := plainKeys("lock:{raw}", request)
				err := fanOut(ctx, servers, func(ctx context.Context, rdb redis.UniversalClient) error {
					return rdb.EvalSha(ctx, acquire, keys, held(request, "owner"), 60000, "", "").Err()
				})
				if err != nil {
					return err
				}
				return fanOut(ctx, servers, func(ctx context.Context, rdb redis.UniversalClient) error {
					return rdb.EvalSha(ctx, release, keys, held(request, "owner"), 0, "", "channel").Err()
				})
			}
			runs := []func(context.Context) error{redlock, set, script}
			took := make([][]time.Duration, len(runs))
			for b.Loop() {
				for i, run := range runs {
					begin := time.Now()
					if err := run(b.Context()); err != nil {
						b.Fatal(err)
					}
					took[i] = append(took[i], time.Since(begin))
				}
			}
			ours := median(took[0])
			b.ReportMetric(float64(ours.Microseconds()), "us/lock")
			b.ReportMetric(float64(ours)/float64(median(took[1])), "x-set")
			b.ReportMetric(float64(ours)/float64(median(took[2])), "x-script")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
