package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/failover"
	"github.com/lockchaos/lockchaos/faults/network"
	"github.com/lockchaos/lockchaos/faults/process"
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
		{"crash-failover", "failover", "-", "", "kill the master and wait until a replica was promoted"},
		{"cut", "network", "links", "", "reset all connections and refuse new ones"},
		{"failover", "failover", "-", "", "ask the sentinels for a failover that nothing forces"},
		{"hold", "network", "links", "stream", "let nothing through, and deliver it all at the heal; on one stream, a one-way cut"},
		{"kill", "process", "server", "", "SIGKILL, and a restart at the heal"},
		{"latency", "network", "links", "stream, latency, jitter (ms)", "delay the data"},
		{"pause", "process", "server", "", "SIGSTOP, and SIGCONT at the heal"},
		{"reset", "network", "links", "", "reset all open connections, once"},
		{"restart", "process", "server", "", "SIGKILL and a restart at once"},
		{"split-brain", "failover", "zone", "", "cut the master off with a minority of the sentinels and a zone of clients"},
	}
}

// The mixes that a random run's faults can be drawn from.
const (
	MixNone     = "none"
	MixNetwork  = "network"
	MixProcess  = "process"
	MixFailover = "failover"
	MixAll      = "all"
)

// DefaultMix is the mix of a run that names none: what the topology ought to
// be asked to survive. Processes that lose their memory are not part of it.
func DefaultMix(t topologies.Topology) string {
	if len(t.Of(topologies.Sentinel)) > 0 {
		return MixNetwork + "," + MixFailover
	}
	return MixNetwork
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
		MixProcess: {
			{Fault: "pause", Target: "redis-1", Min: short, Max: long},
			{Fault: "restart", Target: "redis-1"},
			{Fault: "kill", Target: "redis-1", Min: short, Max: long},
		},
		MixFailover: {
			{Fault: "split-brain", Target: "zone-a", Min: 2 * time.Second, Max: long},
			{Fault: "crash-failover", Min: short, Max: long},
			{Fault: "failover"},
		},
	}
	replicated := len(t.Of(topologies.Sentinel)) > 0
	if !replicated {
		delete(parts, MixFailover)
	}
	var mixes []string
	switch mix {
	case MixNone:
		return nil, nil
	case MixAll:
		for _, name := range []string{MixNetwork, MixProcess, MixFailover} {
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
			return nil, names.Unknown("mix of faults", name, []string{MixNone, MixNetwork, MixProcess, MixFailover, MixAll})
		}
		chosen = append(chosen, part...)
	}
	return chosen, nil
}

// checkFault refuses a name that no fault has.
func checkFault(name string) error {
	var known []string
	for _, k := range FaultKinds() {
		if k.Name == name {
			return nil
		}
		known = append(known, k.Name)
	}
	return names.Unknown("fault", name, known)
}

// build makes a fault of its name, target and parameters.
func build(d topologies.Deployment, s faults.Step) (faults.Fault, error) {
	if err := checkFault(s.Fault); err != nil {
		return nil, err
	}
	switch s.Fault {
	case "cut", "hold", "latency", "reset":
		return buildNetwork(d, s)
	case "kill", "pause", "restart":
		p := d.Server(s.Target)
		if p == nil {
			return nil, fmt.Errorf("%s: topology %s has no server %q", s.Fault, d.Topology().Name, s.Target)
		}
		return map[string]func(process.Process) faults.Fault{
			"kill": process.Kill, "pause": process.Pause, "restart": process.Restart,
		}[s.Fault](p), nil
	}
	replicated, ok := d.(topologies.Failover)
	if !ok {
		return nil, fmt.Errorf("%s: topology %s has nothing to fail over to", s.Fault, d.Topology().Name)
	}
	switch s.Fault {
	case "crash-failover":
		return failover.Crash(replicated, func(name string) process.Process { return d.Server(name) }), nil
	case "failover":
		return failover.Graceful(replicated), nil
	default:
		return failover.SplitBrain(replicated, func(master string) (failover.Side, error) {
			return minority(d, master, s.Target)
		}), nil
	}
}

// fewLinks is how many links a history names one by one.
const fewLinks = 3

// aim is what a step's target means at this moment, as the history names it: a
// few links by their names, the master that a crash will hit, the side of a
// split brain. Where that can't be told, it is the target as it stands.
func aim(ctx context.Context, d topologies.Deployment, s faults.Step) string {
	if replicated, ok := d.(topologies.Failover); ok && (s.Fault == "crash-failover" || s.Fault == "split-brain") {
		master, err := replicated.Master(ctx)
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
		ws = append(ws, d.Wire(l.Name()))
	}
	return ws
}

// minority is the master's side of a split brain: the first sentinel and one
// zone of clients stay with it.
func minority(d topologies.Deployment, master, zone string) (failover.Side, error) {
	t := d.Topology()
	if zone == "" {
		zone = t.Of(topologies.Zone)[0]
	}
	if !slices.Contains(t.Of(topologies.Zone), zone) {
		return failover.Side{}, fmt.Errorf("split-brain: topology %s has no zone %q", t.Name, zone)
	}
	group := []string{master, t.Of(topologies.Sentinel)[0], zone}
	return failover.Side{
		Name:  "{" + strings.Join(group, " ") + "}",
		Links: wires(d, t.Across(group)),
	}, nil
}
