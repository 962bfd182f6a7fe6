package history

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
)

// A Field is one field of the lines of a history: the reader, the writer, the JSON Schema, the
// table of docs/history-format.md and the generators of tests are made of this list.
type Field struct {
	// Name is how lines spell it.
	Name string
	// Where are the lines that may have it, by their operations, and if not all of these, by their types; empty: all lines. Behind *
	// the completion says the same as its invocation, or leaves it out; behind † it is on either, and the same where both have it.
	Where string
	// Needed are the operations whose lines must have it.
	Needed string
	// Meaning is what it says, in Markdown.
	Meaning string

	words       []string // the values that it may have; nil: any
	least, most int64    // of a number
	at          int      // its place in the list, and in an Event
}

// An Operator is an operation of the format: which lines it has, and what it means.
type Operator struct {
	Op      Op
	Types   []Type // of its lines; those with an Invoke are pairs
	Unmade  bool   // no process need make it: that may be NoProcess
	Meaning string
}

// Operators are the operations of the format.
func Operators() []Operator {
	pair := types()
	return []Operator{
		{Acquire, pair, false, "`fail`: refused, or the wait ended with the server's refusal and nothing left behind"},
		{Release, pair, false, "`fail`: the service says that the caller did not hold it: the hold had already ended"},
		{Extend, pair, false, "renewal, by the caller or its watchdog"},
		{Lost, []Type{OK}, false, "the holder was told that it no longer holds: its belief ends here"},
		{Access, pair, false, "the protected resource was used by a process that believes it holds the lock; `fail`: the resource refused (a stale token)"},
		{Crash, []Type{Info}, false, "the process has crashed: it uses no resource any more; its holds last until their `expires`; one without a lease ends, because no process renews it"},
		{Inject, pair, true, "a fault began; `ok` means that its effect was observed"},
		{Heal, pair, true, "a fault ended; one without a duration is healed at once"},
		{Observe, []Type{OK}, true, "what the run saw of a server: `node`, `what`, `value`"},
		{Declare, []Type{OK}, true, "what this lock promises, before the first event that names it. A second one says that a semaphore has another `capacity` `from` an instant on, and repeats the rest"},
	}
}

// table is the list of fields with what is derived of it. It never changes.
//
//nolint:gochecknoglobals // data, which each line that is read needs
var table = tableOf(Operators())

type formatTable struct {
	fields    []Field // in the order of the fields of Event
	byName    map[string]int
	operators []Operator
	allowed   [numLines]uint64 // the fields of each line, a bit each
	needed    [numLines]uint64
	words     uint64 // fields with a list of words, a bit each
}

// numLines is how many kinds of line there are, each operation with each type, and numFields how many fields.
const (
	numLines  = 10 * 4
	numFields = 32

	fieldTime, fieldProcess, fieldOp = 1, 2, 4 // the places of some of them
)

func tableOf(operators []Operator) *formatTable {
	t := &formatTable{fields: fields(), byName: map[string]int{}, operators: operators}
	for _, o := range operators {
		t.fields[fieldOp].words = append(t.fields[fieldOp].words, string(o.Op))
	}
	for i := range t.fields {
		f := &t.fields[i]
		t.byName[f.Name], f.at = i, i
		for line := range numLines {
			op := &operators[line/4]
			if f.on(op, types()[line%4]) {
				t.allowed[line] |= 1 << i
			}
			if among(f.Needed, string(op.Op)) {
				t.needed[line] |= 1 << i
			}
		}
		if f.words != nil && f.Where != "" { // not type and op, which are looked up in any case
			t.words |= 1 << i
		}
	}
	return t
}

// among reports whether a list has a word.
func among(list, word string) bool {
	return slices.Contains(strings.Split(strings.TrimRight(list, " *†"), ", "), word)
}

func types() []Type { return []Type{Invoke, OK, Fail, Info} }

// Fields are the fields of the format, in the order in which lines are written.
func Fields() []Field { return slices.Clone(table.fields) }

// on reports whether lines of an operation and type may have the field.
func (f *Field) on(o *Operator, t Type) bool {
	return f.Where == "" || slices.Contains(o.Types, t) && slices.ContainsFunc(strings.Split(f.Where, "; "), func(where string) bool {
		only, ops, some := strings.Cut(where, " of ")
		return among(cmp.Or(ops, where), string(o.Op)) && (!some || strings.Contains(only, string(t)))
	})
}

