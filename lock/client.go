package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/internal/wakeup"
)

const (
	defaultPrefix   = "lock"
	defaultWatchdog = 30 * time.Second
	defaultDrift    = 0.01
	defaultBatch    = 128
	defaultAcks     = time.Second
	defaultTokens   = 24 * time.Hour
	// defaultBeat is three requests of a waiter. One whose request was lost learns of that
	// after the read timeout, 5s with the defaults of go-redis. It may be passed by then,
	// and has its place back with the next request.
	defaultBeat = 5 * time.Second
	// driftFloor is added to the drift margin, as Redlock does for the
	// precision of Redis' expiry and small leases.
	driftFloor = 2 * time.Millisecond
	// markLife is how long a released request is remembered, for repetitions.
	markLife = 15 * time.Second
	// countedMarkLife is how long a change is remembered that has no lease, so that a repetition which came after it
	// would count for good. A request is repeated for transport.RetryLimit; its last repetition, and the withdrawal of what
	// it came to, have as long again.
	countedMarkLife = 5 * time.Minute
	// withdrawLimit bounds the undoing of a grant for which no call waits.
	withdrawLimit = 5 * time.Second
)

// Config says how a [Client] works. The zero value is a good start.
type Config struct {
	// Prefix begins the name of every key and channel, followed by a colon. It
	// has no braces. Default: "lock".
	Prefix string
	// Watchdog is the lease of a hold that asked for none. It is renewed every
	// third of that time. At least 10ms, and more than Drift takes. Default: 30s.
	Watchdog time.Duration
	// Drift is how much faster the server's clock may run than ours, as a
	// fraction. So much of a lease, plus 2ms, is left out of
	// [Lease.Expires]: the clock drift factor of Redlock,
	// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/.
	// Less than 1. Default: 0.01.
	Drift float64
	// ReplicaAcks is how many replicas must have a grant, or an extension,
	// before it counts (WAIT). A master that sees fewer grants nothing. A waiter
	// that is handed a lock then asks once more, so that replicas acknowledge its
	// grant. Default: 0, the master alone.
	ReplicaAcks int
	// AckTimeout is how long to wait for them, at least 1ms and less than the
	// read timeout of the Redis client. Default: 1s.
	AckTimeout time.Duration
	// TokenLife is how long the last token of a [FencedMutex] is remembered
	// after a grant. It is what a server's clock may be set back without a token
	// being given that is no greater than an older one. At least a second.
	// Default: 24h.
	TokenLife time.Duration
	// Heartbeat is how long a waiter of a [FairMutex] or a semaphore, or a preferred writer of a
	// [RWMutex], that isn't heard of still counts as alive. It asks every third of it, and at least every 3s. At least
	// 100ms, and three times AckTimeout where replicas must acknowledge a grant.
	// Default: 5s, or three times AckTimeout where that is longer.
	Heartbeat time.Duration
	// Batch is how many times in a row a grant of a [Mutex] may be passed on from one
	// caller of this client to the next in memory, without a request, and for 5ms at
	// most. Then it is released to the one that has waited longest on the server.
	// Callers that name an [Options.Owner] have no part in that. -1: never. Default:
	// 128.
	Batch int
	// Observer is told what happens. Default: none.
	Observer Observer
}

// mistakes are what is wrong with some settings.
type mistakes []error

// note adds a mistake if it is one.
func (m *mistakes) note(is bool, format string, args ...any) {
	if is {
		*m = append(*m, fmt.Errorf(format, args...))
	}
}

// Validate joins everything that is wrong with the configuration.
func (c Config) Validate() error {
	var wrong mistakes
	wrong.note(strings.ContainsAny(c.Prefix, "{}"),
		"prefix %q: leave out the braces, they would move the keys of a lock apart", c.Prefix)
	wrong.note(c.Watchdog != 0 && c.Watchdog < 10*time.Millisecond,
		"watchdog of %v: give at least 10ms, or 0 for %v", c.Watchdog, defaultWatchdog)
	noFraction := c.Drift < 0 || c.Drift >= 1 || math.IsNaN(c.Drift)
	wrong.note(noFraction, "drift of %v: give a fraction below 1, or 0 for %v", c.Drift, defaultDrift)
	d := c.withDefaults()
	wrong.note(!noFraction && d.Watchdog >= 10*time.Millisecond && d.Watchdog <= d.margin(d.Watchdog),
		"watchdog of %v, of which the drift takes %v: give a longer lease or a smaller drift", d.Watchdog, d.margin(d.Watchdog))
	wrong.note(c.ReplicaAcks < 0, "%d replica acks: give a number of replicas, or 0", c.ReplicaAcks)
	wrong.note(c.AckTimeout != 0 && c.AckTimeout < time.Millisecond,
		"ack timeout of %v: give at least 1ms, or 0 for %v", c.AckTimeout, defaultAcks)
	wrong.note(c.Batch < -1, "batch of %d: give a number, -1 for none, or 0 for %d", c.Batch, defaultBatch)
	wrong.note(c.TokenLife != 0 && c.TokenLife < time.Second,
		"token life of %v: give at least 1s, or 0 for %v", c.TokenLife, defaultTokens)
	least := 100 * time.Millisecond
	if c.ReplicaAcks > 0 { // which every request awaits
		least = max(least, 3*d.AckTimeout)
	}
	wrong.note(c.Heartbeat != 0 && c.Heartbeat < least, "heartbeat of %v: give at least %v, or 0 for the default", c.Heartbeat, least)
	return errors.Join(wrong...)
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.Watchdog = cmp.Or(c.Watchdog, defaultWatchdog)
	c.Drift = cmp.Or(c.Drift, defaultDrift)
	c.AckTimeout = cmp.Or(c.AckTimeout, defaultAcks)
	c.TokenLife = cmp.Or(c.TokenLife, defaultTokens)
	c.Batch = cmp.Or(c.Batch, defaultBatch)
	c.Heartbeat = cmp.Or(c.Heartbeat, max(defaultBeat, 3*c.AckTimeout))
	return c
}

