package history

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the numbers of an event are at the most. Both are powers of two less one,
// so small that sums of them do not overflow.
const (
	// MaxTime bounds time, lease, expires and drift: 73 years.
	MaxTime time.Duration = 1<<61 - 1
	// MaxAmount bounds permits, holds and capacity.
	MaxAmount = 1<<31 - 1
)

// Type says which end of an operation an event is, and how it ended.
type Type string

// The four types. Only a definite refusal is Fail; whatever may have happened,
// a request that timed out included, is Info.
const (
	Invoke Type = "invoke" // the operation begins; stamped before its request is sent
	OK     Type = "ok"     // it happened
	Fail   Type = "fail"   // it definitely did not happen
	Info   Type = "info"   // it may have happened, or may still happen
)

// Op names what was done.
type Op string

// The operations of the format.
const (
	Acquire Op = "acquire" // ask for a lock
	Release Op = "release" // give it back
	Extend  Op = "extend"  // prolong the lease, by the caller or its watchdog
	Lost    Op = "lost"    // the holder was told that it holds no longer (a single ok)
	Access  Op = "access"  // the protected resource was used
	Crash   Op = "crash"   // the process is gone (a single info); its holds last until they expire
	Inject  Op = "inject"  // a fault begins
	Heal    Op = "heal"    // a fault ends
	Observe Op = "observe" // what the run saw of a server (a single ok)
	Declare Op = "declare" // what a lock promises (a single ok, before its first use)
)

// Mode says how a lock was asked for. The empty mode is Exclusive.
type Mode string

// The modes of a lock.
const (
	Exclusive Mode = "exclusive"
	Read      Mode = "read"
	Write     Mode = "write"
	Permit    Mode = "permit"
)

// ConfirmedAgain is the What of a refused release that the service confirmed although it had
// confirmed the release of the same hold before. Such an answer breaks no promise, and may
// have ended the hold of another client.
const ConfirmedAgain = "confirmed-again"

// What an Observe event reports of its node.
const (
	ObserveRole  = "role"  // value: master, replica; leader, follower
	ObserveEpoch = "epoch" // value: the configuration epoch
	ObserveKey   = "key"   // value: "<lock> <owner>", or "<lock>" when the key is absent
	ObserveLeft  = "left"  // value: "<lock> <owner>": the server, a master, has the lock for a request of that owner, which was refused before
	ObserveMet   = "met"   // of [ObserveClients], with a fault and its target, the oldest of those not yet counted; value: how many requests met it
)

// ObserveClients is the node of what was observed of the clients as a whole.
const ObserveClients = "clients"

// NoProcess is the process number of faults and observations, which no process made.
const NoProcess = -1

// Life says how long a fault acts, on [Inject].
type Life string

// The lives of faults.
const (
	Lasting   Life = "lasting"   // from its injection to its heal
	Momentary Life = "momentary" // over as soon as it has happened
	Triggered Life = "triggered" // from the message that it waits for
	Repeating Life = "repeating" // on and off, until its heal
)

// Effect is one thing that a fault does to its target, on [Inject].
type Effect string

// The effects of faults. A target of "{a b}" is a group of parties; any other is a
// server, or links.
const (
	Isolates    Effect = "isolates"     // parties can't reach each other: a group all others, or as the fault's shape says
	Cuts        Effect = "cuts"         // links refuse connections
	Stalls      Effect = "stalls"       // data on links waits until the heal
	Delays      Effect = "delays"       // data on links arrives late
	Disconnects Effect = "disconnects"  // open connections are closed
	Loses       Effect = "loses"        // a message never arrives
	Stops       Effect = "stops"        // the server answers nothing while the fault lasts
	Suspends    Effect = "suspends"     // with Stops: the server's process stands still, and keeps what it knows
	Restarts    Effect = "restarts"     // the server's process ends and begins again, with what its disk kept
	Forgets     Effect = "forgets"      // the server loses data, whatever its disk keeps
	Refuses     Effect = "refuses"      // the server answers requests with an error
	Withholds   Effect = "withholds"    // the server leaves requests unanswered for a while
	Promotes    Effect = "promotes"     // another server becomes the master
	Moves       Effect = "moves"        // data goes to another server
	ShiftsClock Effect = "shifts-clock" // the wall clock of the server, or of the driver of a zone, is wrong
	StopsClient Effect = "stops-client" // a client stands still, or is gone
	Minority    Effect = "minority"     // beside the others: with all faults in effect, most of the independent servers are left alone
)

