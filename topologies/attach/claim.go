package attach

import (
	"cmp"
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

// claimKey says on every master who drives the deployment: two that do so would
// mend each other's faults, and take each other's locks for their own.
const claimKey = bootstrap.ClaimKey

const (
	// claimLease is how long a claim outlives the run that made it.
	claimLease = 15 * time.Second
	// releaseTimeout bounds how long it may take to give it up.
	releaseTimeout = 5 * time.Second
)

// A claim is our right to drive a deployment.
type claim struct {
	owner  string
	places []place
	access access
	log    *slog.Logger
	rival  atomic.Pointer[string] // who has it instead; nil as long as it is ours
	stop   func()                 // nil before it was taken
}

// A place is a key that one of several servers takes writes for: the claim
// outlives a failover, since replicas have it too, and a server that forgot it
// is told again.
type place struct {
	key     string
	servers []*foundServer // the master of now first
}

// newClaim is a claim to the deployment, which is to be taken. The discovery's connections must stay open until it
// was released.
func (s *discovery) newClaim(log *slog.Logger) *claim {
	return &claim{owner: claimOwner(), places: s.places(), access: s.redis, log: log}
}

// takeAll takes the deployment, or fails with [ErrUsage] and names who has it.
func (c *claim) takeAll(ctx context.Context) error {
	c.stop = func() {} // from now on there is something to release
	for _, p := range c.places {
		if err := c.take(ctx, c.access, p); err != nil {
			return err
		}
	}
	c.stop = renewing(func(ctx context.Context) { c.everywhere(ctx, c.renew) })
	return nil
}

// claimOwner names this run in a claim.
func claimOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("process %d on %s, since %s (%s)", os.Getpid(), host, time.Now().UTC().Format("15:04:05 MST"), rand.Text()[:8])
}

// renewing repeats a claim, five times in a lease, until it is stopped.
func renewing(renew func(context.Context)) (stop func()) {
	return await.Behind(context.Background(), func(ctx context.Context) {
		for await.Pause(ctx, claimLease/5) == nil {
			renew(ctx)
		}
	})
}

// places are one for each master. Their order is the same for every run, so
// that of two runs that begin at once one gets them all.
func (s *discovery) places() []place {
	var masters []*foundServer
	for _, f := range s.found {
		if f.kind == topologies.Redis && f.master == "" {
			masters = append(masters, f)
		}
	}
	slices.SortFunc(masters, func(a, b *foundServer) int { return strings.Compare(a.info.id, b.info.id) })
	var places []place
	for _, m := range masters {
		p := place{key: claimKey, servers: []*foundServer{m}}
		if m.info.mode == modeCluster {
			p.key = bootstrap.KeyIn(claimKey, m.slot)
		}
		for _, f := range s.found {
			if f.kind == topologies.Redis && f.master == m.announced {
				p.servers = append(p.servers, f)
			}
		}
		places = append(places, p)
	}
	return places
}

// take claims one place.
func (c *claim) take(ctx context.Context, a access, p place) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	master := p.servers[0]
	who, answer := "", error(nil)
	late := await.Until(ctx, func() error {
		who, answer = c.ask(ctx, master.client, p.key)
		var netErr net.Error
		if errors.Is(answer, redis.Nil) || errors.As(answer, &netErr) && netErr.Timeout() {
			return answer // the claim of another run just ended, or it is slow
		}
		return nil
	})
	switch err := cmp.Or(late, answer); {
	case err != nil:
		return a.refused(master.announced, err)
	case who == c.owner:
		return nil
	default:
		return usage("another run drives this deployment: %s; if that one is dead, its claim ends by itself within %v, or at once by DEL %s on %s",
			who, claimLease, p.key, master.announced)
	}
}

// ask takes a key if no run has it, and says which run has.
func (c *claim) ask(ctx context.Context, rdb *redis.Client, key string) (who string, err error) {
	err = rdb.SetArgs(ctx, key, c.owner, redis.SetArgs{Mode: "NX", TTL: claimLease}).Err()
	if !errors.Is(err, redis.Nil) {
		return c.owner, err
	}
	return rdb.Get(ctx, key).Result()
}

// everywhere asks all servers at once. Those that are away, or no masters, have
// nothing to say.
func (c *claim) everywhere(ctx context.Context, ask func(context.Context, *redis.Client, string)) {
	var all sync.WaitGroup
	for _, p := range c.places {
		for _, f := range p.servers {
			all.Go(func() { ask(ctx, f.client, p.key) })
		}
	}
	all.Wait()
}

// again repeats the claim on a server that may have forgotten it.
func (c *claim) again(ctx context.Context, f *foundServer, rdb *redis.Client) {
	for _, p := range c.places {
		if slices.Contains(p.servers, f) {
			c.renew(ctx, rdb, p.key)
		}
	}
}

func (c *claim) renew(ctx context.Context, rdb *redis.Client, key string) {
	who, err := rdb.Get(ctx, key).Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
	case who != "" && who != c.owner:
		if c.rival.CompareAndSwap(nil, &who) {
			c.log.WarnContext(ctx, "another run has claimed the deployment", "owner", who)
		}
	default:
		_ = rdb.Set(ctx, key, c.owner, claimLease).Err() // replicas refuse
	}
}

// held fails once another run has the deployment, as it can after we stood still
// for longer than the lease.
func (c *claim) held() error {
	if who := c.rival.Load(); who != nil {
		return fmt.Errorf("another run drives it now: %s", *who)
	}
	return nil
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
