package oracle

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Lock is what the documents say of one lock's part of a history.
type Lock struct {
	Name string
	// Mode is what kind of lock it is: mutex, re-entrant, fenced, read-write, permits or fair.
	Mode string
	// Possible says that the part is possible.
	Possible bool
	// Doubts are the owners of whose holds too little is known.
	Doubts map[string]bool

	// inner says that it is possible where inner grants have the token of their hold, inOrder that the tokens of all
	// others grow, too, and rest that it is possible without the owners in doubt.
	inner, inOrder, rest bool
	// changed says that its capacity changed: there no alarm is false, and a wrong grant may be missed.
	changed bool

	ops    []operation
	grants []*operation // the acquires that were answered ok
	spec   history.Event
}

// Answer is possible, impossible, or unknown: which needs an owner whose account may not be told.
func (l *Lock) Answer() string {
	switch {
	case l.Possible:
		return "possible"
	case l.rest:
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
	// faults says that faults were injected, or that the last line was cut short: then it shows something only if the
	// faults took effect.
	faults bool
}

// Judge forms an opinion of a small history: at most 31 operations on a lock.
func Judge(h *history.History) *Opinion {
	o := &Opinion{ops: operations(h), until: h.End(), faults: h.Truncated > 0}
	for i := range h.Events {
		o.faults = o.faults || h.Events[i].Op == history.Inject
	}
	for _, spec := range declared(h) {
		o.Locks = append(o.Locks, judge(spec, slices.DeleteFunc(slices.Clone(o.ops), func(op operation) bool {
			return op.Op != history.Crash && (op.Lock != spec.Lock || op.Op == history.Access) // a crash is of all locks
		})))
	}
	return o
}

// judge tries all worlds of one lock.
func judge(spec history.Event, ops []operation) *Lock {
	l := &Lock{Name: spec.Lock, ops: ops, spec: spec, Doubts: doubts(spec, ops), rest: true}
	tokens := false
	for i := range ops {
		if l.changed = l.changed || ops[i].Op == history.Declare; ops[i].is(history.Acquire, history.OK) {
			l.grants = append(l.grants, &ops[i])
			tokens = tokens || ops[i].Token > 0
		}
	}
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
	if l.Possible = s.possible(noTokens); l.Possible {
		l.inner = !tokens || s.possible(sameInner)
		l.inOrder = l.inner && (!tokens || s.possible(inOrder))
		return l
	}
	l.rest = len(l.Doubts) > 0 && newSearch(spec, slices.DeleteFunc(slices.Clone(ops), func(o operation) bool {
		return l.Doubts[o.Owner] && o.Op != history.Crash
	})).possible(noTokens)
	return l
}

// late reports whether half of the grants or more were answered at their own end or after it.
func (l *Lock) late() bool {
	late := len(slices.DeleteFunc(slices.Clone(l.grants), func(g *operation) bool { return g.complete < g.ends }))
	return late > 0 && 2*late >= len(l.grants)
}

// certain reports whether the lock was held for certain at some time.
func (l *Lock) certain() bool {
	return slices.ContainsFunc(l.grants, func(g *operation) bool { return l.untouched(g) > g.complete })
}

// precedes reports whether one acquire can have taken effect before another.
func (l *Lock) precedes(first, second *operation) bool {
	s := newSearch(l.spec, l.ops)
	at := func(o *operation) int {
		return slices.IndexFunc(s.effects, func(e effect) bool { return e.first == o.first })
	}
	s.precede = [2]int{at(first), at(second)}
	return s.possible(noTokens)
}

// untouched is until when a grant lasts for certain: its lease, or the next thing that its owner or a crash did.
func (l *Lock) untouched(g *operation) time.Duration {
	until := g.ends
	if until != never {
		until -= l.spec.Drift
	}
	for i := range l.ops {
		if o := &l.ops[i]; o != g && (o.Owner == g.Owner || o.Op == history.Crash) && o.complete >= g.Time {
			until = min(until, o.gone())
		}
	}
	return until
}

// earlier reports whether an owner had asked for the lock before, successfully or perhaps so, in a request that is so.
func (l *Lock) earlier(g *operation, so func(*operation) bool) bool {
	return slices.ContainsFunc(l.ops, func(o operation) bool {
		return o.granted() && o.Owner == g.Owner && o.first < g.first && so(&o)
	})
}

// first reports whether a grant can't be part of a hold that its owner had before.
func (l *Lock) first(g *operation) bool { return !l.earlier(g, func(*operation) bool { return true }) }
