package checker_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// mixture is a history of one to three locks of any kind, each used for a while
// by owners that may come back, under the noise of another lock that is used
// legally. Processes crash, and operations stay open. Most are illegal; with
// legal, none is.
func mixture(rnd *rand.Rand, legal bool) *history.History {
	m := &mixing{rnd: rnd}
	for i := range 1 + rnd.IntN(3) {
		name := "k" + strconv.Itoa(i)
		if legal {
			h := simulate(rnd, 2+rnd.IntN(4), 20+rnd.IntN(60))
			m.add(h.Events, name, "", 0)
			continue
		}
		m.lock(name)
	}
	m.noise(rnd.IntN(40))
	return m.history()
}

type mixing struct {
	rnd       *rand.Rand
	processes int
	last      time.Duration
	events    []history.Event
}

// scale is how many instants of the mixture are one of its parts.
const scale = 8

// add adds the events of a history of one lock, from an instant on.
func (m *mixing) add(events []history.Event, lock, prefix string, from time.Duration) {
	processes := 0
	for _, e := range events {
		e.Lock = lock
		e.Time = scale * (from + e.Time)
		e.Lease *= scale
		e.Drift *= scale
		if e.Expires > 0 {
			e.Expires = scale * (from + e.Expires)
		}
		if e.Process >= 0 {
			processes = max(processes, e.Process+1)
			e.Process += m.processes
		}
		if e.Owner != "" {
			e.Owner = prefix + e.Owner
		}
		m.last = max(m.last, e.Time)
		m.events = append(m.events, e)
	}
	m.processes += processes
}

// lock adds a lock that no service kept.
func (m *mixing) lock(name string) {
	var declared *history.Event
	from := time.Duration(0)
	fair, tokens := m.rnd.IntN(4) == 0, m.rnd.IntN(3) == 0
	token := int64(0)
	for block := range 1 + m.rnd.IntN(4) {
		h := randomHistory(m.rnd)
		if declared == nil {
			h.Events[0].Fair = fair
			declared = &h.Events[0]
		} else {
			for h.Events[0].Kind != declared.Kind {
				h = randomHistory(m.rnd)
			}
			h.Events = h.Events[1:]
		}
		for i := range h.Events {
			e := &h.Events[i]
			if e.Op != history.Acquire || e.Type != history.OK {
				continue
			}
			if tokens && m.rnd.IntN(8) > 0 {
				token++
				e.Token = max(1, token-int64(m.rnd.IntN(8)/6))
			}
			if fair && m.rnd.IntN(8) > 0 {
				token++
				place := max(0, token-int64(m.rnd.IntN(8)/5))
				e.Queued = &place
			}
		}
		prefix := ""
		if m.rnd.IntN(2) == 0 {
			prefix = strconv.Itoa(block)
		}
		last := h.Events[len(h.Events)-1].Time
		m.add(m.crash(h.Events), name, prefix, from)
		from += last + 1 + time.Duration(m.rnd.IntN(20))
	}
}

// crash ends some of the processes on the way, and leaves what they did open.
func (m *mixing) crash(events []history.Event) []history.Event {
	if m.rnd.IntN(2) == 0 {
		return events
	}
	gone := map[int]time.Duration{}
	for range m.rnd.IntN(4) {
		e := &events[m.rnd.IntN(len(events))]
		if _, twice := gone[e.Process]; e.Process < 0 || twice {
			continue
		}
		gone[e.Process] = e.Time + time.Duration(m.rnd.IntN(3))
	}
	var left []history.Event
	for _, e := range events {
		if at, crashed := gone[e.Process]; !crashed || e.Time <= at || e.Op == history.Declare {
			left = append(left, e)
		}
	}
	for _, process := range slices.Sorted(keys(gone)) {
		if m.rnd.IntN(4) > 0 { // else it is only that nothing more was heard of it
			left = append(left, history.Event{Time: gone[process], Process: process, Type: history.Info, Op: history.Crash})
		}
	}
	slices.SortStableFunc(left, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	return left
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// noise adds so many legal holds of another lock.
func (m *mixing) noise(holds int) {
	if holds == 0 {
		return
	}
	at := make([]time.Duration, 4*holds)
	for i := range at {
		at[i] = 1 + time.Duration(m.rnd.Int64N(int64(m.last)+1))
	}
	slices.Sort(at)
	for i := range holds {
		e := history.Event{Process: m.processes + i%2, Lock: "z", Owner: "z" + strconv.Itoa(i)}
		for j, what := range []struct {
			op  history.Op
			typ history.Type
		}{{history.Acquire, history.Invoke}, {history.Acquire, history.OK}, {history.Release, history.Invoke}, {history.Release, history.OK}} {
			e.Op, e.Type, e.Time = what.op, what.typ, at[4*i+j]
			m.events = append(m.events, e)
		}
	}
	m.processes += 2
}

func (m *mixing) history() *history.History {
	slices.SortStableFunc(m.events, func(a, b history.Event) int {
		if c := cmp.Compare(a.Time, b.Time); c != 0 || (a.Op == history.Declare) == (b.Op == history.Declare) {
			return c
		}
		if a.Op == history.Declare {
			return -1
		}
		return 1
	})
	for i := range m.events {
		m.events[i].Index = int64(i)
	}
	return &history.History{Events: m.events}
}
