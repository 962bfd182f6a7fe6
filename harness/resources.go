package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock/fence"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// The resources that locks can protect in a run.
const (
	// ResourceRegister is a counter in the harness's memory.
	ResourceRegister = "register"
	// ResourceLedger is a counter in the harness's memory that keeps every
	// change, with its owner and token; they are written to [LedgerFile].
	ResourceLedger = "ledger"
	// ResourceRedis is a counter on a Redis server of its own, which each zone
	// reaches through a link of its own.
	ResourceRedis = "redis"
)

// LedgerFile is where a run directory keeps what a ledger saw, as JSON lines.
const LedgerFile = "ledger.jsonl"

// ResourceNames lists the resources.
func ResourceNames() []string { return []string{ResourceRegister, ResourceLedger, ResourceRedis} }

// ResourceConfig says what the locks of a run protect.
type ResourceConfig struct {
	// Kind is one of [ResourceNames]; empty is the register.
	Kind string
	// Fencing has the resource refuse a token that is smaller than one that it
	// saw. It takes a lock that gives tokens.
	Fencing bool

	// Checked has the resource refuse a write whose owner was not the last to begin
	// one.
	Checked bool
}

// Validate joins what is wrong with the resource for a lock.
func (p ResourceConfig) Validate(l LockSpec) error {
	var errs []error
	if p.Kind != "" && !slices.Contains(ResourceNames(), p.Kind) {
		errs = append(errs, names.Unknown("resource", p.Kind, ResourceNames()))
	}
	if p.Fencing && l.Name != "" && !l.Token {
		errs = append(errs, fmt.Errorf("lock %s gives no fencing tokens for a resource to check: use mutex-fenced", l.Name))
	}
	return errors.Join(errs...)
}

// resourceTimeout is how long a client of a resource's server waits for a reply.
const resourceTimeout = 10 * time.Second

// attached is what the record calls the backend that starts nothing.
const attached = "attach"

// keep records what the resources of a run saw, and ends them.
func (st *Session) keep(ctx context.Context) error {
	if st.resources == nil {
		return nil
	}
	healed := st.HealAll(ctx) // of the resource's own links, while it is there
	return errors.Join(healed, st.audit(), st.resources.close())
}

// Resource is the resource of that name, as an owner in a zone reaches it.
func (st *Session) Resource(zone, name, owner string) workload.Resource {
	c := st.resources.of(zone, name)
	switch {
	case st.resources.Fencing:
		return fenced{c}
	case st.resources.Checked:
		return checked{c, owner}
	}
	return c
}

// Written reports whether the ledger of that name has a change by the owner.
func (st *Session) Written(name, owner string) bool {
	r := st.resources
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside[name] != nil && slices.ContainsFunc(r.inside[name].Changes(), func(c workload.Change) bool { return c.Owner == owner })
}

// resources are what the locks of a run protect. Make them with openResources.
type resources struct {
	ResourceConfig
	guard  fence.Guard
	mu     sync.Mutex
	inside map[string]*inside // by name

	server topologies.Deployment // of Redis resources; else nil
	byZone map[string]onRedis    // their clients and guards
}

