package history

import (
	"cmp"
	"fmt"
	"time"
)

// A sequence holds each event of a history against the ones before it. The reader asks it of what it
// reads and the recorder of what it writes.
type sequence struct {
	last  time.Duration
	next  int64
	open  map[int]*Event    // the invocation that each process has open
	spare []*Event          // that were open, to be used again
	locks map[string]*Event // the last declare of each lock that was named, if there was one
	// The operations on locks that have the stamp of the last event, by their owners: the first of them, and all
	// where there are several.
	stamped bool
	first   stamp
	stamps  map[Owner]stamp
}

// A stamp is an end of an operation that shares its time with another one.
type stamp struct {
	of      Owner
	op      Op
	typ     Type
	process int
	matters bool // something depends on whether it is before or after another one
	several bool // there were others before it
}

func newSequence() sequence {
	return sequence{open: map[int]*Event{}, locks: map[string]*Event{}, stamps: map[Owner]stamp{}}
}

// accept says what is wrong with the event after those before it, or fills in what its line leaves out: its index,
// its owner, and what its invocation says. After one that is wrong only the indices and the times are sure.
func (s *sequence) accept(e *Event) error {
	if e.Time < s.last {
		return fmt.Errorf("time runs backwards: %d after %d", e.Time, s.last)
	}
	if e.Time > s.last {
		s.stamped = false
		clear(s.stamps)
	}
	e.Index, s.last = s.next, e.Time
	s.next++
	if single := e.Op == Lost || e.Op == Crash || e.Op == Observe || e.Op == Declare; e.Process >= 0 && !single {
		if err := s.pair(e); err != nil {
			return err
		}
	}
	if e.Op.OfHolder() {
		e.Owner = e.LockOwner()
		if err := s.stamp(e); err != nil {
			return err
		}
	}
	if e.Op == Crash && e.From > e.Time {
		return fmt.Errorf("crash with %q %d: want an instant that is not after its time %d, at which it was seen", "from", e.From, e.Time)
	}
	if e.Lock != "" && e.Op != Crash {
		return s.use(e)
	}
	return nil
}

// pair holds a completion against its invocation.
func (s *sequence) pair(e *Event) error {
	open := s.open[e.Process]
	switch {
	case e.Type == Invoke && open != nil:
		return fmt.Errorf("process %d invokes %s while its %s is open", e.Process, e.Op, open.Op)
	case e.Type == Invoke:
		if last := len(s.spare) - 1; last >= 0 {
			open, s.spare = s.spare[last], s.spare[:last]
		} else {
			open = &Event{}
		}
		*open = *e
		s.open[e.Process] = open
		return nil
	case open == nil:
		return fmt.Errorf("%s %s of process %d has no invoke", e.Op, e.Type, e.Process)
	case open.Op != e.Op:
		return fmt.Errorf("process %d completes %s while its %s is open", e.Process, e.Op, open.Op)
	}
	delete(s.open, e.Process)
	s.spare = append(s.spare, open)
	if e.Op == Inject || e.Op == Heal {
		return nil
	}
	return agree(open, e)
}

// agree says which field of a completion differs from that of its invocation, and fills in those that it leaves out.
func agree(open, e *Event) error {
	permits := open.Permits
	if e.Op != Release { // of which none named are those of one grant
		permits = open.Amount()
	}
	err := cmp.Or(
		differs(e, "lock", open.Lock, e.Lock),
		differs(e, "owner", open.LockOwner(), e.Owner),
		differs(e, "mode", cmp.Or(open.Mode, Exclusive), e.Mode),
		differs(e, "permits", permits, e.Permits),
		differs(e, "lease", int64(open.Lease), int64(e.Lease)),
		differs(e, "resource", open.Resource, e.Resource),
	)
	if err == nil && e.Op == Access {
		err = cmp.Or(differs(e, "token", cmp.Or(open.Token, e.Token), e.Token), differs(e, "value", cmp.Or(open.Value, e.Value), e.Value))
		e.Token, e.Resource = cmp.Or(e.Token, open.Token), open.Resource
		if e.Type != Fail {
			e.Value = cmp.Or(e.Value, open.Value)
		}
	}
	e.Lock, e.Owner = open.Lock, open.Owner
	return err
}

// differs says that a completion has a field, and another value of it than its invocation.
func differs[T comparable](e *Event, field string, invoked, completed T) error {
	if completed == *new(T) || completed == invoked {
		return nil
	}
	return fmt.Errorf("the %s of process %d has the %s %q, and its invoke %q: want the same, or none", e.Op, e.Process, field, fmt.Sprint(completed), fmt.Sprint(invoked))
}

// stamp refuses two ends of operations of one owner at one instant, where anything depends on which came first.
func (s *sequence) stamp(e *Event) error {
	now := stamp{of: Owner{e.Lock, e.Owner}, op: e.Op, typ: e.Type, process: e.Process, matters: e.Type != Invoke && (e.Op != Acquire || e.Type != Fail)}
	if !s.stamped {
		s.stamped, s.first = true, now
		return nil
	}
	if len(s.stamps) == 0 {
		s.stamps[s.first.of] = s.first
	}
	before, twice := s.stamps[now.of]
	own := before.typ == Invoke && now.typ != Invoke && before.process == now.process && !before.several // the ends of one operation
	if twice && !own && (before.matters || now.matters) {
		return fmt.Errorf("two events of owner %q on lock %q at %q %d, %s %s and %s %s: their order matters, so that each needs a time of its own",
			clip(e.Owner, mostEchoed), clip(e.Lock, mostEchoed), "time", e.Time, before.op, before.typ, now.op, now.typ)
	}
	now.matters, now.several = now.matters || before.matters, twice
	s.stamps[now.of] = now
	return nil
}

// use notes that the event names a lock, and refuses a declare that changes what was judged before it.
func (s *sequence) use(e *Event) error {
	before, known := s.locks[e.Lock]
	if e.Op != Declare {
		if !known {
			s.locks[e.Lock] = nil
		}
		return nil
	}
	lock := clip(e.Lock, mostEchoed)
	switch {
	case !known && e.From != 0:
		return fmt.Errorf("%q is on the first declare of lock %q: it belongs to one that changes the capacity", "from", lock)
	case !known:
	case before == nil:
		return fmt.Errorf("declare of lock %q after its first use: want it before the first event that names the lock", lock)
	case e.From == 0:
		return fmt.Errorf("declare of lock %q for the second time: want one; a capacity that changes is declared again with %q, the instant from which on it is another", lock, "from")
	case e.Kind != before.Kind || e.Reentrant != before.Reentrant || e.Fair != before.Fair || e.Drift != before.Drift || (e.Fenced == nil) != (before.Fenced == nil) || e.Fenced != nil && *e.Fenced != *before.Fenced:
		return fmt.Errorf("declare of lock %q from %d on: only its capacity can change; want the rest as in the declare before", lock, e.From)
	case before.Capacity == 0:
		return fmt.Errorf("declare of lock %q from %d on: the declare before has no %q", lock, e.From, "capacity")
	case e.From < e.Time || e.From <= before.From:
		return fmt.Errorf("declare of lock %q with %q %d: want an instant after that of the declare before, and not before its own time %d", lock, "from", e.From, e.Time)
	}
	last := *e
	s.locks[e.Lock] = &last
	return nil
}
