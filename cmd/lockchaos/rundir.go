package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// runsDir is the folder of run directories by default.
const runsDir = "reports/runs"

// newRunDir makes a run directory, which must be new or empty. Without a name it
// is made of the time and of what is run.
func newRunDir(chosen string, what ...string) (string, error) {
	if chosen != "" {
		return chosen, emptyDir(chosen)
	}
	parts := append([]string{time.Now().UTC().Format("20060102T150405Z")}, what...)
	for i, part := range parts {
		parts[i] = fileName(part)
	}
	name := filepath.Join(runsDir, strings.Join(parts, "-"))
	err := os.MkdirAll(runsDir, 0o755)
	dir := name
	for n := 2; err == nil; n++ {
		if err = os.Mkdir(dir, 0o755); err == nil {
			return dir, nil
		}
		if errors.Is(err, os.ErrExist) { // another run began in the same second
			dir, err = name+"."+strconv.Itoa(n), nil
		}
	}
	return "", harnessError{fmt.Errorf("make run directory: %w", err)}
}

// emptyDir makes a folder that the user chose, or makes sure that it is empty.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return asHarness(os.MkdirAll(dir, 0o755))
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("--out %s is no folder", dir)
	case err != nil:
		return harnessError{fmt.Errorf("look into --out: %w", err)}
	case len(entries) > 0:
		return fmt.Errorf("--out %s is not empty; choose another folder, or remove what is there", dir)
	default:
		return nil
	}
}

// createLog makes the harness's own log, as JSON lines.
func createLog(dir string) (*os.File, error) {
	logs := filepath.Join(dir, history.LogsDir)
	err := os.MkdirAll(logs, 0o755)
	if err != nil {
		return nil, harnessError{fmt.Errorf("make log: %w", err)}
	}
	f, err := os.Create(filepath.Join(logs, "lockchaos.log"))
	return f, asHarness(err)
}

// removeEmpty removes a run directory in which nothing was recorded; of one that
// was there before, only what was put into it.
func removeEmpty(dir string, before bool) error {
	err := os.RemoveAll(filepath.Join(dir, history.LogsDir))
	if err == nil && !before {
		err = os.Remove(dir)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pointLatest makes runs/latest point to the newest of the run directories
// with a default name.
func pointLatest(dir string) error {
	if filepath.Dir(dir) != runsDir {
		return nil
	}
	// In two steps, so that there always is one.
	next := filepath.Join(runsDir, ".latest-"+filepath.Base(dir))
	err := os.Symlink(filepath.Base(dir), next)
	if err == nil {
		err = os.Rename(next, filepath.Join(runsDir, "latest"))
	}
	if err != nil {
		return fmt.Errorf("point latest: %w", err)
	}
	return updateIndex(runsDir)
}

// checkBudget bounds how long the judging of one run may take.
const checkBudget = time.Minute

// judge judges the run in a directory and writes its reports there; not if the
// user ended it.
func judge(ctx context.Context, dir string) (reports.Input, error) {
	in, err := judgeOnly(ctx, dir)
	if err != nil {
		return in, err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.As(cause, new(easeError)) {
		return in, cause
	}
	return in, asHarness(reports.WriteDir(dir, in))
}

// judgeOnly judges the run in a directory, and writes nothing.
func judgeOnly(ctx context.Context, dir string) (reports.Input, error) {
	in, err := reports.ReadRecord(dir)
	if err == nil {
		judgeRecord(ctx, &in)
	}
	return in, err
}

// judgeRecord judges what a run left.
func judgeRecord(ctx context.Context, in *reports.Input) {
	budget, cancel := context.WithTimeout(ctx, checkBudget)
	defer cancel()
	in.Report = harness.Judge(budget, in.Run, in.History)
}

// fileName is a name as part of one of a folder: of a driver, its command.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		default:
			return '_'
		}
	}, name)
}

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
	if r.in, err = reports.ReadRecord(p.Dir); err != nil {
		return r, asHarness(errors.Join(failed, err))
	}
	if failed != nil {
		r.in.Run.Failed = cmp.Or(r.in.Run.Failed, failed.Error())
	}
	judgeRecord(context.WithoutCancel(ctx), &r.in)
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
