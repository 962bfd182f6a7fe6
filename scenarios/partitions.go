package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/network"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// paramHow is the parameter that says how a partition keeps parties apart.
const paramHow = "how"

// The partitions, whose target is parties and not links.
const (
	// faultPartition cuts the parties that the target names off from all others.
	faultPartition = "partition"
	// faultHalves cuts the servers in two, with a zone of clients on each side:
	// the first half of each kind, rounded down, and the others.
	faultHalves = "partition-halves"
	// faultBridge is halves with one server, the target, that both sides see.
	faultBridge = "partition-bridge"
	// faultRing lets every server see only its neighbours: a majority, but no
	// two of them the same one.
	faultRing = "partition-ring"
)

// parts reports whether the fault is a partition.
func (k FaultKind) parts() bool { return parts(k.Name) }

func parts(fault string) bool {
	return slices.Contains([]string{faultPartition, faultHalves, faultBridge, faultRing}, fault)
}

// The ways in which a partition keeps parties apart.
const (
	howCut  = "cut"
	howHold = "hold"
)

// divided are the links that a partition concerns, and whether they are to be
// silent.
func divided(t topologies.Topology, fault, target string, params map[string]string) (links []topologies.Link, silent bool, err error) {
	switch how := params[paramHow]; how {
	case "", howCut:
	case howHold:
		silent = true
	default:
		return nil, false, fmt.Errorf("%s: %w", fault, names.Unknown(paramHow, how, []string{howCut, howHold}))
	}
	apart, err := separation(t, fault, target)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", fault, err)
	}
	links = slices.DeleteFunc(slices.Clone(t.Links), func(l topologies.Link) bool { return !apart(l.From, l.To) })
	if len(links) == 0 {
		return nil, false, fmt.Errorf("%s: topology %s has no links between those", fault, t.Name)
	}
	return links, silent, nil
}

// separation reports of two parties whether the partition keeps them apart.
func separation(t topologies.Topology, fault, target string) (apart func(a, b string) bool, err error) {
	servers := slices.Concat(t.Of(topologies.Redis), t.Of(topologies.Sentinel))
	switch fault {
	case faultPartition:
		group := strings.Fields(target)
		if len(group) == 0 {
			return nil, errors.New("say in the target who is cut off from all others: redis-1, or several names with spaces between them")
		}
		for _, name := range group {
			if _, ok := t.Node(name); !ok {
				return nil, names.Unknown("party", name, nodeNames(t))
			}
		}
		return func(a, b string) bool { return slices.Contains(group, a) != slices.Contains(group, b) }, nil
	case faultHalves, faultBridge:
		bridge := ""
		if fault == faultBridge {
			if bridge = target; !slices.Contains(servers, bridge) {
				return nil, fmt.Errorf("the target is the bridge: %w", names.Unknown("server", bridge, servers))
			}
		}
		side := halves(t, bridge)
		return func(a, b string) bool { return a != bridge && b != bridge && side[a] != side[b] }, nil
	default:
		place := map[string]int{}
		for i, name := range servers {
			place[name] = i
		}
		n := len(servers)
		// Itself and so many to either side are a majority.
		reach := (n/2 + 1) / 2
		return func(a, b string) bool {
			i, isServer := place[a]
			j, isToo := place[b]
			distance := max(i-j, j-i)
			return isServer && isToo && min(distance, n-distance) > reach
		}, nil
	}
}

// halves is on which side each party is: the first of each kind, fewer than half,
// or the others. The bridge belongs to neither.
func halves(t topologies.Topology, bridge string) map[string]bool {
	first := map[string]bool{}
	for _, kind := range []topologies.Kind{topologies.Redis, topologies.Sentinel} {
		of := slices.DeleteFunc(t.Of(kind), func(name string) bool { return name == bridge })
		for _, name := range of[:len(of)/2] {
			first[name] = true
		}
	}
	first[t.Of(topologies.Zone)[0]] = true
	return first
}

func nodeNames(t topologies.Topology) []string {
	var all []string
	for _, n := range t.Nodes {
		all = append(all, n.Name)
	}
	return all
}

// buildPartition makes a partition of the links that are there.
func buildPartition(d topologies.Deployment, s faults.Step) (faults.Fault, error) {
	chosen, silent, err := divided(d.Topology(), s.Fault, s.Target, s.Params)
	if err != nil {
		return nil, err
	}
	links := wires(d, chosen)
	if len(links) == 0 {
		return nil, fmt.Errorf("%s: nothing can be done to those here", s.Fault)
	}
	return network.Partition(s.Fault, links, silent), nil
}
