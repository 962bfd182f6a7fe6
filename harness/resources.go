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

// protect opens what the locks of the run protect.
func (st *Session) protect(ctx context.Context, p ResourceConfig) error {
	r, err := openResources(ctx, p, st.Backend)
	if err != nil {
		return err
	}
	st.resources, st.resourceServer = r, r.server
	return nil
}

// keep records what the resources of a run saw, and ends them.
func (st *Session) keep(ctx context.Context) error {
	r := st.resources
	if r == nil {
		return nil
	}
	healed := st.HealAll(ctx) // of the resource's own links, while it is there
	st.run.Ledger = r.audit()
	return errors.Join(healed, r.keep(st.Dir), r.close())
}

// Resource is the resource of that name, as an owner in a zone reaches it.
func (st *Session) Resource(zone, name, owner string) workload.Resource {
	r := st.resources.of(zone, name)
	if m, ok := r.(marked); ok {
		return &checked{m, owner}
	}
	return r
}

// Written reports whether the ledger of that name has a change by the owner.
func (st *Session) Written(name, owner string) bool {
	r := st.resources
	r.mu.Lock()
	l := r.ledgers[name]
	r.mu.Unlock()
	return l != nil && slices.ContainsFunc(l.Changes(), func(c workload.Change) bool { return c.Owner == owner })
}

// resources are what the locks of a run protect. Make them with openResources.
type resources struct {
	ResourceConfig
	guard   fence.Guard
	mu      sync.Mutex
	inside  map[string]workload.Resource // by name
	ledgers map[string]*workload.Ledger

	server topologies.Deployment        // of Redis resources; else nil
	byZone map[string]*redis.Client     // their clients
	guards map[string]*fence.RedisGuard // and guards
}

// openResources makes them. A resource on Redis has a server of its own, that of
// a topology single: a resource that died with the lock's server, or forgot as
// much as a replica that is promoted, would show nothing of the lock.
func openResources(ctx context.Context, p ResourceConfig, b topologies.Backend) (*resources, error) {
	r := &resources{ResourceConfig: p, inside: map[string]workload.Resource{}, ledgers: map[string]*workload.Ledger{}}
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
	r.byZone, r.guards = map[string]*redis.Client{}, map[string]*fence.RedisGuard{}
	for _, zone := range t.Of(topologies.Zone) {
		o := r.server.ClientOptions(zone).Simple()
		o.ReadTimeout = resourceTimeout // a script may hold a write up for as long as a lease lasts
		c := redis.NewClient(o)
		r.byZone[zone] = c
		if r.guards[zone], err = fence.NewRedis(c, fence.Config{}); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

// of is the resource of that name, as a zone reaches it.
func (r *resources) of(zone, name string) workload.Resource {
	if c := r.byZone[zone]; c != nil {
		on := onRedis{client: c, key: "resource:" + name}
		if r.Fencing {
			return &fencedRedis{on, r.guards[zone]}
		}
		if r.Checked {
			return &markedRedis{on}
		}
		return &on
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.inside[name]
	if found == nil {
		found = &workload.Register{}
		if r.Kind == ResourceLedger {
			r.ledgers[name] = &workload.Ledger{}
			found = r.ledgers[name]
		}
		if r.Fencing {
			found = &fenced{found, &r.guard, name}
		}
		if r.Checked {
			found = &markedInside{Resource: found}
		}
		r.inside[name] = found
	}
	return found
}

// all are the resources of the locks, as a zone reaches them.
func (r *resources) all(zone string, locks []string) map[string]workload.Resource {
	all := map[string]workload.Resource{}
	for _, name := range locks {
		all[name] = r.of(zone, name)
	}
	return all
}

// An entry is a line of a [LedgerFile].
type entry struct {
	Resource string `json:"resource"`
	workload.Change
}

// keep writes what ledgers saw into a run directory.
func (r *resources) keep(dir string) error {
	if r.Kind != ResourceLedger {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, LedgerFile))
	if err != nil {
		return fmt.Errorf("keep ledger: %w", err)
	}
	enc := json.NewEncoder(f)
	for _, name := range slices.Sorted(maps.Keys(r.ledgers)) {
		for _, c := range r.ledgers[name].Changes() {
			err = errors.Join(err, enc.Encode(entry{name, c}))
		}
	}
	return errors.Join(err, f.Close())
}

// audit counts what the ledgers saw; nil where there are none.
func (r *resources) audit() *history.Ledger {
	if r.Kind != ResourceLedger {
		return nil
	}
	a := &history.Ledger{}
	for _, l := range r.ledgers {
		var greatest int64
		written := map[int64]bool{}
		for _, c := range l.Changes() {
			a.Changes++
			if written[c.Value] {
				a.Forks++
			}
			if c.Token < greatest {
				a.Stale++
			}
			written[c.Value], greatest = true, max(greatest, c.Token)
		}
	}
	return a
}

func (r *resources) close() error {
	var errs []error
	for _, c := range r.byZone {
		errs = append(errs, c.Close())
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	return errors.Join(errs...)
}

// A fenced resource refuses stale tokens.
type fenced struct {
	workload.Resource
	guard *fence.Guard
	name  string
}

// Present refuses a token that is smaller than one that was seen.
func (f *fenced) Present(_ context.Context, token int64) error {
	return asRefusal(f.guard.Check(f.name, token))
}

// Write stores the change unless a greater token was seen.
func (f *fenced) Write(ctx context.Context, c workload.Change) error {
	return asRefusal(f.guard.Do(f.name, c.Token, func() error { return f.Resource.Write(ctx, c) }))
}

// asRefusal makes a refusal of package fence one of a workload's resource.
func asRefusal(err error) error {
	if errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNotFenced) {
		return fmt.Errorf("%w: %w", workload.ErrRefused, err)
	}
	return err
}

// onRedis is a counter under a key of a Redis server.
type onRedis struct {
	client *redis.Client
	key    string
}

// Read asks for the value.
func (o *onRedis) Read(ctx context.Context) (int64, error) {
	n, err := o.client.Get(ctx, o.key).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

// Write sets the value.
func (o *onRedis) Write(ctx context.Context, c workload.Change) error {
	return o.client.Set(ctx, o.key, c.Value, 0).Err()
}

// fencedRedis is one that refuses stale tokens.
type fencedRedis struct {
	onRedis
	guard *fence.RedisGuard
}

// Present refuses a token that is smaller than one that the server saw.
func (f *fencedRedis) Present(ctx context.Context, token int64) error {
	return asRefusal(f.guard.Check(ctx, f.key, token))
}

// Write sets the value, unless the server saw a greater token.
func (f *fencedRedis) Write(ctx context.Context, c workload.Change) error {
	return asRefusal(f.guard.Set(ctx, f.key, c.Value, c.Token))
}
