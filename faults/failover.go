package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// failoverSpecs are the faults that make a shard of a replicated deployment change
// its master: by crash, by request, and behind the back of a master that lives on.
func failoverSpecs() []Spec {
	shard := Param{Name: "shard", About: "its boot master; default the first"}
	specs := []Spec{
		{
			Name: "crash-failover", Summary: "kill the master and wait until a replica was promoted",
			Needs:  []topologies.Capability{topologies.Failovers, topologies.Processes},
			Target: AtDeployment, Params: []Param{shard},
			Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Promotes},
			Check: elects,
			Candidates: func(e Environment) []Candidate {
				return ofShards(e, Candidate{Weight: 8, Least: leastFor, Most: mostFor, Breaks: away(e)})
			},
			Observed: "the majority has another master", Healed: "the old master runs and follows the new one",
			Pitfall: "what a replica had is not lost: cut `redis>MASTER` first, if it is to be",
			Aim:     master,
			New: ofShard(func(site Site, d topologies.Failover, shard string, _ Step) Fault {
				return crashMaster(d, shard, site.Deployment.Server)
			}),
		},
		{
			Name: "failover", Summary: "ask the servers for a failover that nothing forces",
			Needs:  []topologies.Capability{topologies.Failovers, topologies.HandOvers},
			Target: AtDeployment, Params: []Param{shard},
			Life: history.Momentary, Effects: []history.Effect{history.Promotes},
			Check: elects,
			Candidates: func(e Environment) []Candidate {
				return ofShards(e, Candidate{Weight: 4, Breaks: away(e)})
			},
			Observed: "the majority has another master",
			Pitfall:  "takes about a second, in which the old master takes writes that are lost",
			New: ofShard(func(_ Site, d topologies.Failover, shard string, _ Step) Fault {
				return askFailover(d, shard)
			}),
		},
		{
			Name: "planned-failover", Summary: "move the master's role to a replica that has all its writes, as an operator does; with --access name on topology single",
			Needs:  []topologies.Capability{topologies.Settings},
			Target: AtDeployment,
			Params: []Param{
				{Name: "how", Values: []string{byFailover, byReplicaOf}, Default: byFailover, Draw: byFailover + "|" + byReplicaOf},
				{Name: "pubsub", Values: []string{"keep", "close"}, Default: "keep", Draw: "keep|close"},
			},
			Life: history.Momentary, Effects: []history.Effect{history.Promotes},
			Check: func(t topologies.Topology, _ Step) error {
				if len(t.Shards()) == 0 || t.Elects() {
					return fmt.Errorf("needs servers that replace no master by themselves, and clients that find it by a name: topology %s with access %s",
						topologies.Single, topologies.AccessName)
				}
				return nil
			},
			Candidates: once("", 8, never),
			Observed:   "a replica is the master, most servers follow it, the name leads to it",
			Pitfall:    "see [below](#planned-failovers)",
			Aim:        master,
			New: func(site Site, s Step) (Fault, error) {
				r, ok := site.Deployment.(topologies.Replicated)
				if !ok {
					return nil, fmt.Errorf("topology %s has nothing to fail over to", site.Deployment.Topology().Name)
				}
				shard := r.Topology().Shards()[0]
				var servers []topologies.Server
				for _, name := range r.Topology().Members(shard) {
					servers = append(servers, r.Server(name))
				}
				return planFailover(r, shard, servers, failoverPlan{By: s.Params["how"], ClosePubSub: s.Params["pubsub"] == "close"}), nil
			},
		},
		{
			Name: "split-brain", Summary: "cut the master off with a zone of clients and a minority of the sentinels, if there are some",
			Needs:  []topologies.Capability{topologies.Failovers, topologies.Proxies, topologies.Isolation},
			Target: AtZone, Params: []Param{shard},
			Life: history.Lasting, Effects: []history.Effect{history.Isolates, history.Cuts, history.Promotes},
			Check: func(t topologies.Topology, s Step) error {
				if zones := t.Of(topologies.Zone); s.Target != "" && !slices.Contains(zones, s.Target) {
					return names.Unknown("zone", s.Target, zones)
				}
				return elects(t, s)
			},
			Candidates: func(e Environment) []Candidate {
				return ofShards(e, Candidate{Target: "zone-a|zone-b", Weight: 8, Least: 2 * time.Second, Most: mostFor, Breaks: away(e)})
			},
			Observed: "every link across refuses, and the majority has a master of its own", Healed: "one master, with all the others attached",
			Pitfall: "nothing is promoted where the minority could not lose a vote: `single`, `independent`",
			Aim: func(ctx context.Context, d topologies.Deployment, s Step) string {
				if old := master(ctx, d, s); old != "" {
					return minority(d, old, s.Target).Name
				}
				return ""
			},
			New: ofShard(func(site Site, d topologies.Failover, shard string, s Step) Fault {
				return splitBrain(d, shard, func(master string) (side, error) { return minority(site.Deployment, master, s.Target), nil })
			}),
		},
	}
	for i := range specs {
		specs[i].Family = Failover
	}
	return specs
}

