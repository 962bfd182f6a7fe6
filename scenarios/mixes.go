package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/failover"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// The mixes that a random run's faults can be drawn from: those of [FaultKinds],
// and three that are made of them.
const (
	MixNone     = "none"
	MixNetwork  = "network"
	MixProcess  = "process"
	MixRedis    = "redis"
	MixFailover = "failover"
	// MixAll is whatever the topology can have of network, process, redis,
	// failover and cluster: what needs nothing but servers.
	MixAll = "all"
	// MixSafe is what a correct lock survives of MixAll on these servers.
	MixSafe = "safe"
	// MixClock and MixDisk are no part of MixAll: they need a C compiler, and
	// servers that are local processes.
	MixClock = "clock"
	MixDisk  = "disk"
)

// mixCluster has the faults of a cluster's slots.
const mixCluster = "cluster"

// mixClient has faults that are for scripts only: the clients of a random run
// are no processes of their own.
const mixClient = "client"

// Mixes lists what the faults of a random run can be drawn from.
func Mixes() []string {
	return []string{
		MixNone, MixSafe, MixNetwork, MixProcess, MixRedis, MixFailover, mixCluster, MixClock, MixDisk, MixAll,
	}
}

// DefaultMix is the mix of a run that names none: what the topology ought to
// be asked to survive. Processes that lose their memory are not part of it.
func DefaultMix(t topologies.Topology) string {
	if len(t.Shards()) > 0 {
		return MixNetwork + "," + MixFailover
	}
	return MixNetwork
}

// A pick is a fault that a plan may be drawn from.
type pick struct {
	mix, fault string
	// target and params may leave a choice: "a|b" is one of those, and a
	// parameter "10-50" a whole number from that range.
	target string
	params map[string]string
	// least and most bound how long it lasts in a run of [fullPace]; both zero for
	// a fault that is over at once.
	least, most time.Duration
	// weight is by how much it tends to come sooner than one of weight 1.
	weight int
	// cant says why it can't take effect here; empty if it can.
	cant string
	// breaks says which promise of a correct lock it may break here; empty: none.
	breaks string
}

// A ground is what random faults are drawn for.
type ground struct {
	topology topologies.Topology
	lock     Lock
	locks    []string // their names
	acks     int      // of replicas, for each grant
}

// keeps reports whether servers remember what they granted when they are killed.
func (g ground) keeps() bool {
	kept := g.topology.Options.Persistence
	return kept != "" && kept != topologies.PersistNone
}

// replicated reports whether there is a server to fail over to, and elects whether
// the servers do so by themselves.
func (g ground) replicated() bool { return len(g.topology.Shards()) > 0 }
func (g ground) elects() bool     { return g.replicated() && g.topology.Elects() }

// acked reports whether each grant is known to every replica that may be
// promoted.
func (g ground) acked() bool {
	for _, shard := range g.topology.Shards() {
		if g.acks < len(g.topology.Members(shard))-1 {
			return false
		}
	}
	return true
}

// Which promises of a correct lock are broken, and by what.
const (
	breaksByForgetting = "a server forgets what it granted"
	breaksByPromotion  = "a replica may be promoted that does not know of a grant: without an acknowledgement of every replica"
	breaksByClock      = "leases on a server end when its clock says so"
)

// away is what a server breaks that does not answer for a while: it may be
// replaced.
func (g ground) away() string {
	if g.elects() && !g.acked() {
		return breaksByPromotion
	}
	return ""
}

// restarted is what a server breaks that was killed.
func (g ground) restarted() string {
	if !g.keeps() {
		return breaksByForgetting
	}
	return g.away()
}

// picks are all faults that a random run knows.
func (g ground) picks() []pick {
	all := slices.Concat(g.linkPicks(), g.trapPicks(), g.partitionPicks(), g.serverPicks(), g.failoverPicks())
	for i, p := range all {
		if p.cant == "" {
			all[i].cant = g.lacks(p)
		}
	}
	return all
}

// lacks says why a fault can't be of effect on the topology, or with the lock.
func (g ground) lacks(p pick) string {
	l := g.lock
	switch {
	case l.inside && slices.Contains([]string{"reset", "flush", "drop-key", "retype-key", "evict"}, p.fault), l.inside && lies(p.fault):
		return "lock " + l.Name + " says nothing to any server"
	case (p.fault == "kill-pubsub" || p.fault == "drop-message") && !l.subscribes:
		return "nobody subscribes to anything with lock " + l.Name
	case p.mix == MixDisk && p.fault != "shutdown" && g.topology.Options.Persistence == topologies.PersistNone:
		return "the servers have no append-only file (say --persistence always, everysec or no)"
	}
	if kind, _ := faultKind(p.fault); kind.Mix == MixNetwork && len(g.topology.Links) == 0 {
		return "" // somebody else's deployment, which says itself why it has none
	}
	why := ""
	for target := range strings.SplitSeq(p.target, "|") {
		err := g.checkStep(faults.Step{Fault: p.fault, Target: target, Params: p.firstParams()})
		if err == nil {
			return ""
		}
		why = cmp.Or(why, strings.TrimPrefix(err.Error(), p.fault+": "))
	}
	return why
}

