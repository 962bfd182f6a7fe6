package importers

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// JepsenLock is the name of the lock where the history names none.
const JepsenLock = "lock"

// Jepsen reads a history of Jepsen or Knossos about a mutex: EDN maps, one
// after another or in a vector, with :process, :type (:invoke, :ok, :fail,
// :info), :f (:acquire, :release), :value and, if there is one, :time in
// nanoseconds. Operations of the nemesis, and others whose process is no
// number, are left out. Its errors name the line and what was expected.
//
// The lock is named by the first of a :value [k v], else it is [JepsenLock].
// The token of a grant is the :fence of its value, if that is positive. There
// are no leases: a hold lasts until it is released.
//
// An owner of ours is one attempt to acquire, with its releases: a release goes
// with the last acquire of its thread that was answered ok and not released
// yet, else with the last one of which it is unknown whether it holds the lock. Jepsen goes on with
// another process after an :info, whose number is greater by the number of threads.
// That number is told by the history where only one explains all its processes.
// Where it is not, each process is a thread, and the release of one without a holder
// is taken for one of unknown outcome, if it may go with an earlier process.
//
// The lock is taken for a mutex that is not re-entrant. A history of another kind
// of lock is refused where that shows: by a grant to a process that holds the lock,
// or by :permits. A release that was answered :ok is taken for one that the service
// confirmed. (Some clients answer :ok to every release; then [checker.Ownership]
// has nothing to say of their service.)
func Jepsen(r io.Reader) (*history.History, error) {
	j := jepsen{edn: newEDNReader(r), threads: map[int]*thread{}, open: map[int]*history.Event{}}
	for {
		v, err := j.edn.read()
		switch {
		case errors.Is(err, io.EOF):
			if err := j.history(); err != nil {
				return nil, err
			}
			return &history.History{Events: j.events}, nil
		case errors.Is(err, errDiscarded):
			continue
		case err != nil:
			return nil, err
		}
		if list, ok := v.([]any); ok { // the whole history as one
			for _, one := range list {
				if err := j.take(one); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := j.take(v); err != nil {
			return nil, err
		}
	}
}

type jepsen struct {
	edn     *ednReader
	events  []history.Event
	lines   []int                  // of the events
	open    map[int]*history.Event // invokes, by process
	threads map[int]*thread
}

// A thread is what Jepsen runs its processes on, one after another.
type thread struct {
	attempts int
	held     map[string]string // the owner that holds, by lock
	unknown  map[string]string // the owner of which it is unknown whether it holds
}

func (j *jepsen) take(v any) error {
	op, ok := v.(dict)
	if !ok {
		return j.edn.errorf("want a map of an operation, like {:process 0, :type :invoke, :f :acquire, :value nil}, found %s", kindOf(v))
	}
	process, ok := op.get("process").(int64)
	if !ok {
		if op.get("process") == nil {
			return j.edn.errorf("an operation has no :process")
		}
		return nil // the nemesis
	}
	if process < 0 || process > math.MaxInt32 {
		return j.edn.errorf(":process %d is out of range", process)
	}
	e := history.Event{Process: int(process), Index: int64(len(j.events)), Time: time.Duration(len(j.events))}
	if n := len(j.events); n > 0 {
		e.Time = j.events[n-1].Time + 1
	}
	if at := op.get("time"); at != nil {
		ns, ok := at.(int64)
		if !ok || ns < 0 {
			return j.edn.errorf(":time is %v, want nanoseconds", at)
		}
		// Stamps of Jepsen may tie, and those of one process must not.
		e.Time = max(e.Time, time.Duration(ns))
	}
	switch t, _ := op.get("type").(keyword); t {
	case "invoke", "ok", "fail", "info":
		e.Type = history.Type(t)
	default:
		return j.edn.errorf(":type is %s, want :invoke, :ok, :fail or :info", shown(op.get("type")))
	}
	switch f, _ := op.get("f").(keyword); f {
	case "acquire", "release":
		e.Op = history.Op(f)
	default:
		return j.edn.errorf(":f is %s, want :acquire or :release", shown(op.get("f")))
	}
	e.Lock = JepsenLock
	value := op.get("value")
	if d, ok := value.(dict); op.get("permits") != nil || ok && d.get("permits") != nil {
		return j.edn.errorf("an operation has :permits: a semaphore is not judged from such a history, only a mutex")
	}
	if tuple, ok := value.([]any); ok && len(tuple) == 2 {
		e.Lock, value = fmt.Sprint(shown(tuple[0])), tuple[1]
	}
	if d, ok := value.(dict); ok && e.Type == history.OK && e.Op == history.Acquire {
		if fence, ok := d.get("fence").(int64); ok && fence > 0 {
			e.Token = fence
		}
	}
	if text, ok := op.get("error").(string); ok {
		e.Error = text
	}
	return j.add(e)
}

func (j *jepsen) add(e history.Event) error {
	open := j.open[e.Process]
	switch {
	case e.Type == history.Invoke && open != nil:
		return j.edn.errorf("process %d invokes :%s while its :%s is open", e.Process, e.Op, open.Op)
	case e.Type != history.Invoke && open == nil:
		return j.edn.errorf(":%s :%s of process %d has no :invoke", e.Op, e.Type, e.Process)
	case e.Type != history.Invoke && open.Op != e.Op:
		return j.edn.errorf("process %d completes :%s while its :%s is open", e.Process, e.Op, open.Op)
	case e.Type == history.Invoke:
		invoke := e
		j.open[e.Process] = &invoke
	default:
		e.Lock = open.Lock
		delete(j.open, e.Process)
	}
	j.events = append(j.events, e)
	j.lines = append(j.lines, j.edn.line)
	return nil
}

// history gives the events their owners.
func (j *jepsen) history() error {
	width, known := j.width()
	retired := false           // some process was, so that another one goes on for it
	late := map[int]bool{}     // processes that may go on for a retired one
	seen := map[int]bool{}     // processes that were there
	owners := map[int]string{} // of the open operation of each process
	doubtful := map[int]bool{} // processes whose open release may be another's
	for i := range j.events {
		e := &j.events[i]
		id := e.Process
		if known {
			id %= width
		}
		if !seen[e.Process] {
			seen[e.Process] = true
			late[e.Process] = retired && !known
		}
		t := j.threads[id]
		if t == nil {
			t = &thread{held: map[string]string{}, unknown: map[string]string{}}
			j.threads[id] = t
		}
		if e.Type == history.Invoke {
			doubtful[e.Process] = late[e.Process] && e.Op == history.Release && t.held[e.Lock] == "" && t.unknown[e.Lock] == ""
			owners[e.Process] = t.owner(e, id)
		}
		e.Owner = owners[e.Process]
		switch {
		case e.Op == history.Acquire && e.Type == history.OK && t.held[e.Lock] != "":
			return fmt.Errorf("line %d: process %d is granted %q, which it holds: the lock is re-entrant or a semaphore, and a mutex is what can be judged here",
				j.lines[i], e.Process, e.Lock)
		case doubtful[e.Process] && e.Type != history.Invoke:
			e.Type = history.Info
		}
		t.note(e)
		retired = retired || e.Type == history.Info
	}
	return nil
}

// width is the number of threads: the only one with which each process that is not
// one of the first goes on for one that an :info retired before.
func (j *jepsen) width() (width int, known bool) {
	first, retired := map[int]int{}, map[int]int{} // when, by process
	least, most := 0, 0
	for i := range j.events {
		e := &j.events[i]
		if _, ok := first[e.Process]; !ok {
			first[e.Process] = i
		}
		if len(retired) == 0 {
			least = max(least, e.Process+1)
		}
		if e.Type == history.Info {
			retired[e.Process] = i
		}
		most = max(most, e.Process)
	}
	if most < least {
		return least, true // none goes on for another
	}
	explains := func(width int) bool {
		for process, began := range first {
			if process < width {
				continue
			}
			if ended, ok := retired[process-width]; !ok || ended > began {
				return false
			}
		}
		return true
	}
	for process := range retired {
		if n := most - process; n >= least && explains(n) {
			if known {
				return 0, false
			}
			width, known = n, true
		}
	}
	return width, known
}

// owner is who invokes e.
func (t *thread) owner(e *history.Event, id int) string {
	if held := t.held[e.Lock]; held != "" && e.Op == history.Release {
		return held
	}
	if unknown := t.unknown[e.Lock]; unknown != "" && e.Op == history.Release {
		return unknown
	}
	t.attempts++
	return "t" + strconv.Itoa(id) + "-" + strconv.Itoa(t.attempts)
}

// note takes note of how an operation ended.
func (t *thread) note(e *history.Event) {
	switch {
	case e.Type == history.Invoke || e.Type == history.Fail && e.Op == history.Acquire:
	case e.Op == history.Acquire && e.Type == history.OK:
		t.held[e.Lock] = e.Owner
	case e.Op == history.Acquire:
		if t.held[e.Lock] == "" {
			t.unknown[e.Lock] = e.Owner
		}
	case t.held[e.Lock] == e.Owner:
		delete(t.held, e.Lock)
		if e.Type == history.Info {
			t.unknown[e.Lock] = e.Owner // it may hold the lock still
		}
	case e.Type == history.OK:
		delete(t.unknown, e.Lock)
	default:
	}
}

// shown is a value as EDN, for names and messages.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case keyword:
		return ":" + string(v)
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case []any:
		return "a list"
	case keyword:
		return ":" + string(v)
	case string:
		return strconv.Quote(v)
	default:
		return fmt.Sprint(v)
	}
}
