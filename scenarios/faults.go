package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/failover"
	"github.com/lockchaos/lockchaos/faults/network"
	"github.com/lockchaos/lockchaos/faults/process"
	"github.com/lockchaos/lockchaos/faults/redis"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// A FaultKind is a row of the list of faults.
type FaultKind struct {
	Name string
	// Mix is the part of a random run's mix that it belongs to.
	Mix    string
	Target string // what it can be aimed at
	Params string
	About  string
}

// FaultKinds lists the faults, in order of name.
func FaultKinds() []FaultKind {
	return []FaultKind{
		{"busy", "redis", "server", "", "run a script that does not end before the heal, so that everything else is refused"},
		{"crash-failover", "failover", "-", "shard", "kill the master and wait until a replica was promoted"},
		{"cut", "network", "links", "", "reset all connections and refuse new ones"},
		{"drop-key", "redis", "server", "pattern", "remove the keys that match, once"},
		{"evict", "redis", "server", "", "throw out every key for want of memory"},
		{"failover", "failover", "-", "shard", "ask the servers for a failover that nothing forces"},
		{"flush", "redis", "server", "", "FLUSHALL, once"},
		{"full", "redis", "server", "", "refuse every write for want of memory"},
		{"hold", "network", "links", "stream", "let nothing through, and deliver it all at the heal; on one stream, a one-way cut"},
		{"kill", "process", "server", "", "SIGKILL, and a restart at the heal"},
		{"kill-pubsub", "redis", "server", "", "close the connections of all subscribers, once"},
		{"latency", "network", "links", "stream, latency, jitter (ms)", "delay the data"},
		{"pause", "process", "server", "", "SIGSTOP, and SIGCONT at the heal"},
		{"pause-writes", "redis", "server", "", "leave writes unanswered (CLIENT PAUSE WRITE), and carry them out at the heal"},
		{"reset", "network", "links", "", "reset all open connections, once"},
		{"restart", "process", "server", "", "SIGKILL and a restart at once"},
		{"restart-empty", "process", "server", "", "SIGKILL, the data removed, and a restart at once"},
		{"retype-key", "redis", "server", "pattern", "put strings where the keys that match are"},
		{"script-flush", "redis", "server", "", "forget all scripts, once"},
		{"split-brain", "failover", "zone", "shard", "cut the master off with a zone of clients and a minority of the sentinels, if there are some"},
	}
}

// The mixes that a random run's faults can be drawn from.
const (
	MixNone     = "none"
	MixNetwork  = "network"
	MixProcess  = "process"
	MixRedis    = "redis"
	MixFailover = "failover"
	MixAll      = "all"
)

// DefaultMix is the mix of a run that names none: what the topology ought to
// be asked to survive. Processes that lose their memory are not part of it.
func DefaultMix(t topologies.Topology) string {
	if len(t.Shards()) > 0 {
		return MixNetwork + "," + MixFailover
	}
	return MixNetwork
}

// possibleMix is [DefaultMix] as far as a deployment can have it.
func possibleMix(d topologies.Deployment) string {
	var mixes []string
	for mix := range strings.SplitSeq(DefaultMix(d.Topology()), ",") {
		if possibleAll(d, mix) == nil {
			mixes = append(mixes, mix)
		}
	}
	return cmp.Or(strings.Join(mixes, ","), MixNone)
}

// possibleAll refuses a mix of which a deployment can't have every fault,
// whichever are drawn.
func possibleAll(d topologies.Deployment, mix string) error {
	chosen, err := choices(d.Topology(), mix)
	if err != nil {
		return err
	}
	var asked []string
	for _, c := range chosen {
		asked = append(asked, c.Fault)
	}
	return possible(d, asked)
}