// firstParams are the parameters of a step that may be drawn.
func (p pick) firstParams() map[string]string {
	some := map[string]string{}
	for key, value := range p.params {
		some[key] = first(value)
	}
	return some
}

// first is the first of the choices that a target or parameter leaves.
func first(choices string) string {
	one, _, _ := strings.Cut(choices, "|")
	if least, _, ok := numbers(one); ok {
		return fmt.Sprint(least)
	}
	return one
}

func lies(fault string) bool { return FaultKind{Name: fault}.lies() }

// How long faults last that are no matter of a moment.
const (
	leastFor = time.Second
	mostFor  = 3 * time.Second
)

// linkPicks are of all that passes a link.
func (g ground) linkPicks() []pick {
	const oneZone = "zone-a>redis|zone-b>redis"
	p := func(fault, target string, weight int, params map[string]string) pick {
		return pick{mix: MixNetwork, fault: fault, target: target, params: params, least: leastFor, most: mostFor, weight: weight}
	}
	return []pick{
		p("cut", oneZone, 4, nil),
		p("hold", oneZone, 4, map[string]string{"stream": "upstream|downstream|both"}),
		p("latency", string(topologies.Client), 3, map[string]string{"stream": "both", "latency": "10-50", "jitter": "5"}),
		{mix: MixNetwork, fault: "reset", target: string(topologies.Client), weight: 3},
		p("flap", oneZone, 1, map[string]string{paramDown: "50-300", paramUp: "50-300"}),
		p("bandwidth", oneZone, 1, map[string]string{"stream": "upstream|downstream|both", paramRate: "2000-20000"}),
		p("slow-close", oneZone, 1, map[string]string{"stream": "upstream|downstream|both", paramBy: "100-500"}),
	}
}

// trapPicks are of one command, reply or message. Those that last do so once
// they struck.
func (g ground) trapPicks() []pick {
	const anyLink = "zone-a>redis|zone-b>redis|zone>redis"
	command := g.lock.commands()
	var all []pick
	for _, fault := range []string{"hold-command", "hold-reply"} {
		all = append(all, pick{
			mix: MixNetwork, fault: fault, target: anyLink, weight: 1, least: leastFor / 2, most: mostFor,
			params: map[string]string{paramCommand: command, paramNth: "1-8"},
		})
	}
	for _, fault := range []string{"delay-command", "delay-reply"} {
		all = append(all, pick{
			mix: MixNetwork, fault: fault, target: anyLink, weight: 1,
			params: map[string]string{paramCommand: command, paramNth: "1-8", paramFor: "100-1500"},
		})
	}
	for _, fault := range []string{"drop-command", "drop-reply"} {
		all = append(all, pick{
			mix: MixNetwork, fault: fault, target: anyLink, weight: 1,
			params: map[string]string{paramCommand: command, paramNth: "1-8", paramThen: thenReset + "|" + thenSilent},
		})
	}
	return append(all, pick{
		mix: MixNetwork, fault: "drop-message", target: "zone>redis", weight: 1, params: map[string]string{paramNth: "1-3"},
	})
}

// partitionPicks are those that keep parties apart. Where a server may be
// replaced that is cut off from the others, they belong to the failovers.
func (g ground) partitionPicks() []pick {
	mix, breaks := MixNetwork, ""
	if g.elects() {
		mix, breaks = MixFailover, g.away()
	}
	servers := strings.Join(g.topology.Of(topologies.Redis), "|")
	how := map[string]string{paramHow: howCut + "|" + howHold}
	p := func(mix, fault, target string, weight int, breaks string) pick {
		return pick{mix: mix, fault: fault, target: target, params: how, least: leastFor, most: mostFor, weight: weight, breaks: breaks}
	}
	return []pick{
		p(MixNetwork, faultPartition, strings.Join(g.topology.Of(topologies.Zone), "|"), 2, ""),
		p(mix, faultPartition, servers, 2, breaks),
		p(mix, faultHalves, "", 2, breaks),
		p(mix, faultBridge, servers, 1, breaks),
		p(mix, faultRing, "", 1, breaks),
	}
}

