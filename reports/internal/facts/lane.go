package facts

import (
	"cmp"
	"slices"
	"sort"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// A Lane is one client at one lock.
type Lane struct {
	Lock, Client string
	Waits        []*holding.Op
	Holds        []*holding.Grant
	Uses         []*holding.Op // accesses under the lock
}

// Lanes are all clients at all locks, in no order.
func (r *Facts) Lanes() []*Lane {
	if r.laneOf != nil {
		return r.lanes
	}
	r.laneOf = map[[2]string]*Lane{}
	at := func(op *holding.Op) *Lane {
		key := [2]string{r.Lock(op), Client(r.Record.Name(op.Owner))}
		l := r.laneOf[key]
		if l == nil {
			l = &Lane{Lock: key[0], Client: key[1]}
			r.laneOf[key] = l
			r.lanes = append(r.lanes, l)
		}
		return l
	}
	byProcess := map[int]*Lane{}
	for _, op := range r.Ops {
		switch op.Verb {
		case holding.Acquire:
			l := at(op)
			l.Waits = append(l.Waits, op)
			byProcess[op.Process] = l
		case holding.Access:
			l := byProcess[op.Process]
			if !op.Unnamed() && op.Lock != 0 {
				l = at(op)
			}
			if l != nil {
				l.Uses = append(l.Uses, op)
			}
		default:
		}
	}
	for _, h := range r.Holds {
		l := at(h.Acquire)
		l.Holds = append(l.Holds, h)
	}
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
			add(r.Lock(h.Acquire), r.Holder(h))
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
	return slices.ContainsFunc(l.Holds, func(h *holding.Grant) bool { return w.Meets(h.Start, h.End) }) ||
		slices.ContainsFunc(l.Waits, func(op *holding.Op) bool { return w.Meets(op.Invoke.Time, op.Complete.Time) })
}

// HoldAt is the last hold that began before an access, and under which it can have been made; nil if there is none.
func (l *Lane) HoldAt(access *holding.Op) *holding.Grant {
	began := sort.Search(len(l.Holds), func(i int) bool { return l.Holds[i].Start > access.Invoke.Time })
	for _, h := range slices.Backward(l.Holds[:began]) {
		if access.Unnamed() || access.Owner == h.Owner() {
			return h
		}
	}
	return nil
}

// Accesses are those of each resource, in order of their request.
func (r *Facts) Accesses() map[string][]*holding.Op {
	if r.accesses == nil {
		of := map[int32][]*holding.Op{}
		for _, op := range r.Ops {
			if op.Verb == holding.Access {
				of[resource(op)] = append(of[resource(op)], op)
			}
		}
		r.accesses = map[string][]*holding.Op{}
		for number, ops := range of {
			r.accesses[r.Record.Name(number)] = ops
		}
	}
	return r.accesses
}

// Resource is what an access is of.
func (r *Facts) Resource(op *holding.Op) string { return r.Record.Name(resource(op)) }

func resource(op *holding.Op) int32 { return cmp.Or(op.Resource, op.Lock) }

// GaveUp reports whether a client gave up an access by itself: the resource refused nothing.
func GaveUp(op *holding.Op) bool { return op.Failed() && op.Abandoned() }

// Stopped are the accesses that a resource refused for their tokens.
func (r *Facts) Stopped() []*holding.Op {
	var found []*holding.Op
	for _, op := range r.Ops {
		if op.Verb == holding.Access && op.Failed() && !GaveUp(op) && op.Token != 0 {
			found = append(found, op)
		}
	}
	return found
}
