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
	j := jepsen{edn: &ednReader{data: data, line: 1}, processes: map[int]*jepsenProcess{}}
	for {
		v, err := j.edn.value(j.edn.token(), 0)
		if errors.Is(err, io.EOF) {
			return &history.History{Events: j.events}, nil
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
	edn       *ednReader
	events    []history.Event
	processes map[int]*jepsenProcess
	retired   bool // one ended with an :info
}

type jepsenProcess struct {
	open          history.Event // its invoke, or its last completion
	attempts      int
	late          bool              // it began after an :info
	held, unknown map[string]string // by lock, the owner that holds; of which that is unknown
}

// take adds the event that a map stands for.
func (j *jepsen) take(v any) error {
	op, ok := v.(dict)
	if !ok {
		return j.edn.errorf("want a map of an operation, like {:process 0, :type :invoke, :f :acquire, :value nil}, found %q", shown(v))
	}
	process, ok := op["process"].(int64)
	if _, nemesis := op["process"].(keyword); nemesis {
		return nil
	}
	if !ok || process < 0 || process > math.MaxInt32 {
		return j.edn.errorf(":process is %s, want a whole number from 0 to 2147483647", shown(op["process"]))
	}
	n := len(j.events)
	e := history.Event{Index: int64(n), Process: int(process), Lock: JepsenLock}
	if n > 0 {
		e.Time = j.events[n-1].Time + 1
	}
	if at := op["time"]; at != nil {
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
	value := op["value"]
	if tuple, ok := value.([]any); ok && len(tuple) == 2 {
		e.Lock, value = shown(tuple[0]), tuple[1]
	}
	of, _ := value.(dict)
	if op["permits"] != nil || of["permits"] != nil {
		return j.edn.errorf("an operation has :permits: a semaphore is not judged from such a history, only a mutex")
	}
	if fence, _ := of["fence"].(int64); e.Type == history.OK && e.Op == history.Acquire {
		e.Token = max(fence, 0)
	}
	e.Error, _ = op["error"].(string)
	return j.add(e)
}

func (j *jepsen) oneOf(op dict, key keyword, want ...string) (string, error) {
	got, _ := op[key].(keyword)
	if !slices.Contains(want, string(got)) {
		return "", j.edn.errorf(":%s is %s, want :%s or :%s", key, shown(op[key]), strings.Join(want[:len(want)-1], ", :"), want[len(want)-1])
	}
	return string(got), nil
}

// add adds an event with its owner.
func (j *jepsen) add(e history.Event) error {
	p := j.processes[e.Process]
	if p == nil {
		p = &jepsenProcess{late: j.retired, held: map[string]string{}, unknown: map[string]string{}}
		j.processes[e.Process] = p
	}
	open := p.open.Type == history.Invoke
	switch {
	case e.Type == history.Invoke && open:
		return j.edn.errorf("process %d invokes :%s while its :%s is open", e.Process, e.Op, p.open.Op)
	case e.Type == history.Invoke:
		if e.Owner = cmp.Or(p.held[e.Lock], p.unknown[e.Lock]); e.Op == history.Acquire || e.Owner == "" {
			p.attempts++
			e.Owner = fmt.Sprintf("t%d-%d", e.Process, p.attempts)
		}
		p.open, j.events = e, append(j.events, e)
		return nil
	case !open:
		return j.edn.errorf(":%s :%s of process %d has no :invoke", e.Op, e.Type, e.Process)
	case p.open.Op != e.Op:
		return j.edn.errorf("process %d completes :%s while its :%s is open", e.Process, e.Op, p.open.Op)
	}
	e.Lock, e.Owner = p.open.Lock, p.open.Owner
	held, acquires := p.held[e.Lock], e.Op == history.Acquire
	holds := held == e.Owner
	if !acquires && p.late && e.Owner != cmp.Or(held, p.unknown[e.Lock]) {
		e.Type = history.Info
	}
	switch {
	case acquires && e.Type == history.OK && held != "":
		return j.edn.errorf("process %d is granted %q, which it holds: the lock is re-entrant or a semaphore, and a mutex is what can be judged here", e.Process, e.Lock)
	case acquires && e.Type == history.OK:
		p.held[e.Lock] = e.Owner
	case e.Type == history.Info && (acquires && held == "" || holds):
		p.unknown[e.Lock] = e.Owner // it may hold the lock
	case !acquires && e.Type == history.OK && !holds:
		delete(p.unknown, e.Lock)
	}
	if holds {
		delete(p.held, e.Lock)
	}
	p.open, j.retired = e, j.retired || e.Type == history.Info
	j.events = append(j.events, e)
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
