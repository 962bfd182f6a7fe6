package checker

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/workload/history"
)

// The budget of the search. It ends sooner if the context does.
const (
	// SearchTime is the most time that the search takes for a whole history.
	SearchTime = 20 * time.Second
	// SearchOperations is the most operations that are searched as one: it
	// takes n*n/8 bytes of memory, where all goes well.
	SearchOperations = 10_000
	// searchMemory bounds the memory where it does not.
	searchMemory = 512 << 20
	// cutAbove is the number of operations from which the history of a lock is
	// cut where that changes nothing.
	cutAbove = 1_000
)

// Linearizability is the checker of "linearizability": some order of the
// operations on each lock explains all their results, with leases that may end
// at any time after their promised end. It is decided by a search with
// porcupine that knows nothing of the sweep behind [MutualExclusion] and
// [Ownership], as a second opinion.
//
// Locks are searched one after another, within [SearchTime] and
// [SearchOperations]; what lies beyond is Unknown. A longer history is cut
// first where nothing is in flight and the state of the lock is known. Read-write
// locks and permits are not judged.
func Linearizability() Checker {
	return &property{
		name: "linearizability", engine: "porcupine",
		judge: func(ctx context.Context, ev *evidence) *findings {
			return linearizable(ctx, ev)
		},
	}
}

func linearizable(ctx context.Context, ev *evidence) *findings {
	ctx, cancel := context.WithTimeout(ctx, SearchTime)
	defer cancel()
	f := &findings{}
	ev.searched = map[string]Verdict{}
	book := ev.book()
	byLock := map[string][]history.Operation{}
	for _, op := range ev.operations() {
		if op.Invoke.Lock != "" {
			byLock[op.Invoke.Lock] = append(byLock[op.Invoke.Lock], op)
		}
	}
	judged, searched := 0, 0
	for _, lock := range ev.locks() {
		if kind := book.Promises[lock].Kind; kind != history.KindMutex {
			f.doubt("lock %q is a %s, which the search does not judge", lock, kind)
			continue
		}
		if book.Disordered(lock) {
			f.doubt("lock %q: %s", lock, book.Unclear[lock])
			continue
		}
		requests := reduce(book, lock, byLock[lock])
		parts := []part{{requests: requests}}
		if _, bad := ev.swept().invalid[lock]; !bad && book.Unclear[lock] == "" && len(requests) > cutAbove {
			parts = segments(book, lock, requests)
		}
		verdict := Valid
		for _, p := range parts {
			v, why := search(ctx, p)
			if v == Unknown {
				f.doubt("lock %q: %s", lock, why)
			}
			if verdict = Worst(verdict, v); verdict == Invalid {
				break
			}
		}
		ev.searched[lock] = verdict
		if verdict == Invalid {
			f.add(unexplained(ctx, ev, lock))
		}
		judged++
		searched += len(requests)
	}
	if judged == 0 {
		f.doubt("there was no lock to judge")
	}
	f.valid = fmt.Sprintf("an order of the operations explains every result, in %s of %s",
		plural(searched, "operation"), plural(judged, "lock"))
	return f
}

// search looks for an order that explains the requests of one lock.
func search(ctx context.Context, p part) (verdict Verdict, why string) {
	requests := p.requests
	if len(requests) > SearchOperations {
		return Unknown, fmt.Sprintf("%d operations in a row are more than the search takes (%d)", len(requests), SearchOperations)
	}
	if len(requests) == 0 {
		return Valid, ""
	}
	steps, taken := 0, 0
	most := searchMemory / (len(requests)/8 + 64)
	spent := false
	model := leaseModel(p.from, func() bool {
		if steps++; steps%1024 == 0 && ctx.Err() != nil {
			spent = true
		}
		return !spent
	}, func() {
		if taken++; taken > most {
			spent = true
		}
	})
	if ctx.Err() != nil {
		return Unknown, "no time was left to search for an order of its operations"
	}
	result := porcupine.CheckOperationsTimeout(model, operations(requests), 0)
	switch {
	case result == porcupine.Ok:
		return Valid, ""
	case spent && taken > most:
		return Unknown, "the search for an order of its operations used up its memory"
	case spent:
		return Unknown, "the search for an order of its operations used up its time"
	default:
		return Invalid, ""
	}
}

// unexplained points at why no order works: at what the sweep has found, else
// at the operation without which there would be one.
func unexplained(ctx context.Context, ev *evidence, lock string) Violation {
	v := Violation{Kind: NotLinearizable, Lock: lock}
	s := ev.swept()
	for _, list := range [][]Violation{s.exclusion, s.ownership} {
		for _, w := range list {
			if w.Lock == lock && (v.Events == nil || byTime(w, v) < 0) {
				v.Events, v.From, v.Until, v.Explanation = w.Events, w.From, w.Until, w.Explanation
			}
		}
	}
	if v.Events != nil {
		v.Explanation = fmt.Sprintf("no order of the operations on %q explains their results: %s", lock, v.Explanation)
		return v
	}
	all := ev.history.Events
	n := sort.Search(len(all), func(n int) bool {
		prefix := &history.History{Events: all[:n]}
		verdict, _ := search(ctx, part{requests: reduce(prefix.Book(), lock, prefix.Operations())})
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

// agreement compares the two engines where both are exact.
func agreement(ev *evidence) (Result, bool) {
	if ev.searched == nil || ev.sweep == nil {
		return Result{}, false
	}
	f := &findings{}
	book := ev.book()
	tied := ties(ev)
	for _, lock := range ev.locks() {
		verdict, ok := ev.searched[lock]
		_, bad := ev.sweep.invalid[lock]
		if !ok || verdict == Unknown || book.Unclear[lock] != "" || tied[lock] {
			continue
		}
		if bad != (verdict == Invalid) {
			sweep := Valid
			if bad {
				sweep = Invalid
			}
			f.doubt("a defect of the checker: on lock %q the sweep says %s and the search says %s; trust neither, and report this history",
				lock, sweep, verdict)
		}
	}
	if len(f.doubts) == 0 {
		return Result{}, false
	}
	r := f.result()
	r.Name, r.Engine = "engines-agree", "comparison"
	return r, true
}

// ties are the locks on which one owner did two things in the same instant:
// porcupine takes those for concurrent, and the sweep does not.
func ties(ev *evidence) map[string]bool {
	tied := map[string]bool{}
	type owned struct{ lock, owner string }
	latest := map[owned]time.Duration{}
	for i := range ev.history.Events {
		e := &ev.history.Events[i]
		if e.Op != history.Acquire && e.Op != history.Release && e.Op != history.Extend && e.Op != history.Lost {
			continue
		}
		key := owned{lock: e.Lock, owner: e.Owner}
		if at, ok := latest[key]; ok && at == e.Time {
			tied[e.Lock] = true
		}
		latest[key] = e.Time
	}
	return tied
}
