package checker_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// randomHistory is a history that no lock made: a few owners of one lock do a
// few operations each at random times on a coarse grid, so that events of
// different owners tie, with random outcomes. Most are illegal, in every way.
func randomHistory(rnd *rand.Rand) *history.History {
	g := &generator{rnd: rnd, reentrant: rnd.IntN(3) == 0, grid: 8 + rnd.IntN(30)}
	switch rnd.IntN(5) {
	case 0:
		g.kind = history.KindRW
	case 1:
		g.kind, g.capacity, g.reentrant = history.KindSemaphore, 1+rnd.IntN(3), false
	default:
		g.kind = history.KindMutex
	}
	if rnd.IntN(4) == 0 {
		g.drift = time.Duration(1 + rnd.IntN(2))
	}
	owners := 2 + rnd.IntN(4)
	for range owners {
		g.owner()
	}
	return g.history()
}

type generator struct {
	rnd       *rand.Rand
	kind      string
	capacity  int
	reentrant bool
	drift     time.Duration
	grid      int
	process   int
	permits   int // of the owner
	mode      history.Mode
	owners    int
	events    []history.Event
}

func (g *generator) history() *history.History {
	// Ties keep a random order.
	g.rnd.Shuffle(len(g.events), func(i, j int) { g.events[i], g.events[j] = g.events[j], g.events[i] })
	slices.SortStableFunc(g.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	declare := history.Event{
		Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k",
		Kind: g.kind, Capacity: g.capacity, Reentrant: g.reentrant, Drift: g.drift,
	}
	all := append([]history.Event{declare}, g.events...)
	for i := range all {
		all[i].Index = int64(i)
	}
	return &history.History{Events: all}
}

// owner adds one owner: an acquire and what may follow, on stamps of its own.
func (g *generator) owner() {
	g.owners++
	name := "o" + strconv.Itoa(g.owners)
	n := 1 + g.rnd.IntN(4)
	watchdog := 0
	if g.rnd.IntN(3) == 0 {
		watchdog = 1 + g.rnd.IntN(2)
	}
	stamps := g.rnd.Perm(max(g.grid, 2*(n+watchdog)))[:2*(n+watchdog)]
	var dog []int
	dog, stamps = stamps[:2*watchdog], stamps[2*watchdog:]
	slices.Sort(stamps)
	slices.Sort(dog)
	g.process++
	g.permits = 0
	if g.kind == history.KindSemaphore && g.rnd.IntN(3) == 0 {
		g.permits = 1 + g.rnd.IntN(2)
	}
	for i := range n {
		verb := history.Acquire
		if i > 0 {
			verb = []history.Op{
				history.Acquire, history.Release, history.Release, history.Release, history.Extend, history.Lost,
			}[g.rnd.IntN(6)]
		}
		if verb == history.Acquire && i > 0 && g.rnd.IntN(3) > 0 && !g.reentrant {
			verb = history.Release
		}
		g.operation(name, verb, stamps[2*i], stamps[2*i+1])
	}
	g.process++
	for i := range watchdog {
		g.operation(name, history.Extend, dog[2*i], dog[2*i+1])
	}
}

func (g *generator) operation(owner string, verb history.Op, from, to int) {
	invoke := history.Event{
		Time: time.Duration(from), Process: g.process, Type: history.Invoke, Op: verb, Lock: "k", Owner: owner,
	}
	switch g.kind {
	case history.KindRW:
		if verb == history.Acquire || g.rnd.IntN(8) == 0 {
			g.mode = []history.Mode{history.Read, history.Write}[g.rnd.IntN(2)]
		}
		if invoke.Mode = g.mode; g.rnd.IntN(4) == 0 && verb != history.Acquire {
			invoke.Mode = "" // as it was acquired last
		}
	case history.KindSemaphore:
		invoke.Mode, invoke.Permits = history.Permit, g.permits
	default:
	}
	if verb == history.Lost {
		invoke.Type = history.OK
		g.events = append(g.events, invoke)
		return
	}
	if verb != history.Release && g.rnd.IntN(5) > 0 {
		invoke.Lease = time.Duration(1 + g.rnd.IntN(g.grid))
	}
	complete := invoke
	complete.Time = time.Duration(to)
	switch d := g.rnd.IntN(10); {
	case d < 7:
		complete.Type = history.OK
		if verb != history.Release && invoke.Lease > 0 && g.rnd.IntN(4) == 0 {
			complete.Expires = time.Duration(1 + g.rnd.IntN(2*g.grid))
		}
	case d < 8:
		complete.Type = history.Fail
	default:
		complete.Type = history.Info
		defer func() { g.process++ }()
	}
	g.events = append(g.events, invoke, complete)
}
