//go:build linux

package simredis_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload"
)

// clients use a lock on simulated servers: they acquire, wait, extend, release,
// and let leases end.
func clients(t *testing.T, spec harness.LockSpec, servers []*memoryServer) error {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for c := range 3 {
		var connections []redis.UniversalClient
		for i, s := range servers {
			connections = append(connections, s.client(t, fmt.Sprintf("127.0.0.%d:6379", i+1)))
		}
		locker, closeLock, err := spec.Open(connections, harness.LockOptions{Permits: 2})
		if err != nil {
			return err
		}
		owner := string(rune('a' + c))
		all.Go(func() {
			defer closeLock()
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			defer cancel()
			for i := 0; ctx.Err() == nil; i++ {
				o := lock.Options{Owner: owner, Lease: 60 * time.Millisecond, Wait: 80 * time.Millisecond}
				h, err := acquire(ctx, spec, locker, i, o)
				if err != nil {
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
	return nil
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
	p := newPair(t)
	var specs []harness.LockSpec
	for _, spec := range locks.All() {
		if spec.Open != nil && spec.Store == "" && !spec.Connects && !spec.Caches {
			specs = append(specs, spec)
		}
	}
	servers := make([][]*memoryServer, len(specs))
	var all errgroup.Group
	all.SetLimit(8)
	for i, spec := range specs {
		n := 1
		if spec.Independent {
			n = 3
		}
		for range n {
			servers[i] = append(servers[i], newMemoryServer(t))
		}
		all.Go(func() error { return clients(t, spec, servers[i]) })
	}
	require.NoError(t, all.Wait())
	for i, spec := range specs {
		t.Run(spec.Name, func(t *testing.T) {
			for _, s := range servers[i] {
				s.mu.Lock()
				steps := stepsOf(s.record)
				s.mu.Unlock()
				require.NotEmpty(t, steps)
				if d := p.play(t, steps); d != nil {
					p.fail(t, 0, steps, d)
				}
			}
		})
	}
	t.Logf("%d requests of locks", p.steps)
}

// stepsOf makes steps of requests. It leaves out what names a connection.
func stepsOf(all []request) []step {
	var steps []step
	last := int64(start)
	for _, r := range all {
		if strings.EqualFold(r.args[0], "client") {
			continue
		}
		steps = append(steps, step{r.conn - 1, time.Duration(r.micros-last) * time.Microsecond, r.args})
		last = r.micros
	}
	return steps
}
