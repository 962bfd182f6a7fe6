package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A Case is all that decides a run, as plain data: the same case of the same lock is
// the same run.
type Case struct {
	// Lock is the name of the lock under test.
	Lock string `json:"lock"`
	// Topology is one of [Topologies], and Servers how many are independent. Default 3.
	Topology string `json:"topology"`
	Servers  int    `json:"servers,omitempty"`
	// Seed decides the latency of messages and the choices of the clients. It has no
	// part in Plan.
	Seed uint64 `json:"seed"`
	// Plan is what goes wrong.
	Plan []world.Fault `json:"plan"`
	// Length is how long the workload goes on.
	Length time.Duration `json:"length"`
	// Progress is how long a lock may stay free and asked for. Default 2 s.
	Progress time.Duration `json:"progress,omitempty"`

	// Workload is what the clients do, as in a run on real servers.
	Workload string `json:"workload"`
	// Zones are processes, over which the clients are spread. Default: one for each.
	Zones    int           `json:"zones,omitempty"`
	Clients  int           `json:"clients"`
	Locks    int           `json:"locks,omitempty"` // default 1
	Hold     time.Duration `json:"hold,omitempty"`
	Think    time.Duration `json:"think,omitempty"`
	Lease    time.Duration `json:"lease,omitempty"`
	Wait     time.Duration `json:"wait,omitempty"`
	Permits  int           `json:"permits,omitempty"`
	Calm     time.Duration `json:"calm,omitempty"` // see [workload.Config]
	Careless bool          `json:"careless,omitempty"`
	Extends  bool          `json:"extends,omitempty"` // see [workload.Config.Extends]
	// GrantsOnly says that accesses of the resource convict no lock if a client is paused: a pause between
	// its look at the lease and its access has it use the resource late, whatever the lock does.
	GrantsOnly bool `json:"grants_only,omitempty"`

	// Fork has the run go on otherwise from an instant on; nil: it does not.
	Fork *Fork `json:"fork,omitempty"`

	ReplicaAcks int           `json:"replica_acks,omitempty"`
	Watchdog    time.Duration `json:"watchdog,omitempty"` // default 600 ms
}

// The defaults of a case.
const (
	defaultServers  = 3
	defaultProgress = 2 * time.Second
	defaultWatchdog = 600 * time.Millisecond
	maxZones        = 26
	maxLength       = time.Hour
	mostClients     = 1000
	mostServers     = 99
)

// Topologies lists what can be simulated.
func Topologies() []string { return onRedis() }

//nolint:gochecknoglobals // each case asks for them
var onRedis = sync.OnceValue(func() []string { return topologies.NamesOf(topologies.StoreRedis) })

// clusterMasters is how many masters a cluster has, with one replica each.
const clusterMasters = 3

// serverCount is how many Redis servers the case has.
func (c Case) serverCount() int {
	s := topologies.ShapeOf(c.Topology)
	if s.Apart() {
		return cmp.Or(c.Servers, defaultServers)
	}
	return s.Masters * (1 + s.Replicas)
}

// serverName is the name of a server, counted from 1.
func serverName(i int) string { return "redis-" + strconv.Itoa(i) }

// shardOfLocks is the shard of a cluster that has the first lock, counted from 0.
func (c Case) shardOfLocks(l harness.LockSpec) int {
	return world.ShardOf(traffic.KeySlot(l.KeyOf(c.config(l).LockNames()[0])), clusterMasters)
}

// Shard is the shard of a simulated cluster that has a server: the one that is its master at
// first, and the replica of that.
func Shard(server string) (master, replica string) {
	n, _ := strconv.Atoi(strings.TrimPrefix(server, "redis-")) // as serverName makes it
	n = (n-1)%clusterMasters + 1
	return serverName(n), serverName(n + clusterMasters)
}

