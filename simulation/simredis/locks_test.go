//go:build linux

package simredis_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/simulation/simredis"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/workload"
)

// A tap notes what is requested on a connection.
type tap struct {
	net.Conn

	begun []byte // of a request that is not whole
	note  func(requests [][]string)
}

func (c *tap) Write(b []byte) (int, error) {
	c.begun = append(c.begun, b...)
	requests, n, _ := simredis.Parse(string(c.begun))
	c.note(requests)
	c.begun = c.begun[n:]
	return c.Conn.Write(b)
}

// requested is what clients of a lock request of each of its servers in a simulation: they acquire, wait, extend,
// release, and let leases end. It leaves out what names a connection.
func requested(t *testing.T, spec harness.LockSpec) (steps [][]step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1, nil)
		z := w.AddZone("zone-a")
		servers := 1
		if spec.Independent {
			servers = 3
		}
		steps = make([][]step, servers)
		for i := range servers {
			w.AddServer(fmt.Sprintf("redis-%d", i+1))
		}
		require.NoError(t, w.Start())
		begin, conns, last := time.Now(), make([]int, servers), make([]time.Duration, servers)
		var mu sync.Mutex
		client := func(server int) redis.UniversalClient {
			return redis.NewClient(&redis.Options{
				Addr: fmt.Sprintf("10.0.0.%d:6379", server+1), PoolSize: 100,
				Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := z.Dialer()(ctx, network, address)
					mu.Lock()
					defer mu.Unlock()
					n := conns[server]
					conns[server]++
					return &tap{Conn: conn, note: func(requests [][]string) {
						mu.Lock()
						defer mu.Unlock()
						for _, args := range requests {
							if now := time.Since(begin); !strings.EqualFold(args[0], "client") {
								steps[server] = append(steps[server], step{n, (now - last[server]).Truncate(time.Microsecond), args})
								last[server] = now.Truncate(time.Microsecond)
							}
						}
					}}, err
				},
			})
		}
		clients(t, spec, servers, client)
		time.Sleep(time.Minute) // in virtual time: what clients left under way is over
		w.Close()
	})
	return steps
}

// clients use a lock.
func clients(t *testing.T, spec harness.LockSpec, servers int, client func(server int) redis.UniversalClient) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for c := range 3 {
		var connections []redis.UniversalClient
		for i := range servers {
			connections = append(connections, client(i))
		}
		locker, closeLock, err := spec.Open(connections, harness.LockOptions{Permits: 2})
		require.NoError(t, err)
		owner := string(rune('a' + c))
		all.Go(func() {
			defer func() {
				closeLock()
				for _, c := range connections {
					_ = c.Close()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for i := 0; ctx.Err() == nil; i++ {
				o := lock.Options{Owner: owner, Lease: 60 * time.Millisecond, Wait: 80 * time.Millisecond}
				h, err := acquire(ctx, spec, locker, i, o)
				if err != nil {
					time.Sleep(time.Millisecond) // a refusal may take no time
					continue
				}
				switch i % 4 {
				case 0:
					_ = h.Extend(ctx, 90*time.Millisecond)
				case 1:
					if again, err := acquire(ctx, spec, locker, i, o); err == nil {
						_ = again.Release(ctx)
					}
				case 2:
					select {
					case <-h.Lost(): // the lease ends
					case <-ctx.Done():
					}
				}
				_ = h.Release(ctx)
			}
		})
	}
}

// acquire asks for a lock, alternately for each side of a read-write lock.
func acquire(ctx context.Context, spec harness.LockSpec, l lock.Locker, i int, o lock.Options) (*lock.Hold, error) {
	service, isService := l.(workload.Service)
	if !isService {
		return l.Acquire(ctx, "orders", o)
	}
	r := workload.Request{Lease: o.Lease, Wait: o.Wait, Locks: []string{"orders"}}
	switch spec.Kind {
	case history.KindRW:
		r.Mode = history.Read
		if i%2 == 1 {
			r.Mode = history.Write
		}
	case history.KindSemaphore:
		r.Mode, r.Permits = history.Permit, 1
	}
	return service.Ask(ctx, r, o)
}

// What go-redis and each lock request of simulated servers is answered by a real
// server in the same way, at the same times.
func TestDifferentialOfLocks(t *testing.T) {
	logging.Disable()
	p := newPair(t)
	for _, spec := range locks.All() {
		if spec.Open == nil || spec.Store != "" || spec.Connects || spec.Caches {
			continue
		}
		t.Run(spec.Name, func(t *testing.T) {
			for _, steps := range requested(t, spec) {
				require.NotEmpty(t, steps)
				if d := p.play(t, steps); d != nil {
					p.fail(t, 0, steps, d)
				}
			}
		})
	}
	t.Logf("%d requests of locks", p.steps)
}