// openResources makes them. A resource on Redis has a server of its own, that of
// a topology single: a resource that died with the lock's server, or forgot as
// much as a replica that is promoted, would show nothing of the lock.
func openResources(ctx context.Context, p ResourceConfig, b topologies.Backend) (*resources, error) {
	r := &resources{ResourceConfig: p, inside: map[string]*inside{}, byZone: map[string]onRedis{}}
	if p.Kind != ResourceRedis {
		return r, nil
	}
	t, err := topologies.ByName(topologies.Single)
	if err != nil {
		return nil, err
	}
	if r.server, err = b.Start(ctx, t); err != nil {
		return nil, fmt.Errorf("start the resource's server: %w", err)
	}
	for _, zone := range t.Of(topologies.Zone) {
		o := r.server.ClientOptions(zone).Simple()
		o.ReadTimeout = resourceTimeout // a script may hold a write up for as long as a lease lasts
		on := onRedis{client: redis.NewClient(o)}
		on.guard, err = fence.NewRedis(on.client, fence.Config{})
		if r.byZone[zone] = on; err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

// of is the counter of that name, as a zone reaches it.
func (r *resources) of(zone, name string) counter {
	if on, there := r.byZone[zone]; there {
		on.key = "resource:" + name
		return on
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside[name] == nil {
		r.inside[name] = &inside{Register: workload.Register{Ledger: r.Kind == ResourceLedger}, name: name, guard: &r.guard}
	}
	return r.inside[name]
}

// An entry is a line of a [LedgerFile].
type entry struct {
	Resource string `json:"resource"`
	workload.Change
}

// audit writes what ledgers saw into the run directory, and counts it.
func (st *Session) audit() error {
	r := st.resources
	if r.Kind != ResourceLedger {
		return nil
	}
	f, err := os.Create(filepath.Join(st.Dir, LedgerFile))
	if err != nil {
		return fmt.Errorf("keep ledger: %w", err)
	}
	enc := json.NewEncoder(f)
	seen := &history.Ledger{}
	for _, name := range slices.Sorted(maps.Keys(r.inside)) {
		var greatest int64
		written := map[int64]bool{}
		for _, c := range r.inside[name].Changes() {
			err = errors.Join(err, enc.Encode(entry{name, c}))
			seen.Changes++
			if written[c.Value] {
				seen.Forks++
			}
			if c.Token < greatest {
				seen.Stale++
			}
			written[c.Value], greatest = true, max(greatest, c.Token)
		}
	}
	st.run.Ledger = seen
	return errors.Join(err, f.Close())
}

func (r *resources) close() error {
	var errs []error
	for _, on := range r.byZone {
		errs = append(errs, on.client.Close())
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	return errors.Join(errs...)
}

// A counter can be written in three ways: whatever comes, by [fence] only what has no stale token, and only what
// its last owner writes. The mark of an owner has no order: the last one, however late, has it. That is the
// check-and-set of Sanfilippo, "Is Redlock safe?", 2016.
type counter interface {
	workload.Resource
	// present refuses a token that is smaller than one that was seen, and so does writeFenced.
	present(ctx context.Context, token int64) error
	writeFenced(ctx context.Context, c workload.Change) error
	// mark puts the owner's mark in the place of the one that is there. writeMarked
	// reports false, and writes nothing, if the mark is of another owner.
	mark(ctx context.Context, owner string) error
	writeMarked(ctx context.Context, c workload.Change) (bool, error)
}

// A fenced resource refuses stale tokens.
type fenced struct{ counter }

// Present refuses a stale token.
func (f fenced) Present(ctx context.Context, token int64) error {
	return asRefusal(f.present(ctx, token))
}

// Write stores the change unless its token is stale.
func (f fenced) Write(ctx context.Context, c workload.Change) error {
	return asRefusal(f.writeFenced(ctx, c))
}

// asRefusal makes a refusal of package fence one of a workload's resource.
func asRefusal(err error) error {
	if errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNotFenced) {
		return fmt.Errorf("%w: %w", workload.ErrRefused, err)
	}
	return err
}

// A checked resource, as one owner sees it, takes a write only from the owner who was the last to begin a change.
type checked struct {
	counter

	owner string
}

// Read begins a change: it leaves the mark before it reads, so that a change that another owner
// began before can't be written any more.
func (c checked) Read(ctx context.Context) (int64, error) {
	if err := c.mark(ctx, c.owner); err != nil {
		return 0, err
	}
	return c.counter.Read(ctx)
}

// Write stores the change if its owner's mark is still there.
func (c checked) Write(ctx context.Context, change workload.Change) error {
	done, err := c.writeMarked(ctx, change)
	if err == nil && !done {
		return fmt.Errorf("%w: another owner began a change after %s", workload.ErrRefused, change.Owner)
	}
	return err
}

// A counter inside the harness's memory: a register or a ledger.
type inside struct {
	workload.Register

	name  string
	guard *fence.Guard
	marks sync.Mutex
	last  string // the mark
}

func (i *inside) present(_ context.Context, token int64) error { return i.guard.Check(i.name, token) }

func (i *inside) writeFenced(ctx context.Context, c workload.Change) error {
	return i.guard.Do(i.name, c.Token, func() error { return i.Write(ctx, c) })
}

func (i *inside) mark(_ context.Context, owner string) error {
	i.marks.Lock()
	defer i.marks.Unlock()
	i.last = owner
	return nil
}

func (i *inside) writeMarked(ctx context.Context, c workload.Change) (bool, error) {
	i.marks.Lock()
	defer i.marks.Unlock()
	if i.last != c.Owner {
		return false, nil
	}
	return true, i.Write(ctx, c)
}

// A counter onRedis is under a key of a Redis server, and its mark under another.
type onRedis struct {
	client *redis.Client
	guard  *fence.RedisGuard
	key    string
}

// Read asks for the value.
func (o onRedis) Read(ctx context.Context) (int64, error) {
	n, err := o.client.Get(ctx, o.key).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

// Write sets the value.
func (o onRedis) Write(ctx context.Context, c workload.Change) error {
	return o.client.Set(ctx, o.key, c.Value, 0).Err()
}

func (o onRedis) present(ctx context.Context, token int64) error {
	return o.guard.Check(ctx, o.key, token)
}

func (o onRedis) writeFenced(ctx context.Context, c workload.Change) error {
	return o.guard.Set(ctx, o.key, c.Value, c.Token)
}

func (o onRedis) markKey() string { return o.key + ":mark" }

func (o onRedis) mark(ctx context.Context, owner string) error {
	return o.client.Set(ctx, o.markKey(), owner, 0).Err()
}

// checkAndSet writes a value if the mark is the one that is given.
const checkAndSet = `
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`

func (o onRedis) writeMarked(ctx context.Context, c workload.Change) (bool, error) {
	return o.client.Eval(ctx, checkAndSet, []string{o.key, o.markKey()}, c.Value, c.Owner).Bool()
}