// elects refuses a topology whose servers replace no master by themselves.
func elects(t topologies.Topology, s Step) error {
	if _, err := ShardOf(t, s); err != nil {
		return err
	}
	if !t.Elects() {
		return fmt.Errorf("the servers of topology %s replace no master by themselves; planned-failover makes another one the master", t.Name)
	}
	return nil
}

// ShardOf is the shard that a failover is aimed at, by its boot master: the first one
// if the step does not say.
func ShardOf(t topologies.Topology, s Step) (string, error) {
	shards := t.Shards()
	if len(shards) == 0 {
		return "", fmt.Errorf("topology %s has nothing to fail over to", t.Name)
	}
	shard := cmp.Or(s.Params["shard"], shards[0])
	if !slices.Contains(shards, shard) {
		return "", names.Unknown("shard", shard, shards)
	}
	return shard, nil
}

// ofShards is the one candidate for all shards: where there are several, each fault
// has another.
func ofShards(e Environment, c Candidate) []Candidate {
	if shards := e.Topology.Shards(); len(shards) > 1 {
		c.Params = map[string]string{"shard": strings.Join(shards, "|")}
	}
	return []Candidate{c}
}

// ofShard makes a fault of the shard that a step names.
func ofShard(of func(site Site, d topologies.Failover, shard string, s Step) Fault) func(Site, Step) (Fault, error) {
	return func(site Site, s Step) (Fault, error) {
		d, ok := site.Deployment.(topologies.Failover)
		if !ok {
			return nil, fmt.Errorf("topology %s has nothing to fail over to", site.Deployment.Topology().Name)
		}
		shard, err := ShardOf(d.Topology(), s)
		if err != nil {
			return nil, err
		}
		return of(site, d, shard, s), nil
	}
}

// master is the master of the shard that a step is aimed at; empty if that can't be
// told.
func master(ctx context.Context, d topologies.Deployment, s Step) string {
	r, ok := d.(topologies.Replicated)
	if !ok {
		return ""
	}
	shard, err := ShardOf(d.Topology(), s)
	if err != nil {
		return ""
	}
	name, err := MasterNow(ctx, r, shard)
	if err != nil {
		return ""
	}
	return name
}

// minority is the master's side of a split brain: one zone of clients stays
// with it, and the first sentinel, if there is one.
func minority(d topologies.Deployment, master, zone string) side {
	t := d.Topology()
	group := []string{master}
	if sentinels := t.Of(topologies.Sentinel); len(sentinels) > 0 {
		group = append(group, sentinels[0])
	}
	group = append(group, cmp.Or(zone, t.Of(topologies.Zone)[0]))
	return side{Name: "{" + strings.Join(group, " ") + "}", Links: wires(d, t.Across(group))}
}

// replaced waits for another master and disarms the deployment, in whatever
// way that ends. Once a failover is under way, ctx sees it through: disarmed in its
// midst, the sentinels turn the new master back, and need half a minute to agree.
func replaced(ctx context.Context, d topologies.Failover, shard, old string) (string, error) {
	master, err := d.AwaitMaster(ctx, shard, old)
	if err := errors.Join(err, disarm(ctx, d)); err != nil {
		return "", err
	}
	return master, nil
}

// MasterNow is the master of a shard before a fault: it asks until the servers agree, for [Patience]
// at most, as a server on a busy machine may be late to answer one look. The error is what was
// lacking last.
func MasterNow(ctx context.Context, d topologies.Replicated, shard string) (master string, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err = await.Until(ctx, func() (err error) {
		master, err = d.Master(ctx, shard)
		return err
	})
	return master, err
}

// disarm comes in any case.
func disarm(ctx context.Context, d topologies.Failover) error {
	ctx, cancel := Undo(ctx)
	defer cancel()
	return d.Disarm(ctx)
}