// choices are the faults of a mix that the topology can have.
func choices(t topologies.Topology, mix string) ([]faults.Choice, error) {
	const short, long = time.Second, 3 * time.Second
	parts := map[string][]faults.Choice{
		MixNetwork: {
			{Fault: "cut", Target: "zone-a>redis", Min: short, Max: long},
			{Fault: "hold", Target: "zone-b>redis", Params: map[string]string{"stream": "downstream"}, Min: short, Max: long},
			{Fault: "latency", Target: "client", Params: map[string]string{"stream": "both", "latency": "10-50", "jitter": "5"}, Min: short, Max: long},
			{Fault: "reset", Target: "client"},
		},
		MixRedis: {
			{Fault: "flush", Target: "redis-1"},
			{Fault: "script-flush", Target: "redis-1"},
			{Fault: "kill-pubsub", Target: "redis-1"},
			{Fault: "full", Target: "redis-1", Min: short, Max: long},
			{Fault: "pause-writes", Target: "redis-1", Min: short, Max: long},
			{Fault: "busy", Target: "redis-1", Min: short, Max: long},
		},
		MixProcess: {
			{Fault: "pause", Target: "redis-1", Min: short, Max: long},
			{Fault: "restart", Target: "redis-1"},
			{Fault: "kill", Target: "redis-1", Min: short, Max: long},
		},
	}
	if shards := t.Shards(); len(shards) > 0 {
		// Where there are several shards, each fault has another.
		shard := func(i int) map[string]string {
			if len(shards) == 1 {
				return nil
			}
			return map[string]string{paramShard: shards[i%len(shards)]}
		}
		parts[MixFailover] = []faults.Choice{
			{Fault: "split-brain", Target: "zone-a", Params: shard(0), Min: 2 * time.Second, Max: long},
			{Fault: "crash-failover", Params: shard(1), Min: short, Max: long},
			{Fault: "failover", Params: shard(2)},
		}
	}
	var mixes []string
	switch mix {
	case MixNone:
		return nil, nil
	case MixAll:
		for _, name := range []string{MixNetwork, MixProcess, MixRedis, MixFailover} {
			if parts[name] != nil {
				mixes = append(mixes, name)
			}
		}
	default:
		mixes = strings.Split(mix, ",")
	}
	var chosen []faults.Choice
	for _, name := range mixes {
		part, ok := parts[name]
		switch {
		case name == MixNone || name == MixAll:
			return nil, fmt.Errorf("faults %q stands alone, and not in a list", name)
		case !ok && name == MixFailover:
			return nil, fmt.Errorf("topology %s has nothing to fail over to", t.Name)
		case !ok:
			return nil, names.Unknown("mix of faults", name, []string{MixNone, MixNetwork, MixProcess, MixRedis, MixFailover, MixAll})
		}
		chosen = append(chosen, part...)
	}
	return chosen, nil
}

// faultKind finds a fault by its name.
func faultKind(name string) (FaultKind, error) {
	var known []string
	for _, k := range FaultKinds() {
		if k.Name == name {
			return k, nil
		}
		known = append(known, k.Name)
	}
	return FaultKind{}, names.Unknown("fault", name, known)
}

// build makes a fault of its name, target and parameters.
func build(d topologies.Deployment, s faults.Step) (faults.Fault, error) {
	kind, err := faultKind(s.Fault)
	if err != nil {
		return nil, err
	}
	switch kind.Mix {
	case MixNetwork:
		return buildNetwork(d, s)
	case MixProcess, MixRedis:
		server := d.Server(s.Target)
		if server == nil {
			return nil, fmt.Errorf("%s: topology %s has no server %q", s.Fault, d.Topology().Name, s.Target)
		}
		return buildServer(server, s)
	}
	replicated, ok := d.(topologies.Failover)
	if !ok {
		return nil, fmt.Errorf("%s: topology %s has nothing to fail over to", s.Fault, d.Topology().Name)
	}
	shard, err := shardOf(d.Topology(), s.Params)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Fault, err)
	}
	switch s.Fault {
	case "crash-failover":
		return failover.Crash(replicated, shard, func(name string) process.Process { return d.Server(name) }), nil
	case "failover":
		return failover.Graceful(replicated, shard), nil
	default:
		return failover.SplitBrain(replicated, shard, func(master string) (failover.Side, error) {
			return minority(d, master, s.Target)
		}), nil
	}
}

// pauseWritesLimit bounds a pause that nobody heals.
const pauseWritesLimit = time.Minute

// buildServer makes a fault of one server.
func buildServer(server topologies.Server, s faults.Step) (faults.Fault, error) {
	switch s.Fault {
	case "kill":
		return process.Kill(server), nil
	case "pause":
		return process.Pause(server), nil
	case "restart":
		return process.Restart(server), nil
	case "restart-empty":
		return process.RestartEmpty(server), nil
	case "busy":
		return redis.Busy(server), nil
	case "evict":
		return redis.Evict(server), nil
	case "flush":
		return redis.Flush(server), nil
	case "full":
		return redis.Full(server), nil
	case "kill-pubsub":
		return redis.KillPubSub(server), nil
	case "pause-writes":
		return redis.PauseWrites(server, pauseWritesLimit), nil
	case "script-flush":
		return redis.FlushScripts(server), nil
	}
	pattern := s.Params[paramPattern]
	if pattern == "" {
		return nil, fmt.Errorf("%s: say which keys in the parameter %q", s.Fault, paramPattern)
	}
	if s.Fault == "drop-key" {
		return redis.Drop(server, pattern), nil
	}
	return redis.Retype(server, pattern), nil
}

// paramPattern is the parameter that says which keys, as SCAN has it.
const paramPattern = "pattern"

// paramShard is the parameter that names the shard of a failover.
const paramShard = "shard"

// shardOf is the shard that a failover is aimed at; the first one if nothing
// is said.
func shardOf(t topologies.Topology, params map[string]string) (string, error) {
	shards := t.Shards()
	if len(shards) == 0 {
		return "", fmt.Errorf("topology %s has nothing to fail over to", t.Name)
	}
	shard := cmp.Or(params[paramShard], shards[0])
	if !slices.Contains(shards, shard) {
		return "", names.Unknown(paramShard, shard, shards)
	}
	return shard, nil
}

