package locktests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
	planted "github.com/lockchaos/lockchaos/mutants/broken"
)

// adversaryTime is the environment variable that says how long the adversary
// attacks, as a duration.
const adversaryTime = "LOCKCHAOS_TEST_ADVERSARY"

func attackTime(t *testing.T, byDefault time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(adversaryTime)
	if text == "" {
		return byDefault
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, adversaryTime)
	return d
}

// A way is one in which workers ask for locks.
type way struct {
	name    string
	locks   []string // which a grant holds
	permits int
	forGood bool // without a lease: what is lost stays lost
	writes  bool
	ask     func(ctx context.Context, c int, o lock.Options) (handle, error)
	says    question // optional
}

// A question is whether the master says that a grant is held.
type question func(ctx context.Context, master *lock.Client, l lock.Lease) (bool, error)

// An attack has many workers ask for few locks, over links and from servers that
// an adversary breaks. No data is lost, so all locks must keep their promises.
type attack struct {
	seed    uint64
	ways    []way
	locks   map[string]*beliefs
	clients []atomic.Pointer[lock.Client]
	links   []*redistest.Link
	deploy  *movingMaster // nil where servers are independent
	strikes []func(t *testing.T, r *rand.Rand)
	askers  int // clients

	heals  sync.WaitGroup // of broken links
	asked  atomic.Int64   // questions to the server about a belief
	mu     sync.Mutex
	wrong  []string
	counts map[string]int // grants by way
}

// convict notes what is wrong.
func (a *attack) convict(what string) {
	if what == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong = append(a.wrong, what)
}

func (a *attack) verdict() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.wrong)
}

// movingMaster is a master and a replica, behind an address that moves.
type movingMaster struct {
	name    *redistest.Name
	servers [2]*redistest.Server // the first is the master
	admins  [2]*lock.Client      // of either
	moves   atomic.Int64         // odd while the master moves
}

func newMovingMaster(t *testing.T) *movingMaster {
	t.Helper()
	m := &movingMaster{name: &redistest.Name{}}
	m.servers[0] = redistest.Start(t)
	m.servers[1], _ = m.servers[0].Replica(t)
	for i, s := range m.servers {
		m.admins[i] = open(t, s, lock.Config{Batch: -1})
	}
	m.name.Move(m.servers[0])
	return m
}

// failover makes the replica the master, and loses nothing.
func (m *movingMaster) failover(t *testing.T) {
	t.Helper()
	m.moves.Add(1)
	m.servers[0].SwapWith(t, m.servers[1], func() { m.name.Move(m.servers[1]) })
	m.servers[0], m.servers[1] = m.servers[1], m.servers[0]
	m.admins[0], m.admins[1] = m.admins[1], m.admins[0]
	m.moves.Add(1)
}

// master is a client of the master, and valid tells whether it still is one. It is nil
// while the master moves.
func (m *movingMaster) master() (c *lock.Client, valid func() bool) {
	begin := m.moves.Load()
	if begin%2 == 1 {
		return nil, nil
	}
	c = m.admins[0]
	valid = func() bool { return m.moves.Load() == begin }
	return c, valid
}

