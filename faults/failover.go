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
				return ofShards(e, Candidate{Weight: 8, Breaks: away(e)})
			},
			Observed: "the majority has another master", Healed: "the old master runs and follows the new one",
			Pitfall: "what a replica had is not lost: cut `redis>MASTER` first, if it is to be",
			Aim:     master,
			New:     takeover(crash),
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
			New:      takeover(handOver),
		},
		{
			Name: "planned-failover", Summary: "move the master's role to a replica that has all its writes, as an operator does; with --access name on topology single",
			Needs:  []topologies.Capability{topologies.Settings},
			Target: AtDeployment,
			Params: []Param{{Name: "pubsub", Values: []string{"keep", "close"}, Default: "keep", Draw: "keep|close"}},
			Life:   history.Momentary, Effects: []history.Effect{history.Promotes},
			Check: func(t topologies.Topology, _ Step) error {
				if len(t.Shards()) == 0 || t.Elects() {
					return fmt.Errorf("needs servers that replace no master by themselves, and clients that find it by a name: topology %s with access %s",
						topologies.Single, topologies.AccessName)
				}
				return nil
			},
			Candidates: drawn("", 8, never),
			Observed:   "a replica is the master, most servers follow it, the name leads to it",
			Pitfall:    "see [below](#planned-failovers)",
			Aim:        master,
			New:        takeover(planFailover),
		},
		{
			Name: "split-brain", Summary: "cut the master off with a zone of clients and a minority of the sentinels, if there are some",
			Needs:  []topologies.Capability{topologies.Failovers, topologies.Proxies, topologies.Isolation},
			Target: AtZone, Params: []Param{shard},
			Life: history.Lasting, Effects: []history.Effect{history.Isolates, history.Cuts, history.Promotes},
			Check: func(t topologies.Topology, s Step) error {
				if s.Target == "" {
					return elects(t, s)
				}
				return cmp.Or(inZone(t, s), elects(t, s))
			},
			Candidates: func(e Environment) []Candidate {
				return ofShards(e, Candidate{Target: "zone-a|zone-b", Weight: 8, Least: 2 * time.Second, Most: mostFor, Breaks: away(e)})
			},
			Observed: "every link across refuses, and the majority has a master of its own", Healed: "one master, with all the others attached",
			Pitfall: "nothing is promoted where the minority could not lose a vote: `single`, `independent`",
			Aim: func(ctx context.Context, d topologies.Deployment, s Step) string {
				old := master(ctx, d, s)
				if old == "" {
					return ""
				}
				name, _ := minority(d, old, s.Target)
				return name
			},
			New: takeover(splitBrain),
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

// master is the master of the shard that a step is aimed at; empty if that can't be
// told.
func master(ctx context.Context, d topologies.Deployment, s Step) string {
	shard, err := ShardOf(d.Topology(), s)
	if err != nil {
		return ""
	}
	name, err := MasterNow(ctx, d, shard)
	if err != nil {
		return ""
	}
	return name
}

// minority is the master's side of a split brain, by its name and by the links between it and
// all others: one zone of clients stays with it, and the first sentinel, if there is one.
func minority(d topologies.Deployment, master, zone string) (name string, links []topologies.Link) {
	t := d.Topology()
	group := []string{master}
	if sentinels := t.Of(topologies.Sentinel); len(sentinels) > 0 {
		group = append(group, sentinels[0])
	}
	group = append(group, cmp.Or(zone, t.Of(topologies.Zone)[0]))
	return "{" + strings.Join(group, " ") + "}", t.Across(group)
}

// MasterNow is the master of a shard before a fault: it asks until the servers agree, for five seconds
// at most, as a server on a busy machine may be late to answer one look. The error is what was
// lacking last.
func MasterNow(ctx context.Context, d topologies.Deployment, shard string) (master string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = await.Until(ctx, func() (err error) {
		master, err = d.Master(ctx, shard)
		return err
	})
	return master, err
}

// A cause is what a shard's master is replaced for. It returns what finds out its effect once there is
// a new master, and how it is undone; nil for what has no duration.
type cause = func(ctx context.Context, d topologies.Deployment, shard, old string, s Step) (effect effectOf, undo func(context.Context) error, err error)

type effectOf = func(ctx context.Context, master string) (string, error)

// takeover makes a fault that has another server become the master. It fails if none does before
// the context ends. Once begun, it is seen through: disarmed in the midst of a failover, the sentinels turn the
// new master back, and need half a minute to agree. The heal undoes the cause, and waits until
// there is one master, with all the others attached.
func takeover(begin cause) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		d := site.Deployment
		shard, err := ShardOf(d.Topology(), s)
		return func(ctx context.Context) (Injection, error) {
			old, err := MasterNow(ctx, d, shard)
			if err != nil {
				return Injection{}, err
			}
			through, cancel, err := await.Through(ctx)
			if err != nil {
				return Injection{}, err
			}
			defer cancel()
			undos, cancel := undoing(ctx)
			defer cancel()
			effect, undo, err := begin(through, d, shard, old, s)
			if err != nil {
				return Injection{}, errors.Join(err, d.Disarm(undos))
			}
			master, err := d.AwaitMaster(through, shard, old)
			err = errors.Join(err, d.Disarm(undos))
			if err != nil && undo != nil {
				err = errors.Join(err, undo(undos))
			}
			if err != nil {
				return Injection{}, err
			}
			var injection Injection
			if undo != nil {
				injection.Heal = Once(func(ctx context.Context) (string, error) {
					if err := undo(ctx); err != nil {
						return "", err
					}
					return old + " follows " + master, d.AwaitReady(ctx)
				})
			}
			injection.Effect, err = effect(through, master)
			return injection, err
		}, err
	}
}

