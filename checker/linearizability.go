package checker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/crew"
	"github.com/lockchaos/lockchaos/internal/say"
)

// The budget of the search. It ends sooner if the context does.
const (
	// SearchTime is the most time that the search takes for a history.
	SearchTime = 20 * time.Second
	// SearchOperations is the most operations that are searched as one: it
	// takes n*n/8 bytes of memory, where all goes well.
	SearchOperations = 10_000
	// searchMemory bounds the memory where it does not, in bytes.
	searchMemory = 256 << 20
	// cutAbove is the number of operations from which the history of a lock is
	// cut where that changes nothing.
	cutAbove = 200
)

// aroundViolation are the most operations among which the search looks for a
// violation that the sweep has found, before it looks everywhere.
func aroundViolation() [3]int { return [...]int{10, 25, 60} }

// Linearizability is the checker of "linearizability": some order of the
// operations on each lock explains all their results, with leases that may end
// at any time after their promised end. It is decided by a search with
// porcupine that knows nothing of the sweep behind [MutualExclusion],
// [Capacity] and [Ownership], as a second opinion. Its models are a lock of one
// holder, with counts where it is re-entrant; a read-write lock; and a
// semaphore.
//
// The likeliest order is tried before anything is searched; an order that the model allows is a proof.
// Locks are searched apart, within [SearchTime] and [SearchOperations]; what
// lies beyond is Unknown. A longer history is cut first, where nothing is in
// flight and the state of the lock is known; one in which the sweep found a
// violation is searched around it first: without some of its holds, a legal
// history stays legal.
func Linearizability() Checker {
	return &property{
		name: "linearizability", engine: "porcupine",
		judge: func(ctx context.Context, ev *evidence, f *findings) {
			linearizable(ctx, ev, f)
			f.valid = fmt.Sprintf("an order of the operations explains every result, in %s of %s",
				say.Count(f.counts["searched"], "operation"), say.Count(f.counts["locks"], "lock"))
		},
	}
}

// A task is the search of one lock.
type task struct {
	lock     string
	parts    []part
	requests int
	verdict  Verdict
	why      string
}

func linearizable(ctx context.Context, ev *evidence, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, SearchTime)
	defer cancel()
	ev.searched = map[string]Verdict{}
	holdings := ev.holdings()
	var tasks []*task
	for _, lock := range ev.locks() {
		promise := holdings.Guarantees[lock]
		switch {
		case isSemaphore(promise.Kind) && promise.Capacity == 0:
			f.doubt("nothing says how many permits %q has: its declaration has no capacity", lock)
		default:
			tasks = append(tasks, newTask(ctx, ev, lock))
		}
	}
	memory := searchAll(ctx, tasks)
	f.used(memory)
	var tied map[string]bool
	for _, t := range tasks {
		if _, bad := ev.sweepResult().invalid[t.lock]; bad && t.verdict == Valid && ev.clear(t.lock) {
			if tied == nil {
				tied = ties(ev)
			}
			if tied[t.lock] { // the search allows orders that the lines rule out
				t.verdict = Invalid
			}
		}
		ev.searched[t.lock] = t.verdict
		switch t.verdict {
		case Unknown:
			f.doubt("lock %q: %s", t.lock, t.why)
		case Invalid:
			f.add(unexplained(ctx, ev, t.lock))
		default:
		}
		f.counts["searched"] += t.requests
	}
	unclear(f, ev, func(string) bool { return true })
	f.counts["locks"] = len(ev.locks())
	if len(tasks) == 0 {
		f.doubt("there was no lock to judge")
	}
}

func newTask(ctx context.Context, ev *evidence, lock string) *task {
	t := &task{lock: lock, verdict: Valid}
	requests := reduce(ev, lock)
	t.requests = len(requests)
	t.parts = []part{whole(ev, lock, requests)}
	if v, bad := ev.sweepResult().first(lock); bad {
		for _, most := range aroundViolation() {
			picked, entire := window(requests, v, most)
			if !entire {
				continue
			}
			near := whole(ev, lock, picked)
			if verdict, _, _ := search(ctx, near); verdict == Invalid {
				t.parts = []part{near}
				break
			}
		}
		return t
	}
	if witnessed(t.parts[0]) {
		t.parts = nil
		return t
	}
	if len(requests) <= cutAbove {
		return t
	}
	if p := ev.holdings().Guarantees[lock]; p.Kind == history.KindMutex {
		t.parts = segments(ev, lock, requests, partSize)
	} else {
		t.parts = sharedSegments(ev, lock, requests, p.Capacity, partSize)
	}
	return t
}

// whole is all of a lock as one part.
func whole(ev *evidence, lock string, requests []*request) part {
	p := ev.holdings().Guarantees[lock]
	if p.Kind != history.KindRW && p.Kind != history.KindSemaphore {
		return part{requests: requests}
	}
	pin(requests)
	return part{requests: requests, shared: &shared{}, capacity: p.Capacity}
}

