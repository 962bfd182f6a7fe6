package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
		{"bandwidth", "network", "links", "stream, rate (bytes/s)", "let only so many bytes a second pass"},
		{"busy", "redis", "server", "", "run a script that does not end before the heal, so that everything else is refused"},
		{"clock-back", MixClock, "server", "by (ms)", "set a server's wall clock back, and to the true time at the heal"},
		{"clock-forward", MixClock, "server", "by (ms)", "set a server's wall clock forward, and to the true time at the heal"},
		{"clock-freeze", MixClock, "server", "", "stop a server's wall clock, and set it to the true time at the heal"},
		{"clock-rate", MixClock, "server", "percent (faster)", "let a server's wall clock run too fast, or too slowly, and set it to the true time at the heal"},
		{"crash-failover", "failover", "-", "shard", "kill the master and wait until a replica was promoted"},
		{"cut", "network", "links", "", "reset all connections and refuse new ones"},
		{"delay-command", "network", "client links", "command, nth, for (ms)", "deliver one command late, and what follows it on its connection"},
		{"delay-reply", "network", "client links", "command, nth, for (ms)", "deliver the reply to one command late, and what follows it"},
		{"drop-command", "network", "client links", "command, nth, then (reset or silent)", "lose one command, and reset its connection, or leave it silent"},
		{"drop-key", "redis", "server", "pattern", "remove the keys that match, once"},
		{"drop-message", "network", "client links", "command (words of it), nth", "lose one message to a subscriber"},
		{"drop-reply", "network", "client links", "command, nth, then (reset or silent)", "lose the reply to one command that was carried out, and reset its connection, or leave it silent"},
		{"evict", "redis", "server", "", "throw out every key for want of memory"},
		{"failover", "failover", "-", "shard", "ask the servers for a failover that nothing forces"},
		{"flap", "network", "links", "down, up (ms)", "cut and mend, over and over"},
		{"flush", "redis", "server", "", "FLUSHALL, once"},
		{"full", "redis", "server", "", "refuse every write for want of memory"},
		{"hold", "network", "links", "stream", "let nothing through, and deliver it all at the heal; on one stream, a one-way cut"},
		{"hold-command", "network", "client links", "command, nth", "keep one command from the server until the heal, and what follows it on its connection"},
		{"hold-reply", "network", "client links", "command, nth", "keep the reply to one command from the client until the heal, and what follows it"},
		{"kill", "process", "server", "", "SIGKILL, and a restart at the heal"},
		{"kill-client", mixClient, "client", "", "SIGKILL to a client of a script, which is gone for good"},
		{"kill-pubsub", "redis", "server", "", "close the connections of all subscribers, once"},
		{"latency", "network", "links", "stream, latency, jitter (ms)", "delay the data"},
		{"migrate-slot", mixCluster, "-", "key", "move the slot of a key to the next master, and finish that at the heal"},
		{"partition", "network", "parties", "how (cut or hold)", "cut some parties, as a group, off from all others"},
		{"partition-bridge", "network", "server", "how (cut or hold)", "cut the deployment in two, but for one server that both sides see"},
		{"partition-halves", "network", "-", "how (cut or hold)", "cut the deployment in two: the first half of each kind of server, rounded down, with zone-a, and the others with zone-b"},
		{"partition-ring", "network", "-", "how (cut or hold)", "let every server see its neighbours only: a majority, and no two the same one"},
		{"pause", "process", "server", "", "SIGSTOP, and SIGCONT at the heal"},
		{"pause-client", mixClient, "client", "", "SIGSTOP to a client of a script, and SIGCONT at the heal"},
		{"pause-writes", "redis", "server", "", "leave writes unanswered (CLIENT PAUSE WRITE), and carry them out at the heal"},
		{faultPlanned, MixFailover, "-", "how (failover or replicaof), pubsub (keep or close)", "move the master's role to a replica that has all its writes, as an operator does; with --access name on topology single"},
		{"power-cut", MixDisk, "server", "", "SIGKILL, what was not synced to the append-only file lost, and a restart at once"},
		{"reset", "network", "links", "", "reset all open connections, once"},
		{"restart", "process", "server", "", "SIGKILL and a restart at once"},
		{"restart-empty", "process", "server", "", "SIGKILL, the data removed, and a restart at once"},
		{"retype-key", "redis", "server", "pattern", "put strings where the keys that match are"},
		{"script-flush", "redis", "server", "", "forget all scripts, once"},
		{"slow-close", "network", "links", "stream, by (ms)", "pass the end of a connection on late"},
		{"shutdown", MixDisk, "server", "", "SHUTDOWN, which syncs what there is, and a restart at once"},
		{"split-brain", "failover", "zone", "shard", "cut the master off with a zone of clients and a minority of the sentinels, if there are some"},
		{"stall-disk", MixDisk, "server", "", "let syncs to the append-only file take until the heal"},
	}
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
	case mixCluster:
		return buildSlots(d, s)
	case MixProcess, MixRedis, MixClock, MixDisk:
		server := d.Server(s.Target)
		if server == nil {
			return nil, fmt.Errorf("%s: topology %s has no server %q", s.Fault, d.Topology().Name, s.Target)
		}
		if kind.Mix == MixClock || kind.Mix == MixDisk {
			return buildClock(d, server, s)
		}
		return buildServer(server, s)
	}
	if s.Fault == faultPlanned {
		return buildPlanned(d, s)
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
	case kind.Mix == MixRedis, kind.Mix == mixCluster:
		return []topologies.Control{topologies.Settings}
	case kind.Mix == MixClock:
		return []topologies.Control{topologies.Clocks}
	case fault == "shutdown": // nobody else's server, which may not come back by itself
		return []topologies.Control{topologies.Processes, topologies.Settings}
	case kind.Mix == MixDisk:
		return []topologies.Control{topologies.Disks, topologies.Processes}
	case kind.Mix == mixClient:
		return []topologies.Control{topologies.Workers}
	case fault == faultPlanned:
		return []topologies.Control{topologies.Settings}
	case fault == "crash-failover":
		return []topologies.Control{topologies.Failovers, topologies.Processes}
	case fault == "split-brain":
		return []topologies.Control{topologies.Failovers, topologies.Wiring, topologies.Isolation}
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
		without := maps.Clone(d.Without())
		if kind, _ := faultKind(fault); without[topologies.Wiring] == "" {
			if err := unlinked(d, kind); err != nil {
				without = map[topologies.Control]string{topologies.Wiring: err.Error()}
			}
		}
		for _, c := range controls(fault) {
			if why, without := without[c]; without {
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
	if replicated, ok := d.(topologies.Replicated); ok && slices.Contains([]string{"crash-failover", "split-brain", faultPlanned}, s.Fault) {
		shard, err := shardOf(d.Topology(), s.Params)
		if err != nil {
			return s.Target
		}
		master, err := replicated.Master(ctx, shard)
		if err != nil {
			return s.Target
		}
		if s.Fault != "split-brain" {
			return master
		}
		if side, err := minority(d, master, s.Target); err == nil {
			return side.Name
		}
		return s.Target
	}
	if s.Fault == faultPartition {
		return "{" + s.Target + "}"
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
	if parts(s.Fault) {
		return buildPartition(d, s)
	}
	chosen, err := d.Topology().Select(s.Target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Fault, err)
	}
	links := wires(d, chosen)
	if len(links) == 0 {
		return nil, fmt.Errorf("%s: nothing can be done to %s here", s.Fault, s.Target)
	}
	if kind, _ := faultKind(s.Fault); kind.lies() {
		return buildTrap(links, s)
	}
	stream := s.Params["stream"]
	if stream == "" {
		stream = topologies.Both
	}
	if !slices.Contains([]string{topologies.Both, topologies.Upstream, topologies.Downstream}, stream) {
		return nil, fmt.Errorf("%s: unknown stream %q (known: upstream, downstream, both)", s.Fault, stream)
	}
	switch s.Fault {
	case "bandwidth":
		rate, err := bytesPerSecond(s.Params)
		if err != nil {
			return nil, err
		}
		return network.Bandwidth(links, stream, rate), nil
	case "cut":
		return network.Cut(links), nil
	case "flap":
		down, up, err := turns(s.Params)
		if err != nil {
			return nil, err
		}
		return network.Flap(links, down, up), nil
	case "hold":
		return network.Hold(links, stream), nil
	case "slow-close":
		by, err := lateness(s.Params)
		if err != nil {
			return nil, err
		}
		return network.SlowClose(links, stream, by), nil
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
