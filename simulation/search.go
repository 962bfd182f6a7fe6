package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// A Job is one thing that a worker is asked for.
type Job struct {
	// Lock is the name of the lock under test.
	Lock string `json:"lock"`
	// Campaign and Seed draw the case, unless Case is given.
	Campaign Campaign `json:"campaign"`
	Seed     uint64   `json:"seed"`
	Case     *Case    `json:"case,omitempty"`
	// Shrink is the kind of violation that a smaller case must show, and Budget how many
	// runs that may take. Empty: the case is run as it is.
	Shrink string `json:"shrink,omitempty"`
	Budget int    `json:"budget,omitempty"`
	// Again is how often the case is run again, to see whether that is the same run.
	Again int `json:"again,omitempty"`
	// Keep asks for the history.
	Keep bool `json:"keep,omitempty"`
}

// A Result is what came of a [Job].
type Result struct {
	// Case is the one that was run, or the smallest.
	Case Case `json:"case"`
	// Findings are the kinds of violation that it shows.
	Findings []string `json:"findings,omitempty"`
	// Hash is that of the [Outcome], of a job that keeps it or runs its case again.
	Hash string `json:"hash,omitempty"`
	// Same is how many of the repetitions were the same run.
	Same int `json:"same,omitempty"`
	// Runs is how many there were.
	Runs    int            `json:"runs"`
	Counts  world.Counts   `json:"counts"`
	Links   map[string]int `json:"links,omitempty"`
	Shape   string         `json:"shape,omitempty"`   // how the run went: see [Shape]
	Outcome *Outcome       `json:"outcome,omitempty"` // if it was asked for
	// Granted is how many requests were granted a lock, and Denied how one ended if none was.
	Granted int    `json:"granted"`
	Denied  string `json:"denied,omitempty"`
	// Error says why the job could not be done.
	Error string `json:"error,omitempty"`
}

// garbageLimit is the size of the heap from which on memory is collected between two runs.
const garbageLimit = 64 << 20

// Do does a job in this process.
func Do(ctx context.Context, t *testing.T, l harness.LockSpec, j Job) (Result, error) {
	t.Helper()
	r := Result{}
	c, err := j.caseOf(l)
	if err != nil {
		return r, err
	}
	once := func(c Case) (Outcome, []string, error) {
		size := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		if metrics.Read(size); size[0].Value.Uint64() > garbageLimit {
			runtime.GC()
		}
		r.Runs++
		o, err := play(t, l, c) //nolint:contextcheck // a run in virtual time has a context of its own
		if err == nil && (j.Keep || j.Again > 0) {
			err = o.write()
		}
		if err != nil {
			return o, nil, err
		}
		found, err := c.Findings(ctx, l, o)
		return o, found, err
	}
	if j.Shrink != "" {
		c, _ = Shrink(c, j.Budget, func(c Case) bool {
			if ctx.Err() != nil {
				return false
			}
			_, found, err := once(c)
			return err == nil && slices.Contains(found, j.Shrink)
		})
	}
	o, found, err := once(c)
	if err != nil {
		return r, err
	}
	for range j.Again {
		again, _, err := once(c)
		if err != nil {
			return r, err
		}
		if again.Hash == o.Hash {
			r.Same++
		}
	}
	r.Case, r.Findings, r.Hash, r.Counts, r.Links, r.Shape = c, found, o.Hash, o.Counts, o.Links, Shape(o.events)
	r.Granted, r.Denied = granted(o.events)
	if j.Keep {
		r.Outcome = &o
	}
	return r, nil
}

// granted counts grants, and says how a request ended if there are none.
func granted(events []history.Event) (n int, denied string) {
	for i := range events {
		switch e := &events[i]; {
		case e.Op != history.Acquire || e.Type == history.Invoke:
		case e.Type == history.OK:
			n, denied = n+1, ""
		case n == 0:
			denied = cmp.Or(e.Error, denied, "it was refused")
		}
	}
	return n, denied
}

func (j Job) caseOf(l harness.LockSpec) (Case, error) {
	if j.Case != nil {
		return *j.Case, nil
	}
	return j.Campaign.Draw(l, j.Seed)
}

// Serve is a worker: it does the jobs that it reads, one after the other, and writes
// what came of each. Runs need a process of their own, since each gives its process its
// random numbers, and since one that hangs can be ended in no other way.
func Serve(ctx context.Context, in io.Reader, out io.Writer, locks harness.Locks) error {
	t := new(testing.T) // package synctest asks for one, and uses nothing of it
	jobs, results := json.NewDecoder(in), json.NewEncoder(out)
	defer deepStacks()()
	warm := ""
	for {
		var j Job
		switch err := jobs.Decode(&j); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read job: %w", err)
		}
		l, err := locks.ByName(j.Lock) //nolint:contextcheck // a driver bounds its own start
		var r Result
		if err == nil {
			if warm != j.Lock {
				// What packages keep for their process draws random numbers when it is made, which the first run
				// would have, and no other. It is kept, so that its events are validated.
				var c Case
				if c, err = j.caseOf(l); err == nil {
					c.Plan = nil
					_, err = Do(ctx, t, l, Job{Case: &c, Keep: true})
				}
				warm = j.Lock
			}
			if err == nil {
				r, err = Do(ctx, t, l, j)
			}
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := results.Encode(r); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
	}
}