// searchAll searches the tasks on all processors, and says how much memory
// that took.
func searchAll(ctx context.Context, tasks []*task) int {
	type job struct {
		task  *task
		parts []part
	}
	const batch = 16
	var jobs []job
	for _, t := range tasks {
		for from := 0; from < len(t.parts); from += batch {
			jobs = append(jobs, job{task: t, parts: t.parts[from:min(from+batch, len(t.parts))]})
		}
	}
	var next atomic.Int64
	var mu sync.Mutex
	var workers crew.Crew
	most := 0
	n := runtime.GOMAXPROCS(0)
	for range n {
		workers.Go(func() {
			for at := next.Add(1); at <= int64(len(jobs)); at = next.Add(1) {
				j := &jobs[at-1]
				for _, p := range j.parts {
					v, why, memory := search(ctx, p)
					mu.Lock()
					if j.task.verdict != Invalid && v != Valid {
						j.task.verdict, j.task.why = v, why
					}
					most = max(most, memory)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return most * n
}

// whyEnded is why a context ended before the search did: the cause that was given,
// else that time ran out.
func whyEnded(ctx context.Context, time string) string {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return cause.Error()
	}
	return time
}

// search looks for an order that explains the requests of one lock. It tells
// how much memory its states took, in bytes.
func search(ctx context.Context, p part) (verdict Verdict, why string, memory int) {
	if len(p.requests) == 0 || witnessed(p) {
		return Valid, "", 0
	}
	return explore(ctx, p)
}

// explore is search by porcupine alone.
func explore(ctx context.Context, p part) (verdict Verdict, why string, memory int) {
	requests := p.requests
	if len(requests) > SearchOperations {
		return Unknown, fmt.Sprintf("%d operations in a row are more than the search takes (%d)", len(requests), SearchOperations), 0
	}
	if ctx.Err() != nil {
		return Unknown, whyEnded(ctx, "no time was left to search for an order of its operations"), 0
	}
	steps := 0
	spent := ""
	may := func() bool {
		if steps++; steps%1024 == 0 && ctx.Err() != nil {
			spent = whyEnded(ctx, "the search for an order of its operations used up its time")
		}
		return spent == ""
	}
	took := func(holders int) {
		memory += len(requests)/8 + 64 + holders*int(unsafe.Sizeof(occupant{}))
		if memory > searchMemory {
			spent = "the search for an order of its operations used up its memory"
		}
	}
	var model porcupine.Model
	if p.shared != nil {
		model = sharedModel(p.shared, p.capacity, may, took)
	} else {
		model = leaseModel(p.from, may, func() { took(0) })
	}
	result := porcupine.CheckOperationsTimeout(model, operations(requests), 0)
	switch {
	case result == porcupine.Ok:
		return Valid, "", memory
	case spent != "":
		return Unknown, spent, memory
	default:
		return Invalid, "", memory
	}
}

// first is the first violation of the lock that the sweep has found.
func (s *sweepResult) first(lock string) (v Violation, found bool) {
	if _, bad := s.invalid[lock]; !bad {
		return v, false
	}
	for _, list := range s.all() {
		for _, w := range list {
			if w.Lock == lock && (!found || byTime(w, v) < 0) {
				v, found = w, true
			}
		}
	}
	return v, found
}

// unexplained points at why no order works: at what the sweep has found, else
// at the operation without which there would be one.
func unexplained(ctx context.Context, ev *evidence, lock string) Violation {
	if v, found := ev.sweepResult().first(lock); found {
		v.Kind = NotLinearizable
		v.Explanation = fmt.Sprintf("no order of the operations on %q explains their results: %s", lock, v.Explanation)
		return v
	}
	v := Violation{Kind: NotLinearizable, Lock: lock}
	all := ev.history.Events
	n := sort.Search(len(all), func(n int) bool {
		prefix := newEvidence(&history.History{Events: all[:n]})
		verdict, _, _ := search(ctx, whole(prefix, lock, reduce(prefix, lock)))
		return verdict == Invalid
	})
	v.Explanation = fmt.Sprintf("no order of the operations on %q explains their results", lock)
	if n == 0 || n > len(all) {
		v.Events, v.Until = events(), ev.history.End()
		return v
	}
	e := &all[n-1]
	v.Events, v.From, v.Until = events(e.Index), e.Time, e.Time
	v.Explanation += fmt.Sprintf("; with the %s of the %s of %s at %s the last one is gone",
		e.Type, e.Op, who(e.Process, e.Owner), seconds(e.Time))
	return v
}

// disagreements compares the two engines where both are exact.
func disagreements(f *findings, ev *evidence) {
	if ev.searched == nil || ev.sweep == nil {
		return
	}
	tied := ties(ev)
	for _, lock := range ev.locks() {
		verdict, ok := ev.searched[lock]
		_, bad := ev.sweep.invalid[lock]
		if !ok || verdict == Unknown || !ev.clear(lock) || bad == (verdict == Invalid) || tied[lock] {
			continue
		}
		sweep := Valid
		if bad {
			sweep = Invalid
		}
		f.doubt("a defect of the checker: on lock %q the sweep says %s and the search says %s; trust neither, and report this history",
			lock, sweep, verdict)
	}
}

// ties are the locks on which one owner did two things in the same instant:
// porcupine takes those for concurrent, and the sweep does not.
func ties(ev *evidence) map[string]bool {
	tied := map[string]bool{}
	all := ev.history.Events
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].Time == all[from].Time {
			to++
		}
		for i := from; i < to-1; i++ {
			for j := i + 1; j < to && !tied[all[i].Lock]; j++ {
				if a, b := &all[i], &all[j]; a.Op.OfHolder() && b.Op.OfHolder() && a.Lock == b.Lock && nameOf(a) == nameOf(b) {
					tied[a.Lock] = true
				}
			}
		}
		from = to
	}
	return tied
}
