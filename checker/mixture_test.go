package checker_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// mixture is a history of one to four locks of any kind, each used for a while
// by owners that may come back, with all that a history may have: processes that
// crash or fall silent, notices of loss, extends of a watchdog, tokens, places in a
// queue, uses of a resource, faults, a lock that is not declared, and the noise of
// another lock that is used legally. It may end on the way. Most are illegal; with
// legal, none is.
func mixture(rnd *rand.Rand, legal bool) *history.History {
	m := &mixing{rnd: rnd}
	for i := range 1 + rnd.IntN(3) {
		name := "k" + strconv.Itoa(i)
		switch {
		case legal:
			h := simulate(rnd, 2+rnd.IntN(4), 20+rnd.IntN(60))
			m.add(h.Events, name, "", 0)
		case rnd.IntN(3) == 0:
			m.small(name)
		default:
			m.lock(name)
		}
	}
	m.noise(rnd.IntN(40))
	if !legal {
		m.uses()
		m.faults()
	}
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

// add adds the events of a history, from an instant on.
func (m *mixing) add(events []history.Event, lock, prefix string, from time.Duration) {
	processes := 0
	for _, e := range events {
		if e.Lock != "" {
			e.Lock = lock
		}
		if e.Resource != "" {
			e.Resource = lock
		}
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

// small adds a lock of histories that are made for the oracle.
func (m *mixing) small(name string) {
	g := oracle.NewGenerator(m.rnd.Uint64())
	var declared *history.Event
	from := time.Duration(0)
	for block := range 1 + m.rnd.IntN(4) {
		var h *history.History
		for {
			if h = g.Next(); h.Events[0].Op == history.Declare && h.Events[1].Op != history.Declare &&
				(declared == nil || h.Events[0].Kind == declared.Kind) {
				break
			}
		}
		const unit = 10 * time.Millisecond
		for i := range h.Events {
			e := &h.Events[i]
			for _, t := range []*time.Duration{&e.Time, &e.Lease, &e.Expires, &e.Drift} {
				*t /= unit
			}
		}
		events := h.Events
		if declared == nil {
			declared = &events[0]
		} else {
			events = events[1:]
		}
		prefix := ""
		if m.rnd.IntN(2) == 0 {
			prefix = strconv.Itoa(block)
		}
		last := h.Events[len(h.Events)-1].Time
		m.add(m.crash(events), name, prefix, from)
		from += last + 1 + time.Duration(m.rnd.IntN(20))
	}
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
			if d := declared; !fair && d.Kind == history.KindMutex && !d.Reentrant && d.Drift == 0 && m.rnd.IntN(4) == 0 {
				h.Events = h.Events[1:]
			}
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

// uses adds accesses of processes that were granted a lock, between what they did
// with it or by other processes, which name their owner or do not.
func (m *mixing) uses() {
	if m.rnd.IntN(3) == 0 {
		return
	}
	type granted struct {
		owner, lock string
		process     int
		at          time.Duration
		token       int64
	}
	var grants []granted
	times := map[int][]time.Duration{} // of each process
	for i := range m.events {
		e := &m.events[i]
		times[e.Process] = append(times[e.Process], e.Time)
		if e.Op == history.Acquire && e.Type == history.OK {
			grants = append(grants, granted{e.Owner, e.Lock, e.Process, e.Time, e.Token})
		}
	}
	version := 0
	for _, g := range grants {
		for range m.rnd.IntN(3) {
			e := history.Event{Process: g.process, Op: history.Access, Type: history.Invoke, Lock: g.lock, Resource: "r" + strconv.Itoa(m.rnd.IntN(2))}
			if m.rnd.IntN(3) > 0 {
				e.Owner = g.owner
			}
			var at, until time.Duration
			if m.rnd.IntN(3) == 0 { // by another process
				e.Process = m.processes
				m.processes++
				at = g.at + scale*time.Duration(m.rnd.IntN(30))
				until = at + time.Duration(m.rnd.IntN(10*scale))
			} else { // between two events of its own
				at = g.at + 1 + time.Duration(m.rnd.IntN(scale/2-1))
				for m.rnd.IntN(2) == 0 {
					at += scale
				}
				until = at + time.Duration(m.rnd.IntN(scale/2))
				// What it asks for has an answer in a later instant of the grid.
				list := times[g.process]
				before := len(slices.DeleteFunc(slices.Clone(list), func(t time.Duration) bool { return t > at }))
				if m.busy(g.process, at) || before < len(list) && list[before] <= until || slices.Contains(list, at) {
					continue
				}
				times[g.process] = append(list, at, until)
				slices.Sort(times[g.process])
			}
			if m.rnd.IntN(2) == 0 {
				e.Token = g.token
			}
			if m.rnd.IntN(2) == 0 {
				version++
				e.Value = strconv.Itoa(max(0, version-1-m.rnd.IntN(5)/4)) + ">" + strconv.Itoa(version)
			}
			e.Time = at
			m.events = append(m.events, e)
			e.Time = until
			e.Type = []history.Type{history.OK, history.OK, history.OK, history.OK, history.Fail, history.Info}[m.rnd.IntN(6)]
			if e.Type == history.Info || m.rnd.IntN(20) == 0 {
				if e.Process == g.process { // it would be retired
					e.Type = history.Fail
				} else if e.Type != history.Info {
					continue // never answered
				}
			}
			m.events = append(m.events, e)
		}
	}
}

// busy reports whether an operation of a process is under way, or none can follow.
func (m *mixing) busy(process int, at time.Duration) bool {
	busy := false
	last := history.Type("")
	latest := time.Duration(-1)
	for i := range m.events {
		e := &m.events[i]
		if e.Process == process && e.Op != history.Lost && e.Time <= at && e.Time >= latest {
			latest, last = e.Time, e.Type
		}
		if e.Process == process && e.Op == history.Crash && e.Time <= at {
			busy = true
		}
	}
	return busy || last == history.Invoke || last == history.Info
}

// faults adds some faults.
func (m *mixing) faults() {
	if m.rnd.IntN(3) > 0 {
		return
	}
	for i := range 1 + m.rnd.IntN(2) {
		e := history.Event{Process: history.NoProcess, Type: history.Invoke, Op: history.Inject, Fault: "pause", Target: "n" + strconv.Itoa(i)}
		e.Time = time.Duration(m.rnd.Int64N(int64(m.last) + 1))
		m.events = append(m.events, e)
		e.Type = history.OK
		e.Time++
		m.events = append(m.events, e)
		if m.rnd.IntN(4) > 0 {
			e.Op, e.Type = history.Heal, history.Invoke
			e.Time += time.Duration(m.rnd.Int64N(int64(m.last) + 1))
			m.events = append(m.events, e)
			e.Type = history.OK
			m.events = append(m.events, e)
		}
	}
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
	if m.rnd.IntN(4) == 0 {
		m.events = m.events[:1+m.rnd.IntN(len(m.events))]
	}
	// An instant is a nanosecond, or so long that a lock may be stuck and a lease
	// is one.
	unit := []time.Duration{1, time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond}[m.rnd.IntN(4)]
	for i := range m.events {
		e := &m.events[i]
		e.Index = int64(i)
		for _, t := range []*time.Duration{&e.Time, &e.Lease, &e.Expires, &e.Drift} {
			*t *= unit
		}
	}
	return &history.History{Events: m.events}
}