// newAttack has clients of one deployment, each with a link of its own.
func newAttack(t *testing.T, m *movingMaster, clients int) (a *attack, rdbs []*redis.Client) {
	t.Helper()
	a = &attack{seed: rand.Uint64(), locks: map[string]*beliefs{}, deploy: m, askers: clients, counts: map[string]int{}}
	for range clients {
		o := optionsOf(m.name)
		a.over(o)
		rdb := redis.NewClient(o)
		t.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	return a, rdbs
}

// over makes a client use a link of its own.
func (a *attack) over(o *redis.Options) {
	l := &redistest.Link{}
	l.Use(o)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Second, 500*time.Millisecond, 500*time.Millisecond
	o.PoolSize = 20
	a.links = append(a.links, l)
}

// command sends one to a server, over a link without faults.
func (a *attack) command(t *testing.T, s *redistest.Server, args ...any) {
	t.Helper()
	rdb := s.Client(t, nil)
	defer rdb.Close()
	require.NoError(t, rdb.Do(t.Context(), args...).Err(), "%v", args)
}

// breakLinks are strikes at the links of clients.
func (a *attack) breakLinks() []func(t *testing.T, r *rand.Rand) {
	later := func(r *rand.Rand, heal func()) {
		after := time.Duration(r.IntN(300)) * time.Millisecond
		if r.IntN(8) == 0 {
			after += time.Second // as long as a lease
		}
		a.heals.Go(func() {
			<-time.After(after)
			heal()
		})
	}
	some := func(r *rand.Rand) *redistest.Link { return a.links[r.IntN(len(a.links))] }
	return []func(t *testing.T, r *rand.Rand){
		func(_ *testing.T, r *rand.Rand) { later(r, some(r).Cut()) },
		func(_ *testing.T, r *rand.Rand) { later(r, some(r).HoldRequests()) },
		func(_ *testing.T, r *rand.Rand) {
			_, deliver := some(r).HoldReplies("")
			later(r, deliver)
		},
	}
}

// disturbServers are strikes at the server that is the master.
func (a *attack) disturbServers() []func(t *testing.T, r *rand.Rand) {
	m := a.deploy
	send := func(args func(r *rand.Rand) []any) func(t *testing.T, r *rand.Rand) {
		return func(t *testing.T, r *rand.Rand) { t.Helper(); a.command(t, m.servers[0], args(r)...) }
	}
	return []func(t *testing.T, r *rand.Rand){
		send(func(*rand.Rand) []any { return []any{"SCRIPT", "FLUSH"} }),
		send(func(*rand.Rand) []any { return []any{"CLIENT", "KILL", "TYPE", "normal"} }),
		send(func(*rand.Rand) []any { return []any{"CLIENT", "KILL", "TYPE", "pubsub"} }),
		send(func(r *rand.Rand) []any {
			return []any{"CLIENT", "PAUSE", 20 + r.IntN(300), []string{"ALL", "WRITE"}[r.IntN(2)]}
		}),
	}
}

// moveMaster is a planned failover, after which subscriptions at the former master are
// left as they are, or closed.
func (a *attack) moveMaster(t *testing.T, r *rand.Rand) {
	t.Helper()
	a.deploy.failover(t)
	if r.IntN(2) == 0 {
		a.command(t, a.deploy.servers[1], "CLIENT", "KILL", "TYPE", "pubsub")
	}
}

// closeClient is the end of a client, in the middle of what its callers do, and the
// start of another one in its place.
func (a *attack) closeClient(t *testing.T, rdbs []*redis.Client, config lock.Config) func(*testing.T, *rand.Rand) {
	t.Helper()
	return func(_ *testing.T, r *rand.Rand) {
		i := r.IntN(len(rdbs))
		former := a.clients[i].Load()
		a.clients[i].Store(newClient(t, rdbs[i], config))
		former.Close()
	}
}

// run attacks for some time, and until there was a grant of each way, or until something
// is wrong. Permits without a lease are taken once before the attack, which may lose them all.
func (a *attack) run(t *testing.T, workers int, length time.Duration) {
	t.Helper()
	for _, w := range a.ways {
		if w.forGood {
			h, err := w.ask(t.Context(), 0, lock.Options{Wait: lock.Forever})
			require.NoError(t, err, w.name)
			require.NoError(t, h.release(t.Context()), w.name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	defer func() {
		cancel()
		done.Wait()
		a.heals.Wait()
	}()
	for i := range workers {
		done.Go(func() { a.work(ctx, i) })
	}
	r := rand.New(rand.NewPCG(a.seed, 0))
	for end := time.Now().Add(length); (time.Now().Before(end) || !a.everyWay()) && len(a.verdict()) == 0; {
		a.strikes[r.IntN(len(a.strikes))](t, r)
		<-time.After(time.Duration(30+r.IntN(500)) * time.Millisecond)
	}
}

// everyWay reports whether there was a grant of each way with a lease, and an answer of a
// server that can be asked about them.
func (a *attack) everyWay() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.ways {
		if a.counts[w.name] == 0 && !w.forGood || w.says != nil && a.asked.Load() == 0 {
			return false
		}
	}
	return true
}

// work asks for locks until the context ends.
func (a *attack) work(ctx context.Context, i int) {
	r := rand.New(rand.NewPCG(a.seed, uint64(i)+1))
	for ctx.Err() == nil && len(a.verdict()) == 0 {
		a.turn(ctx, r, a.ways[r.IntN(len(a.ways))], 0, "")
		<-time.After(time.Duration(r.IntN(60)) * time.Millisecond)
	}
}

// options are random ones.
func options(r *rand.Rand) lock.Options {
	var o lock.Options
	if r.IntN(2) == 0 {
		o.Owner = fmt.Sprint("owner-", r.IntN(12)) // whom several workers share
	}
	switch r.IntN(8) {
	case 0: // a watchdog
	case 1:
		o.Lease = time.Duration(1+r.IntN(2000)) * time.Millisecond
	default:
		o.Lease = time.Duration(20+r.IntN(400)) * time.Millisecond
	}
	switch r.IntN(5) {
	case 0:
	case 1:
		o.Wait = lock.Forever
	default:
		o.Wait = time.Duration(1+r.IntN(2000)) * time.Millisecond
	}
	return o
}

// turn is one request, and what becomes of the grant. The one that enters again does
// so as the owner of the first.
func (a *attack) turn(ctx context.Context, r *rand.Rand, w way, depth int, owner string) {
	o := options(r)
	if depth > 0 {
		o.Owner = owner
	}
	limit := 3 * time.Second
	if r.IntN(4) == 0 {
		limit = time.Duration(r.IntN(400)) * time.Millisecond
	}
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var before []int64
	for _, name := range w.locks {
		before = append(before, a.locks[name].newest())
	}
	h, err := w.ask(asking, r.IntN(a.askers), o)
	if err != nil {
		return
	}
	b := &belief{hold: h.hold, owner: fmt.Sprint("permits ", r.Uint64()), permits: w.permits, writes: w.writes}
	if h.hold != nil {
		b.owner = h.hold.Lease().Owner
	}
	for i, name := range w.locks {
		a.convict(prefix(w.name, a.locks[name].begin(b, before[i])))
	}
	a.mu.Lock()
	a.counts[w.name]++
	a.mu.Unlock()
	for range r.IntN(4) {
		<-time.After(time.Duration(r.IntN(15)) * time.Millisecond)
		for _, name := range w.locks {
			a.convict(prefix(w.name, a.locks[name].look()))
		}
		switch {
		case r.IntN(3) == 0:
			a.ask(ctx, w, b)
		case h.hold != nil && r.IntN(5) == 0:
			extending, cancel := context.WithTimeout(ctx, time.Second)
			_ = h.hold.Extend(extending, time.Duration(20+r.IntN(1000))*time.Millisecond)
			cancel()
		case o.Owner != "" && depth < 2 && r.IntN(5) == 0:
			a.turn(ctx, r, w, depth+1, o.Owner)
		}
	}
	for _, name := range w.locks {
		a.locks[name].end(b)
	}
	if o.Lease > 0 && h.hold != nil && r.IntN(30) == 0 {
		return // as a process that dies
	}
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if r.IntN(10) == 0 {
		cancel()
	}
	held := b.holds() // and so it was before
	if err = h.release(releasing); held && errors.Is(err, lock.ErrNotHeld) && time.Now().Before(b.ends()) {
		a.convict(prefix(w.name, fmt.Sprintf("the release of a hold of %s that had not ended: %v", b.owner, err)))
	}
}

func prefix(name, wrong string) string {
	if wrong == "" {
		return ""
	}
	return name + ": " + wrong
}

// ask compares a belief with what the master says, if the holder believed before and
// believes after the answer.
func (a *attack) ask(ctx context.Context, w way, b *belief) {
	if w.says == nil || b.hold == nil {
		return
	}
	master, isMaster := a.deploy.master()
	lease := b.hold.Lease()
	if master == nil || !b.holds() {
		return
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	yes, err := w.says(ctx, master, lease)
	if err != nil || !isMaster() || !b.holds() {
		return
	}
	a.asked.Add(1)
	if !yes {
		a.convict(prefix(w.name, fmt.Sprintf("%s believes in its hold %s until %v from now; the server, asked %v ago, says that it is not held",
			b.owner, lease.Request, time.Until(b.ends()), time.Since(begin))))
	}
}

// require fails the test if something is wrong.
func (a *attack) require(t *testing.T) {
	t.Helper()
	if wrong := a.verdict(); len(wrong) > 0 {
		t.Fatalf("seed %d: %d times:\n%s", a.seed, len(wrong), strings.Join(wrong[:min(5, len(wrong))], "\n"))
	}
}

// permitsOfEach is how many permits a semaphore has.
const permitsOfEach = 3

// allKinds are the ways to ask for every kind of lock. Those that exclude each other
// are asked for under one name.
func (a *attack) allKinds(t *testing.T, rdbs []*redis.Client, config lock.Config) {
	t.Helper()
	a.clients = make([]atomic.Pointer[lock.Client], len(rdbs))
	for i, rdb := range rdbs {
		a.clients[i].Store(newClient(t, rdb, config))
	}
	for _, name := range []string{"orders", "parts", "stock"} {
		a.locks[name] = newBeliefs(oneOwner)
	}
	a.locks["prices"], a.locks["slots"], a.locks["seats"] = newBeliefs(oneWriter), newBeliefs(atMost(permitsOfEach)), newBeliefs(atMost(permitsOfEach))
	for _, name := range []string{"slots", "seats"} {
		_, err := a.deploy.admins[0].Semaphore(name).TrySetPermits(t.Context(), permitsOfEach)
		require.NoError(t, err)
	}
	says := func(name string) question {
		return func(ctx context.Context, c *lock.Client, l lock.Lease) (bool, error) {
			s, err := c.Mutex(name).State(ctx)
			return s.Holds > 0 && (s.Owner == l.Owner || !strings.HasPrefix(l.Owner, "owner-")), err // it may have been passed on in memory
		}
	}
	// holds adds a way: with a lock of a client that holds all of the names.
	holds := func(what string, says question, of func(*lock.Client) lock.Locker, names ...string) {
		a.ways = append(a.ways, way{
			name: what + " " + strings.Join(names, "+"), locks: names, writes: strings.HasPrefix(what, "write"), says: says,
			ask: func(ctx context.Context, c int, o lock.Options) (handle, error) {
				return holding(of(a.clients[c].Load()).Acquire(ctx, names[0], o))
			},
		})
	}
	mutex := func(c *lock.Client) lock.Locker { return c }
	holds("mutex", says("orders"), mutex, "orders")
	holds("mutex", says("parts"), mutex, "parts")
	for _, name := range []string{"orders", "stock"} {
		holds("fenced", says(name), (*lock.Client).Fenced, name)
		holds("fair", says(name), (*lock.Client).Fair, name)
		holds("spin", says(name), func(c *lock.Client) lock.Locker { return c.Spin(lock.Backoff{}) }, name)
	}
	holds("multi", func(ctx context.Context, c *lock.Client, l lock.Lease) (bool, error) {
		parts, err := says("parts")(ctx, c, l)
		if err != nil || !parts {
			return parts, err
		}
		return says("stock")(ctx, c, l)
	}, func(c *lock.Client) lock.Locker { return asOne(t, named(c, "parts", "stock")...) }, "parts", "stock")
	for _, o := range []lock.RWOptions{plainRW, preferWriters} {
		side := func(of func(lock.RWState) int) question {
			return func(ctx context.Context, c *lock.Client, l lock.Lease) (bool, error) {
				s, err := c.RWMutex("prices", o).State(ctx, l.Owner)
				return of(s) > 0, err
			}
		}
		reads, writes := side(func(s lock.RWState) int { return s.OwnReads }), side(func(s lock.RWState) int { return s.OwnWrites })
		which := fmt.Sprintf(" (writers preferred: %t)", o.PreferWriters)
		holds("read"+which, reads, func(c *lock.Client) lock.Locker { return c.Readers(o) }, "prices")
		holds("write"+which, writes, func(c *lock.Client) lock.Locker { return c.Writers(o) }, "prices")
	}
	for n := 1; n <= 2; n++ {
		a.ways = append(a.ways, way{
			name: fmt.Sprint(n, " permits"), locks: []string{"slots"}, permits: n,
			ask: func(ctx context.Context, c int, o lock.Options) (handle, error) {
				return holding(a.clients[c].Load().Semaphore("slots").Lease(ctx, n, o))
			},
			says: func(ctx context.Context, c *lock.Client, _ lock.Lease) (bool, error) {
				s, err := c.Semaphore("slots").State(ctx)
				return s.Acquired >= n, err
			},
		}, way{
			name: fmt.Sprint(n, " permits for good"), locks: []string{"seats"}, permits: n, forGood: true,
			ask: func(ctx context.Context, c int, o lock.Options) (handle, error) {
				s := a.clients[c].Load().Semaphore("seats")
				return handle{release: func(ctx context.Context) error { return s.Release(ctx, n) }}, s.Acquire(ctx, n, o.Wait)
			},
		})
	}
}

// requireFree fails the test unless every lock can be had as soon as the last lease is
// over, and nothing is left on the master but what is documented.
func (a *attack) requireFree(t *testing.T) {
	t.Helper()
	c := a.deploy.admins[0]
	fair := c.Fair() // refused also if a waiter counts as alive
	all := map[string]lock.Locker{
		"prices": c.Writers(plainRW), "slots": c.Permits(permitsOfEach), "orders": fair, "parts": fair, "stock": fair,
	}
	for name, l := range all {
		redistest.Await(t, name+" to be free", func() bool {
			h, err := l.Acquire(t.Context(), name, lock.Options{Lease: long})
			return err == nil && h.Release(t.Context()) == nil
		})
	}
	rdb := a.deploy.servers[0].Client(t, nil)
	for _, key := range keysLeft(t, rdb) {
		if key == "lock:{seats}:semaphore" || key == "lock:{slots}:semaphore" {
			continue // how many permits there are
		}
		life, err := rdb.PTTL(t.Context(), key).Result() // a queue ends by itself
		require.NoError(t, err)
		require.NotEqual(t, time.Duration(-1), life, "%s stays for ever", key)
		require.LessOrEqual(t, life, 15*time.Second, key)
	}
}

func holding(h *lock.Hold, err error) (handle, error) {
	if err != nil {
		return handle{}, err
	}
	return handle{hold: h, release: h.Release}, nil
}

// All locks keep their promises while an adversary breaks the links of the clients,
// closes clients, disturbs the servers, and moves the master. Afterwards they are free.
func TestAdversary(t *testing.T) {
	t.Parallel()
	a, rdbs := newAttack(t, newMovingMaster(t), 5)
	config := lock.Config{Watchdog: shortWatchdog}
	a.allKinds(t, rdbs, config)
	link, server := a.breakLinks(), a.disturbServers()
	a.strikes = slices.Concat(link, link, link, server, []func(*testing.T, *rand.Rand){
		a.moveMaster, a.moveMaster, a.closeClient(t, rdbs, config),
	})
	a.run(t, 60, attackTime(t, 10*time.Second))
	a.require(t)
	a.requireFree(t)
}

// The same where a replica must acknowledge each grant, and stands still now and then.
func TestAdversaryOfAcknowledgedGrants(t *testing.T) {
	t.Parallel()
	a, rdbs := newAttack(t, newMovingMaster(t), 3)
	a.allKinds(t, rdbs, lock.Config{Watchdog: shortWatchdog, ReplicaAcks: 1, AckTimeout: 300 * time.Millisecond})
	pause := func(t *testing.T, r *rand.Rand) {
		t.Helper()
		pause(t, r, a.deploy.servers[1])
	}
	a.strikes = slices.Concat(a.breakLinks(), a.disturbServers(), []func(*testing.T, *rand.Rand){a.moveMaster, pause, pause})
	a.run(t, 30, attackTime(t, 5*time.Second))
	a.require(t)
	a.requireFree(t)
}

// pause stops a server for some moments.
func pause(t *testing.T, r *rand.Rand, s *redistest.Server) {
	t.Helper()
	resume := s.Pause(t)
	<-time.After(time.Duration(50+r.IntN(600)) * time.Millisecond)
	resume()
}

// The same for a lock on three independent servers, of which each is out of reach now
// and then.
func TestAdversaryOfAQuorum(t *testing.T) {
	t.Parallel()
	var one lock.Locker
	a := attackQuorum(t, func(servers []redis.UniversalClient) lock.Locker {
		r, err := lock.NewRedlock(servers, lock.RedlockConfig{Watchdog: shortWatchdog, RetryDelay: 10 * time.Millisecond, NodeTimeout: 200 * time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(r.Close)
		one = r
		return r
	})
	a.run(t, 20, attackTime(t, 5*time.Second))
	a.require(t)
	redistest.Await(t, "the lock to be free", func() bool {
		h, err := one.Acquire(t.Context(), "orders", lock.Options{Lease: long})
		return err == nil && h.Release(t.Context()) == nil
	})
}

// attackQuorum is an attack on a lock on three independent servers.
func attackQuorum(t *testing.T, of func(servers []redis.UniversalClient) lock.Locker) *attack {
	t.Helper()
	a := &attack{seed: rand.Uint64(), locks: map[string]*beliefs{"orders": newBeliefs(oneOwner)}, askers: 4, counts: map[string]int{}}
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	var lockers []lock.Locker
	for range a.askers {
		var rdbs []redis.UniversalClient
		for _, s := range servers {
			rdbs = append(rdbs, s.Client(t, a.over))
		}
		lockers = append(lockers, of(rdbs))
	}
	a.ways = []way{{name: "quorum", locks: []string{"orders"}, ask: func(ctx context.Context, c int, o lock.Options) (handle, error) {
		return holding(lockers[c].Acquire(ctx, "orders", o))
	}}}
	some := func(r *rand.Rand) *redistest.Server { return servers[r.IntN(len(servers))] }
	a.strikes = append(
		a.breakLinks(),
		func(t *testing.T, r *rand.Rand) { t.Helper(); a.command(t, some(r), "SCRIPT", "FLUSH") },
		func(t *testing.T, r *rand.Rand) {
			t.Helper()
			a.command(t, some(r), "CLIENT", "KILL", "TYPE", "normal")
		},
		func(t *testing.T, r *rand.Rand) { t.Helper(); pause(t, r, some(r)) },
	)
	return a
}

// What finds nothing wrong with a correct lock finds planted bugs: a waiter that takes a
// message for a grant, and a quorum that is none.
func TestAdversaryConvicts(t *testing.T) {
	t.Parallel()
	t.Run("a grant by message", func(t *testing.T) {
		t.Parallel()
		m := newMovingMaster(t)
		a, rdbs := newAttack(t, m, 5)
		var lockers []*planted.Lock
		for _, rdb := range rdbs {
			l := planted.GrantedByMessage(planted.Setup{Servers: []redis.UniversalClient{rdb}})
			t.Cleanup(l.Close)
			lockers = append(lockers, l)
		}
		a.locks["orders"] = newBeliefs(oneOwner)
		a.ways = []way{{name: "hand-over", locks: []string{"orders"}, ask: func(ctx context.Context, c int, o lock.Options) (handle, error) {
			o.Owner = "" // it is not re-entrant
			return holding(lockers[c].Acquire(ctx, "orders", o))
		}}}
		a.strikes = []func(*testing.T, *rand.Rand){func(t *testing.T, _ *rand.Rand) { t.Helper(); m.failover(t) }}
		a.run(t, 20, time.Minute)
		require.NotEmpty(t, a.verdict())
	})
	t.Run("half of a quorum", func(t *testing.T) {
		t.Parallel()
		a := attackQuorum(t, func(servers []redis.UniversalClient) lock.Locker {
			l := planted.HalfQuorum(planted.Setup{Servers: servers})
			t.Cleanup(l.Close)
			return l
		})
		a.run(t, 20, time.Minute)
		require.NotEmpty(t, a.verdict())
	})
}