// A Client makes locks on one Redis deployment. It is a [Locker] with the
// meaning of [Mutex], and safe for concurrent use. Make it with [New] and end it
// with Client.Close or Client.Shutdown.
type Client struct {
	rdb       redis.UniversalClient
	config    Config
	inbox     string       // the channel on which it is told what was handed to it
	node      string       // the server, if there is just one
	seed      maphash.Seed // of a hash of the names of locks
	contended [256]atomic.Bool
	wakeups   *wakeup.Wakeups
	queues    *localQueues
	transport *transport.Transport
	denied    atomic.Bool // its user may not publish
	*taskGroup
}

var _ Locker = (*Client)(nil)

// New returns a client that keeps its locks on rdb: a single server, a failover
// client of Sentinel or a cluster. It sends nothing yet, and never closes rdb. It may be wrapped: by a struct that embeds a
// [redis.Client] or a [redis.ClusterClient], whose options count then, or by one that has the methods of a client of one server
// alone.
//
// Give rdb the option ContextTimeoutEnabled: a caller then sends a request by its own goroutine, which costs half as
// much processor time.
//
// Each request is sent once, and repeated as the options of rdb say. The hooks of rdb
// see each request, also those that are added later. A hook that itself sends a request
// once more is one that the library doesn't know of: the copy may be granted the lock,
// without a hold, until its lease ends.
func New(rdb redis.UniversalClient, c Config) (*Client, error) {
	if err := errors.Join(c.Validate(), suits(rdb, c.withDefaults())); err != nil {
		return nil, fmt.Errorf("configure lock client: %w", err)
	}
	return newClient(rdb, c.withDefaults()), nil
}

func newClient(rdb redis.UniversalClient, c Config) *Client {
	client := &Client{
		rdb: rdb, config: c, inbox: c.Prefix + ":inbox:" + rand.Text(), seed: maphash.MakeSeed(), taskGroup: &taskGroup{closing: make(chan struct{})},
		queues: &localQueues{of: map[queueKey]*localQueue{}},
	}
	if one, ok := rdb.(*redis.Client); ok && one.Options().Addr != failoverAddr {
		client.node = one.Options().Addr
	}
	client.wakeups = wakeup.New(rdb, client.inbox, client.background, client.closing)
	client.transport = transport.New(rdb, c.ReplicaAcks, c.AckTimeout, client.background)
	return client
}

// failoverAddr is what go-redis calls the address of a failover client.
const failoverAddr = "FailoverClient"

// suits joins the reasons why a Redis client can't keep the locks.
func suits(rdb redis.UniversalClient, c Config) error {
	var timeout time.Duration
	switch rdb := rdb.(type) {
	case nil:
		return errors.New("no Redis client: pass one to New")
	case *redis.Ring:
		return errors.New("a ring moves a lock to another server when a shard is down: use a single server, a failover client or a cluster")
	case *redis.Client:
		timeout = rdb.Options().ReadTimeout
	case *redis.ClusterClient:
		timeout = rdb.Options().ReadTimeout
	default:
		if c.ReplicaAcks > 0 {
			return fmt.Errorf("replica acks need one connection for two commands, which a %T can't promise: use a *redis.Client or *redis.ClusterClient", rdb)
		}
	}
	if c.ReplicaAcks > 0 && timeout > 0 && c.AckTimeout >= timeout {
		return fmt.Errorf("ack timeout of %v: give less than the read timeout of the Redis client, %v", c.AckTimeout, timeout)
	}
	return nil
}

// isContended is whether the last request of this client for a lock was refused, so the next is not a first one
// that would be refused too: a lock that changes hands costs two requests. Some names share it.
func (c *Client) isContended(name string) *atomic.Bool {
	return &c.contended[maphash.String(c.seed, name)%uint64(len(c.contended))]
}

// Acquire locks the [Mutex] of that name.
func (c *Client) Acquire(ctx context.Context, name string, o Options) (*Hold, error) {
	return c.Mutex(name).Acquire(ctx, o)
}

// tell tells the observer what happened.
func (c *Client) tell(ctx context.Context, kind EventKind, l Lease, took time.Duration, err error) {
	if c.config.Observer != nil {
		c.config.Observer.Observe(Event{Kind: kind, Lease: l, At: time.Now(), Took: took, Err: err, Context: ctx})
	}
}

// expires is the last instant at which the holder may believe in a lease whose
// request was sent then.
func (c *Client) expires(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - c.config.margin(lease))
}

// margin is how much of a lease is left out for the drift.
func (c Config) margin(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*c.Drift) + driftFloor
}

// milliseconds rounds up, so that the server never ends a lease before we do.
func milliseconds(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}

// duration is that many milliseconds, as many as a Duration can say.
func duration(ms int64) time.Duration {
	return time.Duration(min(ms, int64(Forever/time.Millisecond))) * time.Millisecond
}
