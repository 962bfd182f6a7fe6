package oracle

import (
	"maps"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Lock is what the documents say of one lock's part of a history.
type Lock struct {
	Name string
	// Mode is what kind of lock it is: mutex, re-entrant, fenced, read-write,
	// permits or fair.
	Mode string
	// Possible says that the part is possible.
	Possible bool
	// Inner says that it is possible where inner grants have the token of their
	// hold, and InOrder that the tokens of all others grow, too.
	Inner, InOrder bool
	// Doubts are the owners of whose holds too little is known, and why.
	Doubts map[string]string
	// Rest says that the part is possible without these owners.
	Rest bool
	// Unrefused says that it is possible if no release or extend was refused.
	Unrefused bool
	// Weak says that it is possible if a release or a refused extend can end every
	// hold of its owner, and the outcomes of all other extends are unknown: what
	// breaks it are not the acquires alone.
	Weak bool
	// Granted says that an acquire was answered ok, and Late that half of those
	// or more were answered at their own end or after it.
	Granted, Late bool

	ops  []operation
	spec history.Event
}

// Answer is possible, impossible, or unknown: which needs an owner whose account
// may not be told.
func (l *Lock) Answer() string {
	switch {
	case l.Possible:
		return "possible"
	case l.Rest:
		return unknown
	default:
		return "impossible"
	}
}

// An Opinion is what the documents say of a history.
type Opinion struct {
	Locks []*Lock

	ops   []operation
	until time.Duration
	// faults says that faults were injected, or that the last line was cut short:
	// then it shows something only if the faults took effect.
	faults bool
}

// Judge forms an opinion of a small history: at most 31 operations on a lock.
func Judge(h *history.History) *Opinion {
	o := &Opinion{ops: operations(h), until: h.End(), faults: h.Truncated > 0}
	for i := range h.Events {
		o.faults = o.faults || h.Events[i].Op == history.Inject
	}
	specs := declared(h)
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		o.Locks = append(o.Locks, judge(specs[name], of(o.ops, name)))
	}
	return o
}

// judge tries all worlds of one lock.
func judge(spec history.Event, ops []operation) *Lock {
	l := &Lock{Name: spec.Lock, ops: ops, spec: spec, Doubts: doubts(spec, ops), Rest: true, Unrefused: true, Weak: true}
	tokens, late, grants := false, 0, 0
	for i := range ops {
		if op := &ops[i]; op.op == history.Acquire && op.kind == history.OK {
			grants++
			tokens = tokens || op.token > 0
			if op.complete >= op.promised() {
				late++
			}
		}
	}
	l.Granted, l.Late = grants > 0, grants > 0 && 2*late >= grants
	switch {
	case spec.Fair:
		l.Mode = "fair"
	case spec.Kind == history.KindSemaphore:
		l.Mode = "permits"
	case spec.Kind == history.KindRW:
		l.Mode = "read-write"
	case tokens:
		l.Mode = "fenced"
	case spec.Reentrant:
		l.Mode = "re-entrant"
	default:
		l.Mode = "mutex"
	}
	s := newSearch(spec, ops)
	l.Possible = s.possible(Ignore)
	l.Inner, l.InOrder = l.Possible, l.Possible
	if l.Possible && tokens {
		l.Inner = s.possible(SameInner)
		l.InOrder = l.Inner && s.possible(InOrder)
	}
	if l.Possible {
		return l
	}
	l.Rest = false
	if len(l.Doubts) > 0 {
		l.Rest = newSearch(spec, without(ops, l.Doubts)).possible(Ignore)
	}
	var unrefused []operation
	for _, op := range ops {
		if op.op == history.Acquire || op.kind != history.Fail {
			unrefused = append(unrefused, op)
		}
	}
	l.Unrefused = newSearch(spec, unrefused).possible(Ignore)
	l.Weak = newSearch(spec, weaker(ops)).endAnswered().possible(Ignore)
	return l
}

// weaker are the operations with unknown outcomes of all releases and extends but
// the refused ones.
func weaker(ops []operation) []operation {
	weak := slices.Clone(ops)
	for i := range weak {
		if op := &weak[i]; (op.op == history.Release || op.op == history.Extend) && op.kind != history.Fail {
			op.optional, op.complete = true, never
		}
	}
	return weak
}

// certain reports whether the lock was held for certain at some instant: a
// request for all of it, granted at that instant, would be impossible.
func (l *Lock) certain() bool {
	if !l.Possible && !l.Weak {
		return true
	}
	for i := range l.ops {
		op := &l.ops[i]
		for _, stamp := range [...]time.Duration{op.invoke, op.complete, op.promised() - l.spec.Drift} {
			if stamp > never/2 {
				continue
			}
			if !l.admits(stamp-1) || !l.admits(stamp+1) {
				return true
			}
		}
	}
	return false
}

// admits reports whether another owner may have had all of the lock at an instant.
func (l *Lock) admits(at time.Duration) bool {
	probe := operation{
		op: history.Acquire, kind: history.OK, process: -2, lock: l.Name, owner: "\x00", mode: history.Write,
		permits: max(1, l.spec.Capacity), expires: 1, invoke: at, complete: at, first: -1, last: -1,
	}
	ops := l.ops
	if !l.Possible {
		ops = weaker(ops)
	}
	s := newSearch(l.spec, append(slices.Clone(ops), probe))
	if !l.Possible {
		s.endAnswered()
	}
	s.effects[len(s.effects)-1].end = at // it is gone at once
	return s.possible(Ignore)
}
