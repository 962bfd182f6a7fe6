package facts

import (
	"cmp"
	"slices"
	"sort"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A Lane is one client at one lock.
type Lane struct {
	Lock, Client string
	Waits        []*history.Operation
	Holds        []*holding.Hold
	Uses         []*history.Operation // accesses under the lock
}

// Lanes are all clients at all locks, by lock, then by name.
func (r *Facts) Lanes() []*Lane {
	if r.laneOf != nil {
		return r.lanes
	}
	r.laneOf = map[[2]string]*Lane{}
	at := func(lock, owner string) *Lane {
		key := [2]string{lock, Client(owner)}
		l := r.laneOf[key]
		if l == nil {
			l = &Lane{Lock: lock, Client: key[1]}
			r.laneOf[key] = l
			r.lanes = append(r.lanes, l)
		}
		return l
	}
	byProcess := map[int]*Lane{}
	for i := range r.Ops {
		op := &r.Ops[i]
		switch op.Invoke.Op {
		case history.Acquire:
			l := at(op.Invoke.Lock, op.Invoke.Owner)
			l.Waits = append(l.Waits, op)
			byProcess[op.Invoke.Process] = l
		case history.Access:
			l := byProcess[op.Invoke.Process]
			if op.Invoke.Owner != "" && op.Invoke.Lock != "" {
				l = at(op.Invoke.Lock, op.Invoke.Owner)
			}
			if l != nil {
				l.Uses = append(l.Uses, op)
			}
		default:
		}
	}
	for i := range r.Holds {
		l := at(r.Holds[i].Lock, r.Holds[i].Owner)
		l.Holds = append(l.Holds, &r.Holds[i])
	}
	slices.SortFunc(r.lanes, func(a, b *Lane) int {
		return cmp.Or(say.Natural(a.Lock, b.Lock), say.Natural(a.Client, b.Client))
	})
	return r.lanes
}

// LaneOf is the lane of a client at a lock; nil if it never asked for it.
func (r *Facts) LaneOf(lock, client string) *Lane {
	r.Lanes()
	return r.laneOf[[2]string{lock, client}]
}

// LanesOf are the lanes that a violation is about.
func (r *Facts) LanesOf(v *checker.Violation) []*Lane {
	var lanes []*Lane
	add := func(lock, client string) {
		if l := r.LaneOf(lock, client); l != nil && !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	holds := r.HoldsOf(v)
	for k, h := range holds {
		if k < 2 || v.Kind != checker.DoubleGrant {
			add(h.Lock, Client(h.Owner))
		}
	}
	for _, index := range v.Events { // of what is about no hold: a client that asks in vain
		if e, ok := r.Event(index); ok && len(holds) == 0 && e.Op == history.Acquire {
			add(e.Lock, Client(e.LockOwner()))
		}
	}
	return lanes
}

// Shows reports whether anything of the lane lies in a window.
func (l *Lane) Shows(w Window) bool {
	return slices.ContainsFunc(l.Holds, func(h *holding.Hold) bool { return w.Meets(h.Start, h.End) }) ||
		slices.ContainsFunc(l.Waits, func(op *history.Operation) bool { return w.Meets(op.Invoke.Time, op.Complete.Time) })
}

// HoldAt is the last hold that began before an access, and under which it can have been made; nil if there is none.
func (l *Lane) HoldAt(access *history.Event) *holding.Hold {
	began := sort.Search(len(l.Holds), func(i int) bool { return l.Holds[i].Start > access.Time })
	for _, h := range slices.Backward(l.Holds[:began]) {
		if access.Owner == "" || access.Owner == h.Owner {
			return h
		}
	}
	return nil
}

// Accesses are those of each resource, in order of their request.
func (r *Facts) Accesses() map[string][]*history.Operation {
	if r.accesses == nil {
		r.accesses = map[string][]*history.Operation{}
		for i := range r.Ops {
			if op := &r.Ops[i]; op.Invoke.Op == history.Access {
				name := Resource(op)
				r.accesses[name] = append(r.accesses[name], op)
			}
		}
	}
	return r.accesses
}

// Resource is what an access is of.
func Resource(op *history.Operation) string {
	return cmp.Or(op.Complete.Resource, op.Invoke.Resource, op.Invoke.Lock)
}

// GaveUp reports whether a client gave up an access by itself: the resource refused nothing.
func GaveUp(op *history.Operation) bool {
	return op.Failed() && op.Complete.Error == history.Abandoned
}

// TokenOf is the fencing token that an access named; 0 if it named none.
func TokenOf(op *history.Operation) int64 { return cmp.Or(op.Complete.Token, op.Invoke.Token) }

// Stopped are the accesses that a resource refused for their tokens.
func (r *Facts) Stopped() []*history.Operation {
	var found []*history.Operation
	for i := range r.Ops {
		if op := &r.Ops[i]; op.Invoke.Op == history.Access && op.Failed() && !GaveUp(op) && TokenOf(op) != 0 {
			found = append(found, op)
		}
	}
	return found
}