// being is the effect that a server is the master.
func being(format string) effectOf {
	return func(_ context.Context, master string) (string, error) { return fmt.Sprintf(format, master), nil }
}

// crash kills the master.
func crash(ctx context.Context, d topologies.Deployment, _, old string, _ Step) (effectOf, func(context.Context) error, error) {
	p := d.Server(old)
	if err := d.Arm(ctx); err != nil {
		return nil, nil, err
	}
	return being(old + " is gone, %s is master"), p.Restart, p.Kill(ctx)
}

// handOver asks for a failover that nothing forces.
func handOver(ctx context.Context, d topologies.Deployment, shard, old string, _ Step) (effectOf, func(context.Context) error, error) {
	return being("%s took over from " + old), nil, d.Promote(ctx, shard)
}

// splitBrain cuts the master off, together with some clients and a minority of those who vote.
func splitBrain(ctx context.Context, d topologies.Deployment, _, old string, s Step) (effectOf, func(context.Context) error, error) {
	side, across := minority(d, old, s.Target)
	links, err := wires(d, across, side)
	if err == nil {
		err = d.Arm(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	cut, err := cutting().on("cut", links)(ctx)
	if err != nil {
		return nil, nil, err
	}
	undo := func(ctx context.Context) error {
		_, err := cut.Heal(ctx)
		return err
	}
	return being(cut.Effect + ", " + old + " is master of " + side + ", %s of the rest"), undo, nil
}

type planned struct {
	topologies.Deployment

	servers []string // of the shard
}

// planFailover makes a replica the master, as an operator does for maintenance: one that
// has every write of the old master, which becomes its replica, as the others do. No write is lost that was
// answered: the old master takes none from the moment on at which the new one must have them all (FAILOVER).
// What changed is written into the servers' configuration, so that a restart keeps it.
func planFailover(ctx context.Context, d topologies.Deployment, shard, old string, s Step) (effectOf, func(context.Context) error, error) {
	f := planned{d, d.Topology().Members(shard)}
	target, err := f.best(ctx, old)
	if err != nil {
		return nil, nil, err
	}
	if err := f.move(ctx, old, target); err != nil {
		return nil, nil, fmt.Errorf("make %s the master: %w", target.name, err)
	}
	return func(ctx context.Context, master string) (string, error) {
		subscribers, err := f.subscribers(ctx, old, s.Params["pubsub"] == "close")
		return fmt.Sprintf("%s took over from %s, %s", master, old, subscribers), err
	}, nil, f.settle(ctx, target)
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
func (f planned) rdb(name string) *redis.Client {
	return f.Server(name).Observer().WithTimeout(patience)
}

// best is the replica of the master that has most of its writes, as the master says in its
// ROLE, with the host, port and offset of each.
func (f planned) best(ctx context.Context, master string) (best replica, err error) {
	role, err := f.rdb(master).Do(ctx, "ROLE").Slice()
	if err != nil {
		return best, fmt.Errorf("ask %s for its replicas: %w", master, err)
	}
	best.offset = -1
	var attached []any
	if len(role) > 2 {
		attached, _ = role[2].([]any)
	}
	for _, one := range attached {
		fields, _ := one.([]any)
		if len(fields) < 3 {
			continue
		}
		r := replica{host: fmt.Sprint(fields[0]), port: fmt.Sprint(fields[1])}
		r.name = f.NodeAt(net.JoinHostPort(r.host, r.port))
		r.offset, err = strconv.ParseInt(fmt.Sprint(fields[2]), 10, 64)
		if err == nil && slices.Contains(f.servers, r.name) && r.offset > best.offset {
			best = r
		}
	}
	if best.offset < 0 {
		return best, fmt.Errorf("%s has no replica that could take over", master)
	}
	return best, nil
}

// takeoverLimit bounds how long the two servers may take. Milliseconds are usual.
const takeoverLimit = 10 * time.Second

// move has the master change places with a replica.
func (f planned) move(ctx context.Context, old string, target replica) error {
	rdb := f.rdb(old)
	if err := rdb.Do(ctx, "FAILOVER", "TO", target.host, target.port, "TIMEOUT", takeoverLimit.Milliseconds()).Err(); err != nil {
		return err
	}
	var final error
	err := await.Until(ctx, func() error {
		all, err := rdb.InfoMap(ctx, "Replication").Result()
		if err != nil {
			return err
		}
		info := all["Replication"]
		switch over := info["master_failover_state"] == "no-failover"; {
		case over && info["role"] == "slave":
			return nil
		case over:
			final = fmt.Errorf("%s gave it up: %s did not have all writes within %v", old, target.name, takeoverLimit)
			return nil
		default:
			return fmt.Errorf("%s is in %s", old, info["master_failover_state"])
		}
	})
	if err != nil {
		undo, cancel := undoing(ctx)
		defer cancel()
		err = errors.Join(err, rdb.Do(undo, "FAILOVER", "ABORT").Err())
	}
	return errors.Join(final, err)
}

// settle has all others follow the new master, and every server write down who
// follows whom.
func (f planned) settle(ctx context.Context, target replica) error {
	for _, name := range f.servers {
		rdb := f.rdb(name)
		err := await.Until(ctx, func() error { // repeated, both come to the same
			if name != target.name {
				if err := rdb.Do(ctx, "REPLICAOF", target.host, target.port).Err(); err != nil {
					return err
				}
			}
			return rdb.ConfigRewrite(ctx).Err()
		})
		if err != nil {
			return fmt.Errorf("have %s follow %s: %w", name, target.name, err)
		}
	}
	return nil
}

// subscribers says what became of the connections of the old master's subscribers, once the
// role and the name have moved. Redis leaves them open: a client that subscribed goes on hearing
// what is published, for that is replicated, and is not told that it hears a replica.
func (f planned) subscribers(ctx context.Context, old string, closes bool) (string, error) {
	rdb := f.rdb(old)
	if closes {
		n, err := rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Int()
		return fmt.Sprintf("%d connections of subscribers closed", n), err
	}
	list, err := rdb.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	return fmt.Sprintf("%d connections of subscribers left open", strings.Count(list, "\n")), err
}
