package attach

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

const (
	// claimLease is how long a claim outlives the run that made it.
	claimLease = 15 * time.Second
	// releaseTimeout bounds how long it may take to give it up.
	releaseTimeout = 5 * time.Second
)

// A renewal keeps our right to drive a deployment, which another run can have after we stood still for longer than the lease.
type renewal struct {
	log  *slog.Logger
	lost atomic.Pointer[error] // why; nil as long as it is ours
	stop func()                // nil before it was taken
}

// begin repeats a claim, five times in a lease, until it is stopped.
func (r *renewal) begin(renew func(context.Context)) {
	r.stop = await.Behind(context.Background(), func(ctx context.Context) {
		for await.Pause(ctx, claimLease/5) == nil {
			renew(ctx)
		}
	})
}

// lose notes that the deployment is no longer ours.
func (r *renewal) lose(ctx context.Context, why error) {
	if r.lost.CompareAndSwap(nil, &why) {
		r.log.WarnContext(ctx, "the claim to the deployment is lost", "error", why)
	}
}

// held fails once it is not.
func (r *renewal) held() error {
	if why := r.lost.Load(); why != nil {
		return *why
	}
	return nil
}

// A claim is our right to drive a deployment of Redis, as every master has it: two that do so would
// mend each other's faults, and take each other's locks for their own. It outlives a failover, since
// replicas have it too, and a server that forgot it is told again.
type claim struct {
	renewal

	owner   string
	servers []*foundServer // but for sentinels
}

// newClaim is a claim to the deployment, which is to be taken. The discovery's connections must stay open until it
// was released.
func (s *discovery) newClaim(log *slog.Logger) *claim {
	c := &claim{renewal: renewal{log: log}, owner: claimOwner()}
	for _, f := range s.found {
		if f.kind == topologies.Redis {
			c.servers = append(c.servers, f)
		}
	}
	// Their order is the same for every run, so that of two that begin at once one gets them all.
	slices.SortFunc(c.servers, func(a, b *foundServer) int { return strings.Compare(a.info.id, b.info.id) })
	return c
}

// claimKey is where the server has the claim to it, and to all that replicate it.
func (f *foundServer) claimKey() string {
	if f.info.mode == modeCluster {
		return bootstrap.KeyIn(bootstrap.ClaimKey, f.slot)
	}
	return bootstrap.ClaimKey
}

// takeAll takes the deployment, or fails with [ErrUsage] and names who has it.
func (c *claim) takeAll(ctx context.Context) error {
	c.stop = func() {} // from now on there is something to release
	for _, f := range c.servers {
		if f.master != "" {
			continue
		}
		if err := c.take(ctx, f); err != nil {
			return err
		}
	}
	c.begin(func(ctx context.Context) { c.everywhere(ctx, c.renew) })
	return nil
}

// claimOwner names this run in a claim.
func claimOwner() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s, since %s (%s)", os.Getpid(), host, time.Now().UTC().Format("15:04:05 MST"), rand.Text()[:8])
}

// take takes one master.
func (c *claim) take(ctx context.Context, f *foundServer) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var who string
	err := await.While(ctx, func(err error) bool { // it is slow
		var netErr net.Error
		return errors.As(err, &netErr) && netErr.Timeout()
	}, func() (err error) {
		who, err = f.client.SetArgs(ctx, f.claimKey(), c.owner, redis.SetArgs{Mode: "NX", Get: true, TTL: claimLease}).Result()
		if errors.Is(err, redis.Nil) { // no run had it
			who, err = c.owner, nil
		}
		return err
	})
	switch {
	case err != nil:
		return f.access.refused(f.announced, err)
	case who == c.owner:
		return nil
	default:
		return usage("another run drives this deployment: %s; if that one is dead, its claim ends by itself within %v, or at once by DEL %s on %s",
			who, claimLease, f.claimKey(), f.announced)
	}
}

// everywhere asks all servers at once. Those that are away, or no masters, have
// nothing to say.
func (c *claim) everywhere(ctx context.Context, ask func(context.Context, *redis.Client, string)) {
	var all sync.WaitGroup
	for _, f := range c.servers {
		all.Go(func() { ask(ctx, f.client, f.claimKey()) })
	}
	all.Wait()
}

func (c *claim) renew(ctx context.Context, rdb *redis.Client, key string) {
	who, err := rdb.Get(ctx, key).Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
	case who != "" && who != c.owner:
		c.lose(ctx, fmt.Errorf("another run drives it now: %s", who))
	default:
		_ = rdb.Set(ctx, key, c.owner, claimLease).Err() // replicas refuse
	}
}

// release gives the deployment up, and sees that no server has the claim any
// more: in a failover one that had lost it to us may be given it again by the
// next master. Where that can't be done it ends by itself.
func (c *claim) release() {
	if c.stop == nil {
		return
	}
	c.stop()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = await.Until(ctx, func() error {
		var left atomic.Bool
		c.everywhere(ctx, func(ctx context.Context, rdb *redis.Client, key string) {
			who, err := rdb.Get(ctx, key).Result()
			var away *net.OpError
			switch {
			case errors.Is(err, redis.Nil), errors.As(err, &away), redis.HasErrorPrefix(err, "MOVED"): // a cluster's replica
			case err != nil: // it loads its data, say
				left.Store(true)
			case who == c.owner:
				_ = rdb.Del(ctx, key).Err() // replicas refuse, and hear it from their master
				left.Store(true)
			}
		})
		if left.Load() {
			return errors.New("a server has it yet")
		}
		return nil
	})
}