// What a history may have met: the names of counts that say what it covers. A
// workload says which of them it is for, and the judge counts them.
const (
	MetContention = "contention" // requests that overlapped a hold of another process
	MetHandOvers  = "hand-overs" // grants of a lock that was asked for while another owner held it
	MetRefusals   = "refusals"   // requests that were refused
	MetNotHeld    = "not-held"   // releases and extends that were refused, since the caller did not hold the lock
	MetUnknown    = "unknown"    // operations whose outcome is unknown
	MetExpiries   = "expiries"   // holds that outlived their lease, or that the holder was told were lost
	MetRenewals   = "renewals"   // extends that were confirmed
	MetReentries  = "re-entries" // grants to an owner that held the lock in the same mode
	MetDowngrades = "downgrades" // grants to read to an owner that was writing
	MetShared     = "shared"     // holds of a lock that began while another owner held it too
	MetQueued     = "queued"     // grants that say their place in a queue
	MetSeveral    = "several"    // holds that began while the owner held another lock
	MetCrashes    = "crashes"    // processes that were gone
	MetStale      = "stale"      // accesses with a token that the resource refused

	MetUnleased = "grants without a lease" // for which none was asked; counted where the workload is there for them
)

// Abandoned is the error of an access that its holder gave up by itself, because
// its lease was over. Any other access that failed was refused by the resource.
const Abandoned = "abandoned: the lease is over"

// An Event is one line of a history: one end of an operation, as it was seen on the run's own clock. [Fields] says which lines
// have a field, and what it means there.
//
// All times are offsets from the run's start on one monotonic clock, written as integer nanoseconds. A zero optional field is
// absent from the line.
type Event struct {
	Index   int64         `json:"index"`   // in the history, from 0; that of a line that is read is ignored
	Time    time.Duration `json:"time"`    // when it was stamped; it never decreases
	Process int           `json:"process"` // retired after an Info; [NoProcess] for faults and observations
	Type    Type          `json:"type"`
	Op      Op            `json:"op"`
	Clock   string        `json:"clock,omitempty"` // which stamped it; default: that of the process

	// What was asked for, and what the service answered.
	Lock    string        `json:"lock,omitempty"`
	Owner   string        `json:"owner,omitempty"` // that the caller claims; default: see [Event.LockOwner]
	Mode    Mode          `json:"mode,omitempty"`
	Permits int           `json:"permits,omitempty"` // in mode Permit; 0 is 1
	Lease   time.Duration `json:"lease,omitempty"`   // zero: a watchdog keeps the hold alive until it is released or lost
	Expires time.Duration `json:"expires,omitempty"` // the last instant of the holder's belief; zero: that of the invoke plus Lease, or none
	Token   int64         `json:"token,omitempty"`   // for fencing; greater than 0
	Holds   int           `json:"holds,omitempty"`   // the owner's hold count after it
	Queued  *int64        `json:"queued,omitempty"`  // the place in the queue of a fair lock; nil if it does not say

	// What an access touched, and with what: a read-modify-write with "<read>><written>". Observations have a Value, too.
	Resource string `json:"resource,omitempty"`
	Value    string `json:"value,omitempty"`

	// What was injected or healed, and where; how long it acts, and what it does, so that a reader need not know its name.
	Fault   string            `json:"fault,omitempty"`
	Target  string            `json:"target,omitempty"`
	Params  map[string]string `json:"params,omitempty"`
	Life    Life              `json:"life,omitempty"`    // empty: unknown
	Effects []Effect          `json:"effects,omitempty"` // none: unknown

	Node  string `json:"node,omitempty"`  // the server that answered, or that was observed
	What  string `json:"what,omitempty"`  // the aspect that was observed
	Error string `json:"error,omitempty"` // what was said with a fail or an info

	// The promises of a lock, on Declare.
	Kind      string        `json:"kind,omitempty"`      // mutex, rw, semaphore
	Reentrant bool          `json:"reentrant,omitempty"` // one owner may acquire again
	Fair      bool          `json:"fair,omitempty"`      // grants in the order of Queued
	Capacity  int           `json:"capacity,omitempty"`  // permits of a semaphore
	From      time.Duration `json:"from,omitempty"`      // since when, of a second Declare and of a Crash
	Drift     time.Duration `json:"drift,omitempty"`     // clock error allowed per lease
	Fenced    *bool         `json:"fenced,omitempty"`    // default: once a token was seen
}

// OfHolder reports whether the op says something of who holds a lock: acquire,
// release, extend or lost.
func (o Op) OfHolder() bool { return o == Acquire || o == Release || o == Extend || o == Lost }

