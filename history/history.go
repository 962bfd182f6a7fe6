package history

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Never is the time of what no event of the history brings about, such as the
// end of a hold that nothing ends.
const Never time.Duration = math.MaxInt64

// A History is everything that was recorded of a run, in order: Events[i] has
// Index i.
type History struct {
	Events []Event
	// Truncated is the line number of a last line that was cut short and
	// dropped; 0 if there was none.
	Truncated int
	// Unfinished says that these are not all the events, and that the others
	// came later than the last: what is open at the end goes on.
	Unfinished bool
	// Before is what came before the first event, of a history whose beginning
	// is left out.
	Before Before
}

// Before is what the account of a history depends on that came before its first
// event, and is in none of its events.
type Before struct {
	// Unclear are the locks of which the account of some owner could not be
	// told, and why: see holding.Holdings.Unclear.
	Unclear map[string]string
	// Owners are those owners, and why their accounts can't be told, whatever
	// follows.
	Owners map[Owner]string
	// Guarantees are what was learned of locks from their earlier events, and is
	// not declared: their Kind, and whether they are Fenced.
	Guarantees map[string]Guarantees
	// Asked is the index of the first event with which an owner asked for a
	// read-write lock in a mode; false if there was none.
	Asked func(of Owner, read bool) (int64, bool)
	// Joined tells since which event an acquire with an unknown outcome may have
	// been a part of a hold that is over: see holding.Account.Joined.
	Joined map[Asker]int64
}

// An Asker is an owner that asks for its lock in one mode: of a read-write lock
// its reads are holds of their own.
type Asker struct {
	Owner
	Read bool
}

// An Owner is one of a lock.
type Owner struct{ Lock, Name string }

// Accept says what a [Reader] would refuse of the events, and fills in what it would: for what makes
// events otherwise. The error is of the first event that is wrong, of which it does not tell the place.
func (h *History) Accept() error {
	all := newSequence()
	for i := range h.Events {
		if err := h.Events[i].Validate(); err != nil {
			return err
		}
		if err := all.accept(&h.Events[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadAll reads a whole history. Its errors name the line.
func ReadAll(r io.Reader) (*History, error) {
	h := &History{}
	rd := NewReader(r)
	var e Event
	for {
		err := rd.read(&e)
		if errors.Is(err, io.EOF) {
			h.Truncated = rd.Truncated()
			return h, nil
		}
		if err != nil {
			return nil, err
		}
		h.Events = append(h.Events, e)
	}
}

// End is the time of the last event; 0 for an empty history.
func (h *History) End() time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].Time
}

// An Operation is an invocation with its completion, which point into the
// history. One that was still open at the end of the history has the
// completion Info with Index -1 and the history's end as its time.
type Operation struct {
	Invoke, Complete *Event

	at, rank int32 // its places among the operations of its history
}

// OK reports whether the operation happened for certain.
func (o *Operation) OK() bool { return o.Complete.Type == OK }

// Failed reports whether the operation did not happen for certain.
func (o *Operation) Failed() bool { return o.Complete.Type == Fail }

// Unknown reports whether the operation may have happened.
func (o *Operation) Unknown() bool { return o.Complete.Type == Info }

// Ordinal is its place among the operations of its history, from 0.
func (o *Operation) Ordinal() int { return int(o.at) }

// Rank is its place in the order of their completions, from 0; those that were still
// open at the end of the history are the last.
func (o *Operation) Rank() int { return int(o.rank) }

// Expires is the end of the belief that a completed acquire or extend gives:
// the recorded expiry if it was answered ok, else invoke plus lease, else 0 for no end.
func (o *Operation) Expires() time.Duration {
	switch {
	case o.OK() && o.Complete.Expires > 0:
		return o.Complete.Expires
	case o.Invoke.Lease > 0 && o.Invoke.Lease <= Never-o.Invoke.Time:
		return o.Invoke.Time + o.Invoke.Lease
	default:
		return 0
	}
}

// String is a short form for messages: "p3 acquire orders ok #12-#15".
func (o *Operation) String() string {
	return fmt.Sprintf("p%d %s %s %s #%d-#%d", o.Invoke.Process, o.Invoke.Op, o.Invoke.Lock,
		o.Complete.Type, o.Invoke.Index, o.Complete.Index)
}

// Operations pairs the invocations of clients with their completions, in order
// of invocation. Single events, faults and observations are left out. The
// invocation of one on a lock has its owner, also where the event names none.
func (h *History) Operations() []Operation { return h.OperationsIn(nil) }

// OperationsIn is Operations in the place of a list that is not used any more, where
// they fit into it.
func (h *History) OperationsIn(old []Operation) []Operation {
	n := 0
	for i := range h.Events {
		if e := &h.Events[i]; e.Type == Invoke && e.Process >= 0 {
			n++
		}
	}
	ops := slices.Grow(old[:0], n)
	ranks := int32(0)
	open := newOpenAt(h.Events)
	for i := range h.Events {
		e := &h.Events[i]
		if e.Process < 0 || e.Op.single() {
			continue
		}
		if e.Type == Invoke {
			if e.Owner == "" && e.Op.OfHolder() {
				named := *e
				named.Owner = e.LockOwner()
				e = &named
			}
			open.set(e.Process, len(ops))
			ops = append(ops, Operation{Invoke: e, at: int32(len(ops))}) //nolint:gosec // fewer than events, which fit into memory
			continue
		}
		if at := open.of(e.Process); at >= 0 {
			ops[at].Complete, ops[at].rank = e, ranks
			ranks++
			open.set(e.Process, -1)
		}
	}
	for i := range ops {
		if ops[i].Complete == nil {
			e := *ops[i].Invoke
			e.Index, e.Type, e.Time, e.Error = -1, Info, h.End(), "still open at the end of the history"
			ops[i].Complete, ops[i].rank = &e, ranks
			ranks++
		}
	}
	return ops
}

// openAt says where the open operation of each process is. Where the numbers of
// the processes are near one another, there is a table.
type openAt struct {
	least int
	small []int32     // plus 1
	large map[int]int // plus 1
}

func newOpenAt(events []Event) *openAt {
	least, most := math.MaxInt, -1
	for i := range events {
		if p := events[i].Process; p >= 0 {
			least, most = min(least, p), max(most, p)
		}
	}
	if most >= 0 && most-least < 4*len(events)+64 {
		return &openAt{least: least, small: make([]int32, most-least+1)}
	}
	return &openAt{large: map[int]int{}}
}

func (o *openAt) of(process int) int {
	if o.small != nil {
		return int(o.small[process-o.least]) - 1
	}
	return o.large[process] - 1
}

func (o *openAt) set(process, at int) {
	if o.small != nil {
		o.small[process-o.least] = int32(at + 1) //nolint:gosec // fewer than events, which fit into memory
		return
	}
	o.large[process] = at + 1
}
