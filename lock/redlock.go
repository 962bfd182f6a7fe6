package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/chance"
	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

const (
	defaultNodeTimeout = 50 * time.Millisecond
	defaultRetryDelay  = 100 * time.Millisecond
)

// RedlockConfig says how a [Redlock] works. The zero value is a good start.
type RedlockConfig struct {
	// Prefix, Watchdog and Drift are those of [Config], with the same defaults.
	Prefix   string
	Watchdog time.Duration
	Drift    float64
	// NodeTimeout is how long a server may take to answer before it counts as out
	// of reach. It is short beside a lease, so that servers that are down don't
	// use the lease up, and long beside a round trip. At least 1ms. Default: 50ms,
	// the upper end of what the Redis documentation suggests for leases of 10s.
	NodeTimeout time.Duration
	// RetryDelay is how long a waiter pauses between two rounds, on average: each
	// pause is drawn from between half and one and a half of it, so that those
	// who split the servers' votes don't meet again. At least 1ms. Default: 100ms.
	RetryDelay time.Duration
	// Observer is told what happens. Default: none.
	Observer Observer
}

// Validate joins everything that is wrong with the configuration.
func (c RedlockConfig) Validate() error {
	wrong := mistakes{Config{Prefix: c.Prefix, Watchdog: c.Watchdog, Drift: c.Drift}.Validate()}
	wrong.note(c.NodeTimeout != 0 && c.NodeTimeout < time.Millisecond,
		"node timeout of %v: give at least 1ms, or 0 for %v", c.NodeTimeout, defaultNodeTimeout)
	wrong.note(c.RetryDelay != 0 && c.RetryDelay < time.Millisecond,
		"retry delay of %v: give at least 1ms, or 0 for %v", c.RetryDelay, defaultRetryDelay)
	return errors.Join(wrong...)
}

// A Redlock keeps locks on several independent Redis servers, and grants one
// when a majority of them does: the algorithm of
// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/. It is a
// [Locker] for re-entrant mutual exclusion, and safe for concurrent use. Make it
// with [NewRedlock] and end it with Redlock.Close or Redlock.Shutdown.
//
// A hold lasts as long as a majority keeps it: a minority of the servers may be
// down, stuck or cut off. All are asked at once, and the answers of the fastest
// majority decide; what the others granted is used or taken back in the
// background. [Lease.Expires] counts from before the first request of the round
// that won. An extension counts when a majority confirms it, and it asks servers
// that missed the grant, or lost it, to make up for it; where a majority has
// lost it, the hold is lost. An extension to a sooner end holds for the holder
// alone: the servers keep the later one until the release.
//
// [ErrNotAcquired] says that a majority of the servers refused, or confirmed that
// they gave back what they had granted; so the request has no effect, but for
// what a server that is out of reach may have granted for as long as its lease.
// Where so many are out of reach that there is no majority either way, the error
// names them and the reasons, and the lock may stay taken for as long as the
// lease. A waiter goes on after either, but not where a majority answers with
// errors of its own, such as a missing permission.
//
// A waiter asks again after random pauses, [RedlockConfig.RetryDelay]; there are
// no messages. Callers that ask at the same time may split the votes, so that
// all of them are refused. The order among waiters is not promised.
//
// [Lease.Holds] counts the holds of that owner on that name in this Redlock.
// Owners of one name in other processes re-enter the lock as well, but are not
// counted. [Lease.Token] is always 0: each server could count its own grants, but
// two majorities need not share the server with the greatest count, so there is
// no order of tokens without another round to write one back, nor after a server
// lost its data. [Lease.Node] is empty.
//
// # Restarts
//
// A server that restarts without its data has forgotten what it granted, and may
// make up a second majority. Let it come back only after the longest lease in
// use has passed, or give it appendfsync always. The same goes for a server
// whose clock was set forward, and for one that evicts keys; and a replica that
// takes over is a restart without the newest data, which is why failover clients
// are refused.
type Redlock struct {
	config RedlockConfig
	nodes  []node
	client *Client // with the configuration of all of them; it sends nothing
	kind   *kind
	*taskGroup

	mu    sync.Mutex
	holds map[[2]string]int // by name and owner
}

var _ Locker = (*Redlock)(nil)

