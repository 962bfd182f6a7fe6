package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// A play is one run that is to be made and judged.
type play struct {
	harness.Config // its directory, seed and command; its servers, where they are open already

	name    string // of the run, as it is told
	run     func(context.Context, harness.Config) error
	servers *serverFlags
	store   string
	before  bool // the directory was there before
	drop    bool // the directory of a valid run is removed
	// control is the same run with the control lock, which is made if the run is invalid; nil: none was asked for.
	control func(history.Run) (control, error)
}

// A control is how the control lock makes a run again. Without a lock it can't.
type control struct {
	lock, command string
	run           func(context.Context, harness.Config) error
}

// A played is what came of one run.
type played struct {
	in   reports.Input
	dir  string // empty if nothing is there
	took time.Duration
	// failed is what the harness could not do, such as to heal a fault, of a run that is judged all the same.
	failed error

	run        int   // of a scenario that is played several times, from 1
	unexpected error // in what the verdict of a scenario is another; nil if it is the one that is expected
}

// play makes one run, judges it, also after Ctrl-C, and writes its reports. Where nothing was recorded, its directory is
// removed again.
func (a *app) play(ctx context.Context, p play) (played, error) {
	start := time.Now()
	failed := a.record(ctx, p)
	if failed != nil && !history.Dir(p.Dir).Exists() {
		return played{}, errors.Join(failed, removeEmpty(p.Dir, p.before))
	}
	r := played{dir: p.Dir, took: time.Since(start), failed: failed}
	var err error
	if r.in, err = readRecord(p.Dir); err != nil {
		return r, asHarness(errors.Join(failed, err))
	}
	if failed != nil {
		r.in.Run.Failed = cmp.Or(r.in.Run.Failed, failed.Error())
	}
	judging, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkBudget)
	defer cancel()
	r.in.Report = harness.Judge(judging, r.in.Run, r.in.History)
	if failed == nil && p.control != nil && r.in.Report.Verdict == checker.Invalid {
		err = a.playControl(ctx, p, &r.in.Run)
	}
	if p.drop && r.in.Report.Verdict == checker.Valid {
		r.dir = ""
		return r, asHarness(os.RemoveAll(p.Dir))
	}
	return r, asHarness(errors.Join(err, reports.WriteDir(p.Dir, r.in)))
}

// record makes the run.
func (a *app) record(ctx context.Context, p play) error {
	log, err := createLog(p.Dir)
	if err != nil {
		return err
	}
	defer log.Close()
	p.Log, p.Program = a.log(log), version()
	if p.Backend == nil {
		if p.Backend, p.BackendName, err = a.openServers(ctx, p.servers, p.Log, p.store); err != nil {
			return err
		}
	}
	return asHarness(p.run(ctx, p.Config))
}

// controlDir is the run directory of the control, in that of the run.
const controlDir = "control"

// playControl has the control lock make a run again, and notes in the run's record what came of it.
func (a *app) playControl(ctx context.Context, p play, run *history.Run) error {
	c, err := p.control(*run)
	if err != nil || c.lock == "" {
		return err
	}
	if p.Notice == nil {
		p.Notice = func(what string) { fmt.Fprintln(a.stderr, what) }
	}
	p.Notice(fmt.Sprintf("%s is invalid: the same plan again with %s", p.name, c.lock))
	dir := p.Dir
	p.Dir, p.Command, p.run = filepath.Join(dir, controlDir), c.command, c.run
	if err := a.record(ctx, p); err != nil {
		return fmt.Errorf("run the control: %w", err)
	}
	in, err := judge(ctx, p.Dir)
	if err != nil {
		return err
	}
	run.Control = &history.Control{Lock: c.lock, Dir: controlDir, Verdict: string(in.Report.Verdict)}
	return history.Dir(dir).WriteRun(*run)
}