// withDefaults fills in the defaults.
func (c Case) withDefaults() Case {
	c.Servers = cmp.Or(c.Servers, defaultServers)
	c.Progress = cmp.Or(c.Progress, defaultProgress)
	c.Watchdog = cmp.Or(c.Watchdog, defaultWatchdog)
	c.Locks = cmp.Or(c.Locks, 1)
	c.Zones = cmp.Or(c.Zones, c.Clients)
	return c
}

// Validate joins everything that is wrong with the case for a lock.
func (c Case) Validate(l harness.LockSpec) error {
	c = c.withDefaults()
	errs := []error{l.Validate(), Simulable(l, c.Topology)}
	if c.ReplicaAcks > 0 && !l.ReplicaAcks {
		errs = append(errs, fmt.Errorf("lock %s asks no replicas for an acknowledgement", l.Name))
	}
	if c.Clients < 1 || c.Zones < 1 || c.Zones > maxZones {
		errs = append(errs, fmt.Errorf("want clients, in 1 to %d zones, and not %d in %d", maxZones, c.Clients, c.Zones))
	}
	if c.Length <= 0 || c.Length > maxLength {
		errs = append(errs, fmt.Errorf("the length must be above 0 and at most %v, not %v", maxLength, c.Length))
	}
	if c.Progress < 0 || c.Watchdog < 0 || c.Calm < 0 || c.Fork != nil && c.Fork.At < 0 {
		errs = append(errs, errors.New("no time may be below 0"))
	}
	if max(c.Clients, c.Locks) > mostClients || c.Servers < 1 || c.Servers > mostServers {
		errs = append(errs, fmt.Errorf("want at most %d clients and locks, and 1 to %d servers", mostClients, mostServers))
	}
	kinds, err := workload.Parse(c.Workload)
	errs = append(errs, err)
	for _, k := range kinds {
		errs = append(errs, l.Suits(k))
	}
	return errors.Join(append(errs, c.config(l).Validate())...)
}

// Simulable says why a lock can't be simulated on a topology; nil if it can.
func Simulable(l harness.LockSpec, topology string) error {
	switch {
	case !slices.Contains(Topologies(), topology):
		return names.Unknown("simulated topology", topology, Topologies())
	case l.Connects:
		return fmt.Errorf("lock %s connects to servers by itself, and there are none to connect to in a simulation", l.Name)
	case l.Caches:
		return fmt.Errorf("lock %s needs client-side caching, which simulated servers do not have", l.Name)
	case l.InProcess == nil && l.Open == nil:
		return nil // which LockSpec.Validate says
	default:
		return l.On(topology, topologies.Options{}, harness.LockOptions{})
	}
}

// config is the workload.
func (c Case) config(l harness.LockSpec) workload.Config {
	w := workload.Config{
		Kinds: strings.Split(c.Workload, ","), Clients: c.Clients, Locks: c.Locks, Hold: c.Hold, Think: c.Think,
		Lease: c.Lease, Wait: c.Wait, Permits: c.Permits, Calm: c.Calm, Careless: c.Careless, Seed: c.Seed,
		Together: l.Together, Endless: l.Endless, Extends: c.Extends, Downgrades: l.Downgrades, Several: l.Several,
	}
	if l.Kind == history.KindSemaphore {
		w.Mode = history.Permit
	}
	return w.WithDefaults()
}

// A Record is what the record of a simulated run says of its case, as the settings of
// [history.Run].
type Record struct {
	Case Case `json:"simulated"`
	// Hash is that of the history: see [Outcome.Hash].
	Hash string `json:"hash"`
	// Exact says that the exact build ran it: see [Exact].
	Exact bool `json:"exact,omitempty"`
}

// RecordOf reads what a record says of the case of a simulated run.
func RecordOf(run history.Run) (Record, error) {
	var r Record
	if run.Backend != history.Simulated {
		return r, errors.New("it is no record of a simulated run: lockchaos run --replay repeats runs on real servers")
	}
	d := json.NewDecoder(bytes.NewReader(run.Settings))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("read the case of a simulated run: %w", err)
	}
	return r, nil
}