// controls are what a fault needs of a deployment.
func controls(fault string) []topologies.Control {
	kind, _ := faultKind(fault) // whoever asks has checked the name
	switch {
	case kind.Mix == MixNetwork:
		return []topologies.Control{topologies.Wiring}
	case fault == "restart-empty":
		return []topologies.Control{topologies.Processes, topologies.Wiping}
	case kind.Mix == MixProcess:
		return []topologies.Control{topologies.Processes}
	case kind.Mix == MixRedis:
		return []topologies.Control{topologies.Settings}
	case fault == "crash-failover":
		return []topologies.Control{topologies.Failovers, topologies.Processes}
	case fault == "split-brain":
		return []topologies.Control{topologies.Failovers, topologies.Wiring}
	default:
		return []topologies.Control{topologies.Failovers}
	}
}

// ErrImpossible says that a run wants faults that its deployment can't have.
var ErrImpossible = errors.New("can't be done here")

// possible refuses faults that a deployment can't have, before anything is
// done to it.
func possible(d topologies.Deployment, faults []string) error {
	var reasons []string
	impossible := map[string][]string{} // by reason
	for _, fault := range slices.Compact(slices.Sorted(slices.Values(faults))) {
		for _, c := range controls(fault) {
			if why, without := d.Without()[c]; without {
				if impossible[why] == nil {
					reasons = append(reasons, why)
				}
				impossible[why] = append(impossible[why], fault)
				break
			}
		}
	}
	var errs []error
	for _, why := range reasons {
		errs = append(errs, fmt.Errorf("%s %w: %s", strings.Join(impossible[why], ", "), ErrImpossible, why))
	}
	return errors.Join(errs...)
}

// fewLinks is how many links a history names one by one.
const fewLinks = 3

// aim is what a step's target means at this moment, as the history names it: a
// few links by their names, the master that a crash will hit, the side of a
// split brain. Where that can't be told, it is the target as it stands.
func aim(ctx context.Context, d topologies.Deployment, s faults.Step) string {
	if replicated, ok := d.(topologies.Failover); ok && (s.Fault == "crash-failover" || s.Fault == "split-brain") {
		shard, err := shardOf(d.Topology(), s.Params)
		if err != nil {
			return s.Target
		}
		master, err := replicated.Master(ctx, shard)
		if err != nil {
			return s.Target
		}
		if s.Fault == "crash-failover" {
			return master
		}
		if side, err := minority(d, master, s.Target); err == nil {
			return side.Name
		}
		return s.Target
	}
	links, err := d.Topology().Select(s.Target)
	if err != nil || len(links) > fewLinks || !strings.Contains(s.Target, ">") {
		return s.Target
	}
	var found []string
	for _, l := range links {
		found = append(found, l.Name())
	}
	return strings.Join(found, " ")
}

func buildNetwork(d topologies.Deployment, s faults.Step) (faults.Fault, error) {
	chosen, err := d.Topology().Select(s.Target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Fault, err)
	}
	links := wires(d, chosen)
	if len(links) == 0 {
		return nil, fmt.Errorf("%s: nothing can be done to %s here", s.Fault, s.Target)
	}
	stream := s.Params["stream"]
	if stream == "" {
		stream = topologies.Both
	}
	if !slices.Contains([]string{topologies.Both, topologies.Upstream, topologies.Downstream}, stream) {
		return nil, fmt.Errorf("%s: unknown stream %q (known: upstream, downstream, both)", s.Fault, stream)
	}
	switch s.Fault {
	case "cut":
		return network.Cut(links), nil
	case "hold":
		return network.Hold(links, stream), nil
	case "reset":
		return network.Reset(links), nil
	default:
		latency, err := milliseconds(s.Params, "latency")
		if err != nil {
			return nil, err
		}
		jitter, err := milliseconds(s.Params, "jitter")
		if err != nil {
			return nil, err
		}
		if jitter >= latency {
			return nil, fmt.Errorf("latency: want a latency above its jitter, not %v and %v", latency, jitter)
		}
		return network.Latency(links, stream, latency, jitter), nil
	}
}

func milliseconds(params map[string]string, name string) (time.Duration, error) {
	if params[name] == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(params[name], 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s: want whole milliseconds, not %q", name, params[name])
	}
	return time.Duration(n) * time.Millisecond, nil
}

func wires(d topologies.Deployment, links []topologies.Link) []network.Link {
	var ws []network.Link
	for _, l := range links {
		if w := d.Wire(l.Name()); w != nil {
			ws = append(ws, w)
		}
	}
	return ws
}

// minority is the master's side of a split brain: one zone of clients stays
// with it, and the first sentinel, if there is one.
func minority(d topologies.Deployment, master, zone string) (failover.Side, error) {
	t := d.Topology()
	if zone == "" {
		zone = t.Of(topologies.Zone)[0]
	}
	if !slices.Contains(t.Of(topologies.Zone), zone) {
		return failover.Side{}, fmt.Errorf("split-brain: topology %s has no zone %q", t.Name, zone)
	}
	group := []string{master}
	if sentinels := t.Of(topologies.Sentinel); len(sentinels) > 0 {
		group = append(group, sentinels[0])
	}
	group = append(group, zone)
	return failover.Side{
		Name:  "{" + strings.Join(group, " ") + "}",
		Links: wires(d, t.Across(group)),
	}, nil
}
