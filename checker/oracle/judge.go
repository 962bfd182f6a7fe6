// Package oracle judges small histories by brute force. It is for tests only: it says what the judge of package checker
// has to answer, and knows nothing of how the judge decides.
//
// It is written from docs/history-format.md and docs/what-is-checked.md alone. The search tries every order of the effects
// that the documents allow, with each of the instants at which a lease may end and with every unknown outcome, and keeps
// no other rule than the table of effects. It is meant to be read beside that table.
//
// A [Generator] makes small histories of all kinds of locks, [Opinion.Compare] says where a report differs from what the
// documents say, and [Shrink] makes a history that shows a difference as small as it gets.
//
// The search is exhaustive, so that the histories are bounded: 31 operations and 12 grants on each of up to three locks of
// different kinds, and 7 clients. Requests may have a lease or none, clients may share an owner or have none with a name,
// up to a third of the outcomes are unknown, and stamps are on a grid, so that many are the same: of one owner where their
// order does not matter. Half of the histories have no more than 4 clients with two sessions each on a lock. Tests of the
// checker also judge them by several clocks, and after others of many lengths; what a reader has to refuse is tested here.
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

	ops    []operation
	until  time.Duration
	faults bool // were injected: then it shows something only if they took effect
}

// Judge forms an opinion of a small history: at most 31 operations on a lock.
func Judge(h *history.History) *Opinion {
	o := &Opinion{ops: operations(h), until: h.End()}
	o.faults = h.Truncated > 0 || slices.ContainsFunc(h.Events, func(e history.Event) bool { return e.Op == history.Inject })
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

// shared reports whether several owners may hold it.
func (l *Lock) shared() bool {
	return l.spec.Kind == history.KindRW || l.spec.Kind == history.KindSemaphore
}

// precedes reports whether one acquire can have taken effect before another.
func (l *Lock) precedes(first, second *operation) bool {
	s := newSearch(l.spec, l.ops)
	s.effects[s.at(second)].before |= 1 << s.at(first)
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
