// Package importers reads histories that other tools have recorded, and makes
// histories of ours of them.
package importers

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// JepsenLock is the name of the lock where the history names none.
const JepsenLock = "lock"

// Jepsen reads a history of Jepsen or Knossos about a mutex: EDN maps, one after another or in a vector, with :process,
// :type (:invoke, :ok, :fail, :info), :f (:acquire, :release), :value and, if there is one, :time in nanoseconds. Operations
// whose process is no number, as of the nemesis, are left out. Its errors name the line and what was expected.
//
// The lock is named by the first of a :value [k v], else it is [JepsenLock]. The token of a grant is the :fence of its value,
// if that is positive. There are no leases: a hold lasts until it is released. A release that was answered :ok is taken for one
// that the service confirmed. The lock is taken for a mutex that is not re-entrant, and a history of another kind is refused
// where that shows: by a grant to a process that holds the lock, or by :permits.
//
// An owner of ours is one attempt to acquire, with its releases: a release goes with the last acquire of its process that was
// answered ok and not released yet, else with the last one of which it is unknown whether it holds the lock. Jepsen goes on
// with another process after an :info. So the release of one without such an acquire is of unknown outcome, if the process
// began after an :info: it may be for that.
func Jepsen(r io.Reader) (*history.History, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	j := jepsen{edn: &ednReader{data: data, line: 1}, open: map[int]*history.Event{}}
	for {
		v, err := j.edn.read()
		if errors.Is(err, io.EOF) {
			return &history.History{Events: j.events}, j.nameOwners()
		}
		if err != nil {
			return nil, err
		}
		list, ok := v.([]any) // the whole history as one
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			if err := j.take(v); err != nil {
				return nil, err
			}
		}
	}
}

type jepsen struct {
	edn    *ednReader
	events []history.Event
	lines  []int                  // of the events
	open   map[int]*history.Event // invokes, by process
}

// take adds the event that a map stands for.
func (j *jepsen) take(v any) error {
	op, ok := v.(dict)
	if !ok {
		return j.edn.errorf("want a map of an operation, like {:process 0, :type :invoke, :f :acquire, :value nil}, found %q", shown(v))
	}
	process, ok := op.get("process").(int64)
	if _, nemesis := op.get("process").(keyword); nemesis {
		return nil
	}
	if !ok || process < 0 || process > math.MaxInt32 {
		return j.edn.errorf(":process is %s, want a whole number from 0 to 2147483647", shown(op.get("process")))
	}
	n := len(j.events)
	e := history.Event{Index: int64(n), Process: int(process), Lock: JepsenLock}
	if n > 0 {
		e.Time = j.events[n-1].Time + 1
	}
	if at := op.get("time"); at != nil {
		ns, ok := at.(int64)
		if !ok || ns < 0 || ns > int64(history.MaxTime) {
			return j.edn.errorf(":time is %s, want nanoseconds", shown(at))
		}
		e.Time = max(e.Time, time.Duration(ns)) // stamps of Jepsen may tie, and those of one process must not
	}
	kind, err := j.oneOf(op, "type", "invoke", "ok", "fail", "info")
	if err != nil {
		return err
	}
	f, err := j.oneOf(op, "f", "acquire", "release")
	if err != nil {
		return err
	}
	e.Type, e.Op = history.Type(kind), history.Op(f)
	value := op.get("value")
	if d, ok := value.(dict); op.get("permits") != nil || ok && d.get("permits") != nil {
		return j.edn.errorf("an operation has :permits: a semaphore is not judged from such a history, only a mutex")
	}
	if tuple, ok := value.([]any); ok && len(tuple) == 2 {
		e.Lock, value = shown(tuple[0]), tuple[1]
	}
	if d, ok := value.(dict); ok && e.Type == history.OK && e.Op == history.Acquire {
		fence, _ := d.get("fence").(int64)
		e.Token = max(fence, 0)
	}
	e.Error, _ = op.get("error").(string)
	return j.add(e)
}

func (j *jepsen) oneOf(op dict, key keyword, want ...string) (string, error) {
	got, _ := op.get(key).(keyword)
	if !slices.Contains(want, string(got)) {
		return "", j.edn.errorf(":%s is %s, want :%s or :%s", key, shown(op.get(key)), strings.Join(want[:len(want)-1], ", :"), want[len(want)-1])
	}
	return string(got), nil
}

func (j *jepsen) add(e history.Event) error {
	switch open := j.open[e.Process]; {
	case e.Type == history.Invoke && open != nil:
		return j.edn.errorf("process %d invokes :%s while its :%s is open", e.Process, e.Op, open.Op)
	case e.Type == history.Invoke:
		j.open[e.Process] = &e
	case open == nil:
		return j.edn.errorf(":%s :%s of process %d has no :invoke", e.Op, e.Type, e.Process)
	case open.Op != e.Op:
		return j.edn.errorf("process %d completes :%s while its :%s is open", e.Process, e.Op, open.Op)
	default:
		e.Lock = open.Lock
		delete(j.open, e.Process)
	}
	j.events = append(j.events, e)
	j.lines = append(j.lines, j.edn.line)
	return nil
}

// A holding is a process and a lock.
type holding struct {
	process int
	lock    string
}

// nameOwners gives the events their owners.
func (j *jepsen) nameOwners() error {
	attempts, began := map[int]int{}, map[int]int{}             // of each process, and how many were retired when it began
	held, unknown := map[holding]string{}, map[holding]string{} // the owner that holds; of which that is unknown
	owners, doubtful := map[int]string{}, map[int]bool{}        // of the open operation of each process; it may be for another one
	retired := 0
	for i := range j.events {
		e := &j.events[i]
		at := holding{e.Process, e.Lock}
		if _, known := began[e.Process]; !known {
			began[e.Process] = retired
		}
		if e.Type == history.Invoke {
			e.Owner = cmp.Or(held[at], unknown[at])
			doubtful[e.Process] = began[e.Process] > 0 && e.Op == history.Release && e.Owner == ""
			if e.Op == history.Acquire || e.Owner == "" {
				attempts[e.Process]++
				e.Owner = fmt.Sprintf("t%d-%d", e.Process, attempts[e.Process])
			}
			owners[e.Process] = e.Owner
			continue
		}
		e.Owner = owners[e.Process]
		if doubtful[e.Process] {
			e.Type = history.Info
		}
		info := e.Type == history.Info
		if info {
			retired++
		}
		switch acquires, granted := e.Op == history.Acquire, e.Type == history.OK; {
		case acquires && granted && held[at] != "":
			return fmt.Errorf("line %d: process %d is granted %q, which it holds: the lock is re-entrant or a semaphore, and a mutex is what can be judged here",
				j.lines[i], e.Process, e.Lock)
		case acquires && granted:
			held[at] = e.Owner
		case acquires && info && held[at] == "", !acquires && info && held[at] == e.Owner:
			unknown[at] = e.Owner // it may hold the lock
		case !acquires && granted && held[at] != e.Owner:
			delete(unknown, at)
		}
		if e.Op == history.Release && held[at] == e.Owner {
			delete(held, at)
		}
	}
	return nil
}

// shown is a value as EDN, for names and messages.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case keyword:
		return ":" + string(v)
	default:
		return fmt.Sprint(v)
	}
}
