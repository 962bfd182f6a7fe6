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
		return workload.WithTokens(c)
	case st.resources.Checked:
		return st.resources.tickets.Of(c, name, owner)
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
	tickets workload.Tickets
	mu      sync.Mutex
	inside  map[string]*workload.Register // by name

	server topologies.Deployment            // of Redis resources; else nil
	byZone map[string]workload.RedisCounter // their clients and guards
}

// openResources makes them. A resource on Redis has a server of its own, that of
// a topology single: a resource that died with the lock's server, or forgot as
// much as a replica that is promoted, would show nothing of the lock.
func openResources(ctx context.Context, p ResourceConfig, b topologies.Backend) (*resources, error) {
	r := &resources{ResourceConfig: p, inside: map[string]*workload.Register{}, byZone: map[string]workload.RedisCounter{}}
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
		on := workload.RedisCounter{Client: redis.NewClient(o)}
		on.Guard, err = fence.NewRedis(on.Client, fence.Config{})
		if r.byZone[zone] = on; err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

// of is the counter of that name, as a zone reaches it.
func (r *resources) of(zone, name string) workload.Counter {
	if on, there := r.byZone[zone]; there {
		on.Key = "resource:" + name
		return on
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside[name] == nil {
		r.inside[name] = &workload.Register{Ledger: r.Kind == ResourceLedger}
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
		errs = append(errs, on.Client.Close())
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	return errors.Join(errs...)
}