// serverPicks are of one server, on which a lock is.
func (g ground) serverPicks() []pick {
	lasts := func(mix, fault, breaks string) pick {
		return pick{mix: mix, fault: fault, target: targetLock, least: leastFor, most: mostFor, weight: 2, breaks: breaks}
	}
	once := func(mix, fault, breaks string) pick {
		return pick{mix: mix, fault: fault, target: targetLock, weight: 2, breaks: breaks}
	}
	with := func(p pick, key, value string) pick {
		p.params = map[string]string{key: value}
		return p
	}
	unsynced := g.restarted()
	if g.topology.Options.Persistence != topologies.PersistAlways {
		unsynced = breaksByForgetting
	}
	return []pick{
		lasts(MixProcess, "pause", g.away()),
		lasts(MixProcess, "kill", g.restarted()),
		once(MixProcess, "restart", g.restarted()),
		once(MixProcess, "restart-empty", breaksByForgetting),

		lasts(MixRedis, "full", ""),
		lasts(MixRedis, "pause-writes", ""),
		lasts(MixRedis, "busy", g.away()),
		once(MixRedis, "script-flush", ""),
		once(MixRedis, "kill-pubsub", ""),
		once(MixRedis, "flush", breaksByForgetting),
		with(once(MixRedis, "drop-key", breaksByForgetting), paramPattern, lockKeys),
		with(lasts(MixRedis, "retype-key", breaksByForgetting), paramPattern, lockKeys),
		lasts(MixRedis, "evict", breaksByForgetting),

		with(lasts(MixClock, "clock-forward", breaksByClock), paramBy, "100-5000"),
		with(lasts(MixClock, "clock-back", breaksByClock), paramBy, "100-5000"),
		with(lasts(MixClock, "clock-rate", breaksByClock), paramPercent, "1-50"),
		lasts(MixClock, "clock-freeze", breaksByClock),

		lasts(MixDisk, "stall-disk", g.away()),
		once(MixDisk, "power-cut", unsynced),
		once(MixDisk, "shutdown", g.restarted()),
	}
}

// lockKeys is what the keys of every lock under test look like.
const lockKeys = "*lock-*"

// failoverPicks are of a shard. Where there are several, each fault has another.
func (g ground) failoverPicks() []pick {
	var shard map[string]string
	if shards := g.topology.Shards(); len(shards) > 1 {
		shard = map[string]string{paramShard: strings.Join(shards, "|")}
	}
	breaks := g.away()
	return []pick{
		{mix: MixFailover, fault: "split-brain", target: "zone-a|zone-b", params: shard, least: 2 * time.Second, most: mostFor, weight: 8, breaks: breaks},
		{mix: MixFailover, fault: "crash-failover", params: shard, least: leastFor, most: mostFor, weight: 8, breaks: breaks},
		{mix: MixFailover, fault: "failover", params: shard, weight: 4, breaks: breaks},
		{mix: MixFailover, fault: faultPlanned, params: map[string]string{
			paramHow: failover.ByFailover + "|" + failover.ByReplicaOf, paramPubSub: pubSubKeep + "|" + pubSubClose,
		}, weight: 8},
		{
			mix: mixCluster, fault: "migrate-slot", weight: 2, least: leastFor, most: mostFor,
			params: map[string]string{paramKey: strings.Join(g.locks[:min(len(g.locks), 3)], "|")},
		},
	}
}

// choose are the picks that a list of mixes and faults means, of which those
// that can't take effect here are left out. One that the user named, alone or by
// a mix of which nothing is left, is an error.
func (g ground) choose(list string) ([]pick, error) {
	all := g.picks()
	var chosen []pick
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		var of func(pick) bool
		switch name {
		case MixNone, MixAll, MixSafe:
			if list != name {
				errs = append(errs, fmt.Errorf("faults %q stands alone, and not in a list", name))
			}
			of = func(p pick) bool {
				switch {
				case name == MixNone, p.mix == MixClock, p.mix == MixDisk:
					return false
				default:
					return name == MixAll || p.breaks == ""
				}
			}
		default:
			of = func(p pick) bool { return p.mix == name || p.fault == name }
		}
		found, whyNot := 0, []string{}
		for _, p := range all {
			switch {
			case !of(p):
			case p.cant != "":
				whyNot = append(whyNot, p.cant)
			default:
				found++
				if !slices.ContainsFunc(chosen, func(other pick) bool { return other.same(p) }) {
					chosen = append(chosen, p)
				}
			}
		}
		if found == 0 && name != MixNone {
			errs = append(errs, g.nothing(name, whyNot))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return chosen, nil
}

// same reports whether two picks are the same one, named twice.
func (p pick) same(other pick) bool {
	return p.mix == other.mix && p.fault == other.fault && p.target == other.target
}

// nothing says why a name in a list of faults means none here.
func (g ground) nothing(name string, whyNot []string) error {
	kind, err := faultKind(name)
	switch {
	case name == MixFailover && !g.replicated():
		return fmt.Errorf("topology %s has nothing to fail over to", g.topology.Name)
	case name == mixCluster:
		return fmt.Errorf("topology %s has no slots", g.topology.Name)
	case name == mixClient, err == nil && kind.Mix == mixClient:
		return fmt.Errorf("%s: the clients of a random run are no processes of their own, so that faults of clients are for scenarios only", name)
	case len(whyNot) > 0:
		return fmt.Errorf("%s: %s", name, whyNot[0])
	case err == nil:
		return fmt.Errorf("%s: is for scenarios only", name)
	default:
		return names.Unknown("mix of faults", name, append(Mixes(), faultNames()...))
	}
}

func faultNames() []string {
	var all []string
	for _, k := range FaultKinds() {
		all = append(all, k.Name)
	}
	return all
}