func fields() []Field {
	return []Field{
		{Name: "index", least: math.MinInt64, most: math.MaxInt64, Meaning: "position in the file, from 0; optional, and not read"},
		{Name: "time", most: int64(MaxTime), Meaning: "nanoseconds since the run began, on one monotonic clock; never decreases"},
		{Name: "process", least: NoProcess, most: math.MaxInt64, Meaning: "the logical process, one operation at a time; -1 for faults and observations. After an `info` the process is retired and its client goes on under a new number"},
		{Name: "type", words: []string{"invoke", "ok", "fail", "info"}, Meaning: "`invoke`, `ok`, `fail` (definitely did not happen), `info` (may have happened, may still happen)"},
		{Name: "op", Meaning: "one of the [operations](#operations)"},
		{Name: "clock", Meaning: "the clock that stamped the event, such as the name of a machine, where [several](#several-clocks) did. Default: that of the process"},
		{Name: "lock", Where: "acquire, release, extend *; access *; lost, crash, declare", Needed: "acquire, release, extend, lost, declare", Meaning: "the lock's name"},
		{Name: "owner", Where: "acquire, release, extend *; access *; lost, crash", Meaning: "the identity that the caller claims; a re-entrant acquire is one by the same owner. Default: `p<process>`"},
		{Name: "mode", Where: "acquire, release, extend *; access *; lost", words: []string{"exclusive", "read", "write", "permit"}, Meaning: "`exclusive` (default), `read`, `write`, `permit`"},
		{Name: "permits", Where: "acquire, release, extend *; lost", most: MaxAmount, Meaning: "how many, in mode `permit` (default 1; on a release that names none: those of one grant)"},
		{Name: "lease", Where: "acquire, extend *", most: int64(MaxTime), Meaning: "nanoseconds (not milliseconds) asked for; absent: kept alive by a watchdog until released or `lost`"},
		{Name: "expires", Where: "`ok` of acquire, extend", most: int64(MaxTime), Meaning: "the last instant (same axis as `time`, never a duration) at which the holder is entitled to believe that it holds; absent: until it releases or is told that the lock is lost. If absent and `lease` is given: invoke time + lease. A history of several grants in which each is before its request is *unknown*"},
		{Name: "token", Where: "`ok` of acquire; access †", most: math.MaxInt64, Meaning: "fencing token, greater than 0; on access, the one that the resource was shown"},
		{Name: "holds", Where: "`ok` of acquire, release", most: MaxAmount, Meaning: "hold count of that owner after the operation; recorded, not judged"},
		{Name: "queued", Where: "`ok` of acquire", most: math.MaxInt64, Meaning: "the order in which the service of a fair lock queued the request; left out if it lost that place, or was granted the lock unheard, before this grant"},
		{Name: "resource", Where: "access *", Meaning: "what was touched under the lock; default: what has the lock's name"},
		{Name: "value", Where: "access †; `ok` of inject, heal, observe", Meaning: "with what a resource was touched: a read-modify-write says `\"<read>><written>\"`, with each version written once. Of a fault, and of `observe`: what was seen"},
		{Name: "fault", Where: "inject, heal, observe", Needed: "inject, heal", Meaning: "the fault; of `observe` `met`, the one that was met"},
		{Name: "target", Where: "inject, heal, observe", Meaning: "where it was injected"},
		{Name: "params", Where: "inject, heal", Meaning: "its parameters"},
		{Name: "life", Where: "inject", Meaning: "how long the fault acts: [Faults](#faults). Absent: unknown"},
		{Name: "effects", Where: "inject", Meaning: "what the fault does while it acts: [Faults](#faults). Absent: unknown"},
		{Name: "node", Where: "`ok`, `fail`, `info` of acquire, release, extend, access; observe", Needed: "observe", Meaning: "the server that answered, where known; on observe, the one that was seen"},
		{Name: "what", Where: "`fail` of release; observe", Needed: "observe", Meaning: "of the `fail` of a release, `\"confirmed-again\"` if the service confirmed it although it had confirmed one of the same hold before; of `observe`, the aspect (`role`, `epoch`, `master`, `key`, `left`, `met`): the `master` of the node `primary` is where the address leads by which clients find the master; `met` of the node `clients`, with `fault` and `target`, is how many requests met the oldest of these faults that is not yet counted (absent: not known; `\"0\"`: it does not count as having taken effect); a `key` is `\"<lock> <owner>\"`, or `\"<lock>\"` when it is absent; `left`, with the same value, says that a master has the lock for an owner whose request was refused before"},
		{Name: "error", Where: "`fail`, `info` of acquire, release, extend, access, crash, inject, heal", Meaning: "the error message"},
		{Name: "kind", Where: "declare", Needed: "declare", words: []string{KindMutex, KindRW, KindSemaphore}, Meaning: "what a declared lock is: `mutex`, `rw`, `semaphore`"},
		{Name: "reentrant", Where: "declare", Meaning: "the owner of a declared lock may acquire it again; default false"},
		{Name: "fair", Where: "declare", Meaning: "a declared lock is granted in the order of `queued`; default false"},
		{Name: "capacity", Where: "declare", most: MaxAmount, Meaning: "the permits of a declared semaphore; absent: not known"},
		{Name: "from", Where: "declare, crash", most: int64(MaxTime), Meaning: "on a second `declare`: the instant from which on the semaphore has this `capacity`, not before the line's `time`. On a `crash`: the instant from which on the process may have been gone, not after the line's `time`, which is when that was seen; absent: `time`"},
		{Name: "drift", Where: "declare", most: int64(MaxTime), Meaning: "nanoseconds of clock error allowed per lease; default 0"},
		{Name: "fenced", Where: "declare", Meaning: "a declared lock gives fencing tokens; default: true once one was seen"},
	}
}

// Kind names the type of the field's value.
func (f *Field) Kind() string {
	t := reflect.TypeFor[Event]().Field(f.at).Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kinds := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Map: "object of strings", reflect.Slice: "array of strings"}
	return cmp.Or(kinds[t.Kind()], "integer")
}