// NewRedlock returns a Redlock on those servers: an odd number, at least three,
// each its own and with no common cause to fail. It sends nothing yet, and never
// closes the clients.
//
// Their timeouts and retries bound what is left in the background when a server
// is stuck; short ones suit, and ContextTimeoutEnabled.
func NewRedlock(servers []redis.UniversalClient, c RedlockConfig) (*Redlock, error) {
	r := &Redlock{config: c, holds: map[[2]string]int{}}
	r.config.NodeTimeout = cmp.Or(c.NodeTimeout, defaultNodeTimeout)
	r.config.RetryDelay = cmp.Or(c.RetryDelay, defaultRetryDelay)
	wrong, n := mistakes{c.Validate()}, len(servers)
	wrong.note(n == 0, "no servers: give an odd number of them, at least 3")
	wrong.note(n == 1, "one server: give at least 3, or use New, which waits without asking again and again")
	wrong.note(n > 1 && n%2 == 0, "%d servers survive no more failures than %d: give an odd number, at least 3", n, n-1)
	addresses := map[string]bool{}
	for i, rdb := range servers {
		addr, err := independent(rdb)
		wrong.note(err != nil, "server %d: %w", i+1, err)
		addr = cmp.Or(addr, fmt.Sprintf("server %d", i+1))
		wrong.note(err == nil && addresses[addr], "server %s is there twice: its vote would count twice", addr)
		addresses[addr] = true
		r.nodes = append(r.nodes, node{addr, rdb, transport.New(rdb, 0, 0, func(f func()) { go f() })})
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("configure Redlock: %w", err)
	}
	r.client = newClient(nil, Config{Prefix: c.Prefix, Watchdog: c.Watchdog, Drift: c.Drift, Batch: -1, Observer: c.Observer}.withDefaults())
	r.taskGroup = r.client.taskGroup
	k := *kinds.mutex
	k.usesMutexScripts, k.tickets, k.redlock = false, false, r
	k.spin = func(int) time.Duration { return r.config.RetryDelay/2 + chance.N(r.config.RetryDelay) }
	r.kind = &k
	return r, nil
}

// independent returns the address of a server, if that is known, or says why it
// can't be one of several.
func independent(rdb redis.UniversalClient) (addr string, err error) {
	switch rdb := rdb.(type) {
	case *redis.Client:
		if addr = rdb.Options().Addr; addr == failoverAddr {
			err = errors.New("a failover client moves on to a replica, which may not have the newest grants: pass a client of one server")
		}
	case *redis.ClusterClient:
		err = errors.New("a cluster keeps a lock on one of its servers, whatever client asks: pass clients of independent servers")
	default:
		err = suits(rdb, Config{})
	}
	return addr, err
}

// Check asks every server who it is, and joins what is wrong: a server that is
// out of reach, that is there twice under two names, that is a replica, or part
// of a cluster. It is worth calling once at the start.
func (r *Redlock) Check(ctx context.Context) error {
	var wrong mistakes
	first := map[string]string{} // address by run ID
	for _, v := range r.nodes {
		var info *redis.InfoCmd
		err := r.await(ctx, r.closing, func() error {
			info = v.rdb.InfoMap(ctx)
			return info.Err()
		})
		if err != nil {
			wrong.note(true, "server %s: %w", v.addr, err)
			continue
		}
		id, mode := info.Item("Server", "run_id"), info.Item("Server", "redis_mode")
		wrong.note(id == "", "server %s doesn't say who it is: let the user run INFO", v.addr)
		wrong.note(id != "" && first[id] != "", "server %s is also %s: its vote would count twice", v.addr, first[id])
		wrong.note(id != "" && info.Item("Replication", "role") != "master", "server %s is a replica: pass masters", v.addr)
		wrong.note(id != "" && mode != "standalone", "server %s runs in %s mode: pass servers that stand alone", v.addr, mode)
		first[id] = v.addr
	}
	return wrap(errors.Join(wrong...), "check Redlock")
}

// Acquire asks for the lock of that name, as [Mutex.Acquire] does.
func (r *Redlock) Acquire(ctx context.Context, name string, o Options) (*Hold, error) {
	lock := r.client.object(name, r.kind)
	return lock.acquire(ctx, o)
}

// count counts a hold of the owner of a round, or removes one that was counted, and returns how many there are.
func (r *Redlock) count(q *round, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := [2]string{q.grant.name, q.grant.owner}
	if q.counted != (n > 0) {
		q.counted = n > 0
		r.holds[k] += n
	}
	if r.holds[k] == 0 {
		delete(r.holds, k)
	}
	return r.holds[k]
}