// Validate reports what is wrong with the event by itself: an unknown op or
// type, a missing required field, one that its line can't have, a value out of range.
// Null, 0, false and nothing between quotes or brackets are the same as absent, but for queued and fenced, of which 0 and
// false say something.
func (e *Event) Validate() error {
	event := reflect.ValueOf(e).Elem()
	var had uint64
	for i := range table.fields {
		f := &table.fields[i]
		value := event.Field(i)
		if list := value.Kind() == reflect.Map || value.Kind() == reflect.Slice; value.IsZero() || list && value.Len() == 0 {
			continue
		}
		had |= 1 << i
		switch n := reflect.Indirect(value); {
		case !n.CanInt() || n.Int() >= f.least && n.Int() <= f.most:
		case i == fieldProcess:
			return fmt.Errorf("process %d: want 0 or more, or %d for faults and observations", n.Int(), NoProcess)
		case n.Int() < 0:
			return fmt.Errorf("negative %q: %d", f.Name, n.Int())
		default:
			return fmt.Errorf("%q is %d, want %d at the most", f.Name, n.Int(), f.most)
		}
	}
	return e.valid(had)
}

// valid is Validate of an event with these fields, a bit each, whose numbers are in range.
func (e *Event) valid(had uint64) error {
	op := slices.IndexFunc(table.operators, func(o Operator) bool { return o.Op == e.Op })
	typ := slices.Index(types(), e.Type)
	if op < 0 || typ < 0 || had&table.words != 0 {
		if err := e.wordsKnown(); err != nil {
			return err
		}
	}
	line := op*4 + typ
	o := &table.operators[op]
	switch wrong := had &^ table.allowed[line]; {
	case !slices.Contains(o.Types, e.Type):
		return fmt.Errorf("%s is a single %s, not %q", o.Op, o.Types[0], e.Type)
	case e.Process < 0 && !o.Unmade:
		return fmt.Errorf("%s needs a process of 0 or more, not %d", o.Op, e.Process)
	case wrong != 0:
		f := &table.fields[bits.TrailingZeros64(wrong)]
		return fmt.Errorf("field %q can't be on %s %s; it belongs to %s", f.Name, e.Op, e.Type, strings.NewReplacer("`", "", " *", "", " †", "").Replace(f.Where))
	case table.needed[line]&^had != 0:
		return e.missing(table.needed[line] &^ had)
	case e.Op == Access && e.Resource == "" && e.Lock == "":
		return errors.New(`access needs "resource" or "lock"`)
	case e.Permits > 0 && e.Mode != "" && e.Mode != Permit:
		return fmt.Errorf("%q is of mode permit, not %s", "permits", e.Mode)
	case e.Capacity > 0 && e.Kind != KindSemaphore:
		return fmt.Errorf("%q is of kind semaphore, not %s", "capacity", e.Kind)
	case e.Op == Declare && e.From > 0 && e.Capacity == 0:
		return errors.New(`"from" needs "capacity": the one from that instant on`)
	}
	return nil
}

// wordsKnown says which field has a value that is none of those that it may have.
func (e *Event) wordsKnown() error {
	for i := range table.fields {
		f := &table.fields[i]
		value := reflect.ValueOf(e).Elem().Field(i)
		if f.words == nil || slices.Contains(f.words, value.String()) || value.IsZero() && f.Where != "" {
			continue
		}
		want := strings.Join(f.words[:len(f.words)-1], ", ") + " or " + f.words[len(f.words)-1]
		if value.IsZero() {
			return fmt.Errorf("missing %q (%s)", f.Name, want)
		}
		return fmt.Errorf("unknown %s %s (want %s)", f.Name, quoted(value.String()), want)
	}
	return nil
}

// missing says which fields the operation needs.
func (e *Event) missing(fields uint64) error {
	var names []string
	for i := range table.fields {
		if f := &table.fields[i]; fields>>i&1 != 0 {
			names = append(names, strconv.Quote(f.Name))
			if f.words != nil {
				names[len(names)-1] += " (" + strings.Join(f.words, ", ") + ")"
			}
		}
	}
	return fmt.Errorf("%s needs %s", e.Op, strings.Join(names, " and "))
}

// Amount is how many permits the event is about: at least 1, and so few that
// those of a whole history can be summed up.
func (e *Event) Amount() int { return min(max(e.Permits, 1), 1<<40) }

// LockOwner is the owner that the event names, or else the one that stands for
// its process: "p" and the number of the process.
func (e *Event) LockOwner() string {
	if e.Owner != "" {
		return e.Owner
	}
	return "p" + strconv.Itoa(e.Process)
}
