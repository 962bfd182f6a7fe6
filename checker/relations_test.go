package checker_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// A relation is a change of a history whose effect on the verdicts is known.
type relation struct {
	name   string
	change func(rnd *rand.Rand, events []history.Event) []history.Event
	// equal says that no verdict changes but those of the properties that are left
	// out; else what was valid does not become invalid.
	equal bool
	but   []string
}

const (
	assumptions = "assumptions"
	progress    = "progress"
	resource    = "protected-resource"
	uses        = "use-within-lease"
)

func relations() []relation {
	return []relation{
		{"other names", rename, true, nil},
		{"processes with great numbers", farProcesses, true, nil},
		{"another order of what happened at one instant", reorder, true, []string{progress}},
		{"a unit of time that is three times as long", stretch, true, []string{assumptions, progress}},
		{"another lock beside", beside, false, []string{progress}},
		{"fewer owners", withoutAnOwner, false, []string{progress, uses, resource}},
		{"fewer events at the end", beginning, false, []string{progress}},
		{"an outcome that is unknown", forgetOutcome, false, []string{progress, uses}},
		{"a notice of loss", addLost, false, []string{progress, uses}},
		{"a crash", addCrash, false, []string{uses}},
		{"more drift", addDrift, false, nil},
		{"more permits", addCapacity, false, []string{progress}},
	}
}

// rename gives locks, owners and processes other names, in another order.
func rename(rnd *rand.Rand, events []history.Event) []history.Event {
	salt := rnd.IntN(7)
	processes := 0
	for i := range events {
		processes = max(processes, events[i].Process+1)
	}
	other := rnd.Perm(processes)
	for i := range events {
		e := &events[i]
		if e.Lock != "" {
			e.Lock = strconv.Itoa((int(e.Lock[len(e.Lock)-1])+salt)%7) + e.Lock
		}
		if e.Owner != "" {
			e.Owner = strconv.Itoa((int(e.Owner[len(e.Owner)-1])+salt)%7) + e.Owner
		}
		if e.Process >= 0 {
			e.Process = other[e.Process]
		}
	}
	return events
}

// farProcesses gives the processes numbers around one where a table of processes may end.
func farProcesses(rnd *rand.Rand, events []history.Event) []history.Event {
	processes := 1
	for i := range events {
		processes = max(processes, events[i].Process+1)
	}
	ends := [...]int{1 << 8, 1 << 12, 1 << 16, 1 << 22, 1 << 32}
	first := ends[rnd.IntN(len(ends))] - 1 - rnd.IntN(min(processes, 1<<8))
	for i := range events {
		if e := &events[i]; e.Process >= 0 {
			e.Process += first
		}
	}
	return events
}

// reorder swaps neighbours that have one stamp and are of different clients.
func reorder(rnd *rand.Rand, events []history.Event) []history.Event {
	client := func(e *history.Event) bool {
		return e.Process >= 0 && (e.Op == history.Acquire || e.Op == history.Release || e.Op == history.Extend)
	}
	for range 2 {
		for i := 1; i < len(events); i++ {
			a, b := &events[i-1], &events[i]
			if a.Time == b.Time && client(a) && client(b) && a.Process != b.Process && a.Owner != b.Owner && rnd.IntN(2) == 0 {
				*a, *b = *b, *a
			}
		}
	}
	return events
}

func stretch(_ *rand.Rand, events []history.Event) []history.Event {
	for i := range events {
		e := &events[i]
		for _, t := range []*time.Duration{&e.Time, &e.Lease, &e.Expires, &e.Drift, &e.From} {
			*t *= 3
		}
	}
	return events
}

// beside adds what was done with other locks.
func beside(rnd *rand.Rand, events []history.Event) []history.Event {
	other, pace := turns(2+rnd.IntN(20)).Events, 1+time.Duration(rnd.Int64N(int64(10*time.Millisecond)))
	for i := range other {
		other[i].Process += 10_000
		other[i].Lock = "beside"
		other[i].Time *= pace
	}
	return inOrder(append(other, events...))
}

func inOrder(events []history.Event) []history.Event {
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	return events
}