type crash struct {
	d      topologies.Failover
	shard  string
	server func(name string) topologies.Server
}

// crashMaster kills a shard's master and waits until a replica was promoted. The heal
// starts the old master again and waits until it follows the new one.
func crashMaster(d topologies.Failover, shard string, server func(name string) topologies.Server) Fault {
	return &crash{d: d, shard: shard, server: server}
}

// Name returns "crash-failover".
func (*crash) Name() string { return "crash-failover" }

// Inject fails if no replica is promoted before the context ends. Once the master
// was killed, it is seen through.
func (f *crash) Inject(ctx context.Context) (Injection, error) {
	old, err := MasterNow(ctx, f.d, f.shard)
	if err != nil {
		return Injection{}, err
	}
	p := f.server(old)
	if err := f.d.Arm(ctx); err != nil {
		return Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	through, cancel, err := Through(ctx)
	if err != nil {
		return Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	defer cancel()
	if err := p.Kill(through); err != nil {
		return Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	master, err := replaced(through, f.d, f.shard, old)
	if err != nil {
		undo, cancel := Undo(ctx)
		defer cancel()
		return Injection{}, errors.Join(err, p.Restart(undo))
	}
	return Injection{
		Effect: fmt.Sprintf("%s is gone, %s is master", old, master),
		Heal: Once(func(ctx context.Context) (string, error) {
			if err := p.Restart(ctx); err != nil {
				return "", err
			}
			return old + " follows " + master, f.d.AwaitReady(ctx)
		}),
	}, nil
}

type graceful struct {
	d     topologies.Failover
	shard string
}

// askFailover asks for a failover of a shard that nothing forces, and waits for
// it. It has no duration.
func askFailover(d topologies.Failover, shard string) Fault { return graceful{d, shard} }

// Name returns "failover".
func (graceful) Name() string { return "failover" }

// Inject fails if the master does not change before the context ends. A failover
// that was asked for is seen through.
func (f graceful) Inject(ctx context.Context) (Injection, error) {
	old, err := MasterNow(ctx, f.d, f.shard)
	if err != nil {
		return Injection{}, err
	}
	through, cancel, err := Through(ctx)
	if err != nil {
		return Injection{}, err
	}
	defer cancel()
	if err := f.d.Promote(through, f.shard); err != nil {
		return Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	master, err := replaced(through, f.d, f.shard, old)
	if err != nil {
		return Injection{}, err
	}
	return Injection{Effect: fmt.Sprintf("%s took over from %s", master, old)}, nil
}

// side is the minority's side of a split brain.
type side struct {
	// Name says who is on it: "{redis-1 sentinel-1 zone-a}".
	Name string
	// Links are those between it and all others.
	Links []topologies.Proxy
}

type splitBrainFault struct {
	d     topologies.Failover
	shard string
	side  func(master string) (side, error)
}

// splitBrain cuts a shard's master off, together with some clients and a
// minority of those who vote, and waits until the majority has a master of its
// own. The heal mends the links and waits until there is one master again.
func splitBrain(d topologies.Failover, shard string, side func(master string) (side, error)) Fault {
	return &splitBrainFault{d: d, shard: shard, side: side}
}

// Name returns "split-brain".
func (*splitBrainFault) Name() string { return "split-brain" }

// Inject fails if the majority promotes no replica before the context ends. Once the
// links are cut, it is seen through.
func (f *splitBrainFault) Inject(ctx context.Context) (Injection, error) {
	old, err := MasterNow(ctx, f.d, f.shard)
	if err != nil {
		return Injection{}, err
	}
	side, err := f.side(old)
	if err != nil {
		return Injection{}, err
	}
	if err := f.d.Arm(ctx); err != nil {
		return Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	through, cancel, err := Through(ctx)
	if err != nil {
		return Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	defer cancel()
	cut, err := cutLinks(side.Links).Inject(through)
	if err != nil {
		return Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	master, err := replaced(through, f.d, f.shard, old)
	if err != nil {
		undo, cancel := Undo(ctx)
		defer cancel()
		_, mended := cut.Heal(undo)
		return Injection{}, errors.Join(err, mended)
	}
	return Injection{
		Effect: strings.Join([]string{cut.Effect, old + " is master of " + side.Name, master + " of the rest"}, ", "),
		Heal: Once(func(ctx context.Context) (string, error) {
			if _, err := cut.Heal(ctx); err != nil {
				return "", err
			}
			return old + " follows " + master, f.d.AwaitReady(ctx)
		}),
	}, nil
}

// The ways in which an operator moves the role of a master. Neither loses a write
// that was answered: the old master takes none from the moment on at which the new
// one must have them all.
const (
	// byFailover is the command FAILOVER, of Redis 6.2 and later.
	byFailover = "failover"
	// byReplicaOf is by hand: writes to the master are paused, a replica that has
	// all of them becomes the master by REPLICAOF NO ONE, and the old one its
	// replica. Then the paused writes are refused.
	byReplicaOf = "replicaof"
)

// failoverPlan says how a planned failover is done.
type failoverPlan struct {
	// By is byFailover or byReplicaOf.
	By string
	// ClosePubSub closes the connections of subscribers of the old master, once the
	// role and the name have moved. Redis leaves them open: a client that subscribed
	// goes on hearing what is published, for that is replicated, and is not told that
	// it hears a replica.
	ClosePubSub bool
}

type planned struct {
	d       topologies.Replicated
	shard   string
	servers []topologies.Server
	plan    failoverPlan
}

// planFailover makes a replica the master, as an operator does for maintenance: one that
// has every write of the old master, which becomes its replica, as the others do.
// What changed is written into the servers' configuration, so that a restart keeps
// it. The servers are those of the shard. It has no duration.
func planFailover(d topologies.Replicated, shard string, servers []topologies.Server, p failoverPlan) Fault {
	return &planned{d: d, shard: shard, servers: servers, plan: p}
}

// Name returns "planned-failover".
func (*planned) Name() string { return "planned-failover" }

// Inject fails if the master does not change before the context ends. Once begun, it
// is seen through.
func (f *planned) Inject(ctx context.Context) (Injection, error) {
	old, err := MasterNow(ctx, f.d, f.shard)
	if err != nil {
		return Injection{}, err
	}
	through, cancel, err := Through(ctx)
	if err != nil {
		return Injection{}, err
	}
	defer cancel()
	target, err := f.best(through, old)
	if err != nil {
		return Injection{}, err
	}
	if f.plan.By == byReplicaOf {
		err = f.swap(through, old, target)
	} else {
		err = f.handOver(through, old, target)
	}
	if err != nil {
		return Injection{}, fmt.Errorf("make %s the master: %w", target.name, err)
	}
	if err := f.settle(through, target); err != nil {
		return Injection{}, err
	}
	if _, err := f.d.AwaitMaster(through, f.shard, old); err != nil {
		return Injection{}, err
	}
	subscribers, err := f.subscribers(through, old)
	if err != nil {
		return Injection{}, err
	}
	return Injection{Effect: fmt.Sprintf("%s took over from %s, %s", target.name, old, subscribers)}, nil
}

// A replica is one that a master knows.
type replica struct {
	name   string
	host   string
	port   string
	offset int64
}

// rdb is the connection to a server past every fault, for requests that may take a
// while on a busy machine.
func (f *planned) rdb(name string) *redis.Client {
	i := slices.IndexFunc(f.servers, func(s topologies.Server) bool { return s.Name() == name })
	return f.servers[i].Observer().WithTimeout(Patience)
}

// best is the replica of the master that has most of its writes.
func (f *planned) best(ctx context.Context, master string) (replica, error) {
	var all []replica
	role, err := f.rdb(master).Do(ctx, "ROLE").Slice()
	if err != nil {
		return replica{}, fmt.Errorf("ask %s for its replicas: %w", master, err)
	}
	if len(role) > 2 {
		attached, _ := role[2].([]any)
		for _, one := range attached {
			if r, ok := f.replica(one); ok {
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		return replica{}, fmt.Errorf("%s has no replica that could take over", master)
	}
	return slices.MaxFunc(all, func(a, b replica) int { return int(a.offset - b.offset) }), nil
}

// replica reads one of the entries of a master's ROLE: host, port, offset.
func (f *planned) replica(entry any) (r replica, ok bool) {
	fields, _ := entry.([]any)
	if len(fields) < 3 {
		return r, false
	}
	r.host, r.port = fmt.Sprint(fields[0]), fmt.Sprint(fields[1])
	r.name = f.d.NodeAt(net.JoinHostPort(r.host, r.port))
	var err error
	r.offset, err = strconv.ParseInt(fmt.Sprint(fields[2]), 10, 64)
	known := slices.ContainsFunc(f.servers, func(s topologies.Server) bool { return s.Name() == r.name })
	return r, err == nil && known
}

// takeover bounds how long the two servers may take. Milliseconds are usual.
const takeover = 10 * time.Second

// handOver has the master do it.
func (f *planned) handOver(ctx context.Context, old string, target replica) error {
	rdb := f.rdb(old)
	if err := rdb.Do(ctx, "FAILOVER", "TO", target.host, target.port, "TIMEOUT", takeover.Milliseconds()).Err(); err != nil {
		return err
	}
	var final error
	err := await.Until(ctx, func() error {
		info, err := f.info(ctx, old)
		if err != nil {
			return err
		}
		switch over := info["master_failover_state"] == "no-failover"; {
		case over && info["role"] == "slave":
			return nil
		case over:
			final = fmt.Errorf("%s gave it up: %s did not have all writes within %v", old, target.name, takeover)
			return nil
		default:
			return fmt.Errorf("%s is in %s", old, info["master_failover_state"])
		}
	})
	if err != nil {
		undo, cancel := Undo(ctx)
		defer cancel()
		err = errors.Join(err, rdb.Do(undo, "FAILOVER", "ABORT").Err())
	}
	return errors.Join(final, err)
}

// swap does it by hand.
func (f *planned) swap(ctx context.Context, old string, target replica) (err error) {
	rdb := f.rdb(old)
	paused := time.Now()
	if err := rdb.Do(ctx, "CLIENT", "PAUSE", takeover.Milliseconds(), "WRITE").Err(); err != nil {
		return err
	}
	defer func() {
		undo, cancel := Undo(ctx)
		defer cancel()
		err = errors.Join(err, rdb.Do(undo, "CLIENT", "UNPAUSE").Err())
	}()
	limited, cancel := context.WithDeadlineCause(ctx, paused.Add(takeover/2), errors.New("it does not have all writes"))
	defer cancel()
	info, err := f.info(limited, old)
	if err != nil {
		return err
	}
	want, err := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	if err != nil {
		return fmt.Errorf("read the offset of %s: %w", old, err)
	}
	err = await.Until(limited, func() error {
		info, err := f.info(limited, target.name)
		if err != nil {
			return err
		}
		if has, err := strconv.ParseInt(info["slave_repl_offset"], 10, 64); err != nil || has < want {
			return fmt.Errorf("it is at %s of %d", info["slave_repl_offset"], want)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if info, err = f.info(ctx, target.name); err != nil {
		return err
	}
	next := f.rdb(target.name)
	err = next.Do(ctx, "REPLICAOF", "NO", "ONE").Err()
	if err == nil {
		err = rdb.Do(ctx, "REPLICAOF", target.host, target.port).Err()
	}
	if took := time.Since(paused); err == nil && took >= takeover {
		err = fmt.Errorf("it took %v, and %s took writes again after %v", took, old, takeover)
	}
	if err != nil {
		undo, cancel := Undo(ctx)
		defer cancel()
		err = errors.Join(err, rdb.Do(undo, "REPLICAOF", "NO", "ONE").Err(),
			next.Do(undo, "REPLICAOF", info["master_host"], info["master_port"]).Err())
	}
	return err
}

// settle has all others follow the new master, and every server write down who
// follows whom.
func (f *planned) settle(ctx context.Context, target replica) error {
	for _, s := range f.servers {
		rdb := f.rdb(s.Name())
		err := await.Until(ctx, func() error { // repeated, both come to the same
			if s.Name() != target.name {
				if err := rdb.Do(ctx, "REPLICAOF", target.host, target.port).Err(); err != nil {
					return err
				}
			}
			return rdb.ConfigRewrite(ctx).Err()
		})
		if err != nil {
			return fmt.Errorf("have %s follow %s: %w", s.Name(), target.name, err)
		}
	}
	return nil
}

// subscribers says what became of the connections of subscribers.
func (f *planned) subscribers(ctx context.Context, old string) (string, error) {
	rdb := f.rdb(old)
	if f.plan.ClosePubSub {
		n, err := rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Int()
		return fmt.Sprintf("%d connections of subscribers closed", n), err
	}
	list, err := rdb.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	return fmt.Sprintf("%d connections of subscribers left open", strings.Count(list, "\n")), err
}

// info is what a server says of its replication.
func (f *planned) info(ctx context.Context, server string) (map[string]string, error) {
	text, err := f.rdb(server).Info(ctx, "replication").Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}
