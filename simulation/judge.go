package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// Record is the record of a run that had this outcome.
func (c Case) Record(l harness.LockSpec, o Outcome) history.Run {
	c = c.withDefaults()
	run := history.Run{
		Version: history.RunVersion, Seed: c.Seed, Backend: history.Simulated, Topology: o.Topology,
		Servers: map[string]string{"redis": "simulated"}, Lock: l.Name, Unpromised: l.Unpromised(), Workload: c.Workload,
		Resource: harness.ResourceRegister, Faults: history.NoFaults, Progress: c.Progress, Duration: o.Virtual,
	}
	if settings, err := json.Marshal(Record{c, o.Hash, Exact()}); err == nil { // which is plain data
		run.Settings = settings
	}
	if len(c.Plan) > 0 {
		run.Faults = "plan"
	}
	for _, f := range c.Plan {
		run.Plan = append(run.Plan, history.PlannedStep{At: f.At, For: f.For, Fault: f.Name, Target: f.Target, Params: paramsOf(f)})
	}
	return run
}

// longestWork is how many times longer than [Case.Hold] a client may work, and a little more
// for its requests: package workload draws up to 30.
const longestWork = 32

// hasty reports whether a careless client was granted a lock of which less was left than it
// works, or waited for an extension in vain, or until it was refused: the lock said so, and that it was used or given back after its end
// proves nothing. A lock that is granted when its lease is over is wrong in any case.
func (c Case) hasty(events []history.Event) bool {
	return c.Careless && slices.ContainsFunc(events, func(e history.Event) bool {
		return e.Op == history.Acquire && e.Type == history.OK && e.Expires >= e.Time && e.Expires-e.Time < longestWork*c.Hold ||
			e.Op == history.Extend && (e.Type == history.Info || e.Type == history.Fail)
	})
}

// Findings are the kinds of violation that a judge finds in a run, in order of name.
// It has to be called outside of a bubble.
func (c Case) Findings(ctx context.Context, l harness.LockSpec, o Outcome) ([]string, error) {
	h, err := o.Read()
	if err != nil {
		return nil, err
	}
	var quick []string // all but the one that takes long, which decides the same as the others for a single lock
	for _, c := range checker.Standard() {
		if c.Name() != checker.Linearizability().Name() {
			quick = append(quick, c.Name())
		}
	}
	report := checker.CheckRun(ctx, c.Record(l, o), h, checker.RunOptions{Properties: quick})
	hasty, lease := c.hasty(h.Events), leaseOf(l, c)
	paused := slices.ContainsFunc(c.Plan, func(f world.Fault) bool { return f.Name == world.PauseClient })
	// A request may be carried out once more when the lease that it began may be over, so that its client
	// has the lock again without knowing it: to confirm its late release is right then.
	again := slices.ContainsFunc(c.Plan, func(f world.Fault) bool { return f.Name == world.RepeatCommand && f.By >= lease/2 })
	uses, releases := !hasty && (!paused || !c.GrantsOnly), !hasty && !again
	var kinds []string
	for _, r := range report.Results {
		for _, v := range r.Violations {
			if kind, _ := checker.KindOf(v.Kind); kind.ByAccess && !uses || v.Kind == checker.ForeignRelease && !releases {
				continue
			}
			kinds = append(kinds, v.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), nil
}

// Write writes what a case had for an outcome to a run directory, as the run of a
// program by a command.
func (c Case) Write(dir history.Dir, l harness.LockSpec, o Outcome, program, command string) error {
	f, err := dir.Create()
	if err != nil {
		return err
	}
	if _, err := f.Write(o.History); err != nil {
		return errors.Join(fmt.Errorf("write history: %w", err), f.Close())
	}
	run := c.Record(l, o)
	run.Program, run.Command, run.Started = program, command, time.Now()
	run.Events = int64(bytes.Count(o.History, []byte("\n")))
	return errors.Join(f.Close(), dir.WriteRun(run))
}