// some is one of the events that are what is asked for; nil if none is.
func some(rnd *rand.Rand, events []history.Event, is func(*history.Event) bool) *history.Event {
	var list []*history.Event
	for i := range events {
		if is(&events[i]) {
			list = append(list, &events[i])
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[rnd.IntN(len(list))]
}

func withoutAnOwner(rnd *rand.Rand, events []history.Event) []history.Event {
	of := some(rnd, events, func(e *history.Event) bool { return e.Owner != "" })
	if of == nil {
		return events
	}
	lock, owner := of.Lock, of.Owner
	return slices.DeleteFunc(events, func(e history.Event) bool { return e.Lock == lock && e.Owner == owner })
}

func beginning(rnd *rand.Rand, events []history.Event) []history.Event {
	return events[:1+rnd.IntN(len(events))]
}

// forgetOutcome makes the outcome of an operation unknown. Its process goes on under
// a new number.
func forgetOutcome(rnd *rand.Rand, events []history.Event) []history.Event {
	crashed := map[int]bool{}
	for i := range events {
		crashed[events[i].Process] = crashed[events[i].Process] || events[i].Op == history.Crash
	}
	e := some(rnd, events, func(e *history.Event) bool {
		return e.Process >= 0 && (e.Type == history.OK || e.Type == history.Fail) && e.Op != history.Lost && !crashed[e.Process]
	})
	if e == nil {
		return events
	}
	index, process := e.Index, e.Process
	e.Type = history.Info
	e.Token, e.Queued = 0, nil
	for i := range events {
		if o := &events[i]; o.Index > index && o.Process == process {
			o.Process = 20_000
		}
	}
	return events
}

// addLost tells the owner of an acquire or extend, after its answer, that the lock is lost.
func addLost(rnd *rand.Rand, events []history.Event) []history.Event {
	of := some(rnd, events, func(e *history.Event) bool {
		return e.Type == history.OK && (e.Op == history.Acquire || e.Op == history.Extend) && e.Mode != ""
	})
	if of == nil {
		return events
	}
	return inOrder(append(events, history.Event{
		Time: of.Time + 1, Process: 30_000, Type: history.OK, Op: history.Lost, Lock: of.Lock, Owner: of.Owner, Mode: of.Mode,
	}))
}

// addCrash crashes a process after all that it did.
func addCrash(rnd *rand.Rand, events []history.Event) []history.Event {
	of := some(rnd, events, func(e *history.Event) bool { return e.Process >= 0 })
	if of == nil {
		return events
	}
	last := time.Duration(0)
	for i := range events {
		if events[i].Process == of.Process {
			last = events[i].Time
		}
	}
	return inOrder(append(events, history.Event{Time: last, Process: of.Process, Type: history.Info, Op: history.Crash}))
}

func addDrift(rnd *rand.Rand, events []history.Event) []history.Event {
	more := 1 + time.Duration(rnd.Int64N(1+int64(events[len(events)-1].Time)/8))
	for i := range events {
		if e := &events[i]; e.Op == history.Declare {
			e.Drift += more
		}
	}
	return events
}

func addCapacity(rnd *rand.Rand, events []history.Event) []history.Event {
	if d := some(rnd, events, func(e *history.Event) bool { return e.Op == history.Declare && e.Capacity > 0 }); d != nil {
		d.Capacity++
	}
	return events
}

// breaks are the verdicts that break a relation. Of a lock that was not possible before,
// another side may show.
func (r *relation) breaks(before, after checker.Report) []string {
	impossible := false
	for _, c := range []checker.Checker{checker.MutualExclusion(), checker.Capacity(), checker.Ownership()} {
		impossible = impossible || verdictOf(before, c.Name()) == checker.Invalid
	}
	alone := []string{assumptions, progress, resource, uses}
	var broken []string
	for _, c := range checker.Standard() {
		a, b := verdictOf(before, c.Name()), verdictOf(after, c.Name())
		convicted := a == checker.Valid && b == checker.Invalid && (!impossible || slices.Contains(alone, c.Name()))
		if !slices.Contains(r.but, c.Name()) && (r.equal && a != b || convicted) {
			broken = append(broken, c.Name()+" was "+string(a)+" and is "+string(b)+": "+summaryOf(after, c.Name()))
		}
	}
	return broken
}

// related is the changed history.
func (r *relation) related(seed uint64, h *history.History) *history.History {
	events := slices.Clone(h.Events)
	for i := range events {
		events[i].Index = int64(i)
	}
	events = r.change(source(seed), events)
	for i := range events {
		events[i].Index = int64(i)
	}
	return &history.History{Events: events}
}

// Changes of a history that make it no less possible make nothing invalid that was
// valid, and those that change nothing change no verdict. LOCKCHAOS_CASES says of how
// many histories.
func TestVerdictsKeepRelations(t *testing.T) {
	t.Parallel()
	for seed := range uint64(cases(t, 100)) {
		rnd, h := source(seed), made(seed)
		stretch(rnd, stretch(rnd, h.Events)) // so that there is room between any two
		for i := range h.Events {
			h.Events[i].Expires = 0 // else an answer that is left out may have cut a lease
			if e := &h.Events[i]; e.Op == history.Declare {
				e.Kind = cmp.Or(e.Kind, history.KindMutex)
			}
			if i > 0 { // the format wants stamps of their own
				h.Events[i].Time = max(h.Events[i].Time, h.Events[i-1].Time+1)
			}
		}
		before := checker.Check(t.Context(), h)
		for _, r := range relations() {
			other := r.related(seed, h)
			_, err := history.ReadAll(strings.NewReader(oracle.Lines(other)))
			require.NoError(t, err, r.name)
			require.Empty(t, r.breaks(before, checker.Check(t.Context(), other)), "seed %d, with %s\n%s\n%s", seed, r.name, oracle.Lines(h), oracle.Lines(other))
		}
	}
}

func summaryOf(r checker.Report, property string) string {
	for i := range r.Results {
		if r.Results[i].Name == property {
			return r.Results[i].Summary
		}
	}
	return ""
}

func verdictOf(r checker.Report, property string) checker.Verdict {
	for i := range r.Results {
		if r.Results[i].Name == property {
			return r.Results[i].Verdict
		}
	}
	return ""
}

// requireVerdict requires what a property is to say of some events.
func requireVerdict(t *testing.T, want checker.Verdict, property checker.Checker, events ...history.Event) {
	t.Helper()
	h := &history.History{Events: events}
	for i := range h.Events {
		h.Events[i].Index = int64(i)
	}
	require.Equal(t, want, verdictOf(checker.Check(t.Context(), h, property), property.Name()))
}
