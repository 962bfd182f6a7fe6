package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// sweepDelay is by how much a sweep delays a message: longer than a client waits for a
// reply, and than the lease of [SweepBase].
const sweepDelay = 1200 * time.Millisecond

// sweptFor is the part of a case at whose requests a sweep is aimed.
const sweptFor = 400 * time.Millisecond

// SweepBase is the short and plain case that a sweep begins with.
func SweepBase(l harness.LockSpec, k Campaign, seed uint64) Case {
	c := Case{
		Lock: l.Name, Topology: k.Topology, Servers: k.Servers, ReplicaAcks: k.ReplicaAcks, Seed: seed, Length: sweptFor,
		Workload: l.DefaultWorkload(), Clients: 2, Locks: locksOf(l), Lease: time.Second, Wait: time.Second, Hold: 50 * time.Millisecond,
	}
	swept := c
	swept.Plan = []world.Fault{{Name: world.Kill}} // the one of its faults for which there must be most
	c.Progress = Patience(l, swept)
	return c
}

// A Sweep is a case again and again, for longer and each time with other faults: first
// with each fault of one request by itself, so that the first case that fails has a
// shortest plan, and then with two of them.
type Sweep struct {
	base   Case
	faults []world.Fault
}

// NewSweep makes the sweep of a case that had so many requests on each link, as its
// outcome counts them. The faults are, of every request: the request lost, its reply
// lost, either of them late, the request carried out twice, at once and late, the server
// that it went to killed at once, and the process that sent it.
func NewSweep(c Case, requests map[string]int) *Sweep {
	s := &Sweep{base: c}
	for _, link := range slices.Sorted(maps.Keys(requests)) {
		zone, server, _ := strings.Cut(link, ">")
		for nth := 1; nth <= requests[link]; nth++ {
			at := &world.Anchor{Event: world.Request, Of: link, Nth: nth}
			s.faults = append(s.faults,
				world.Fault{Name: world.DropCommand, Target: link, After: at},
				world.Fault{Name: world.DropReply, Target: link, After: at},
				world.Fault{Name: world.DelayCommand, Target: link, After: at, By: sweepDelay},
				world.Fault{Name: world.DelayReply, Target: link, After: at, By: sweepDelay},
				world.Fault{Name: world.RepeatCommand, Target: link, After: at},
				world.Fault{Name: world.RepeatCommand, Target: link, After: at, By: sweepDelay},
				world.Fault{Name: world.KillClient, Target: zone, After: at},
				world.Fault{Name: world.Kill, Target: server, After: at, For: 10 * time.Millisecond, Keep: true},
			)
		}
	}
	return s
}

// Faults is how many single faults there are. They are counted from 0.
func (s *Sweep) Faults() int { return len(s.faults) }

// Case is the case with these faults.
func (s *Sweep) Case(faults ...int) Case {
	c := s.base
	c.Plan = slices.Clone(c.Plan)
	for _, i := range faults {
		c.Plan = append(c.Plan, s.faults[i])
	}
	c.Progress += ghostGrants(c.Plan, c.Lease)
	c.Length = lengthOf(c, false)
	return c
}

// Pairs are two faults at a time, the most promising first, and limit of them at most. It
// is given how the case with each fault by itself went: its [Shape], and whether it failed.
// A pair is promising if few other faults have the shapes of its faults, as what is rare
// is where little was tried. Faults that fail by themselves are in no pair, and of those
// with the shape of the case without a fault, quiet, one is in none with another of them.
func (s *Sweep) Pairs(shapes []string, failed []bool, quiet string, limit int) [][]int {
	often := map[string]int{}
	for _, shape := range shapes {
		often[shape]++
	}
	var all [][]int
	for i := range s.faults {
		for j := i + 1; j < len(s.faults); j++ {
			if failed[i] || failed[j] || shapes[i] == quiet && shapes[j] == quiet {
				continue
			}
			all = append(all, []int{i, j})
		}
	}
	rarity := func(p []int) int { return often[shapes[p[0]]] * often[shapes[p[1]]] }
	slices.SortStableFunc(all, func(a, b []int) int { return cmp.Compare(rarity(a), rarity(b)) })
	return all[:min(limit, len(all))]
}

// Shape is how a history went, without its times and numbers: which kinds of operation
// ended in which ways, each to the power of two that is below how often. Two runs of one
// shape met much the same.
func Shape(events []history.Event) string {
	often := map[string]int{}
	for i := range events {
		if e := &events[i]; e.Process != history.NoProcess && e.Type != history.Invoke {
			often[string(e.Op)+" "+string(e.Type)]++
		}
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(often)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, 1<<(bits.Len(uint(often[what]))-1))) //nolint:gosec // a count
	}
	return strings.Join(parts, ", ")
}
