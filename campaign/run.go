// Package campaign makes runs and judges them: one, or the many of a campaign, which are noted in a journal as they
// end. It reads what the journals of a campaign have, joins that, and remembers it from night to night.
package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
)

// Exists reports whether there is something of that name.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A Player makes runs for a program.
type Player struct {
	// Program is its version.
	Program string
	// Open finds the servers of a store, and what records call them. They log what they do.
	Open func(ctx context.Context, log *slog.Logger, store string) (topologies.Backend, string, error)
	// Log is the log of the program, which goes on in a file.
	Log func(file io.Writer) *slog.Logger
	// Out receives what the user is told while runs go on.
	Out io.Writer
}

// A Run is one run that is to be made and judged.
type Run struct {
	// Config is its directory, seed and command. The [Player] has its program, servers and log.
	harness.Config
	// Make makes it on servers of a store, and Title is what users are told that it is.
	Make         func(context.Context, harness.Config) error
	Store, Title string
	// Before says that the directory was there before.
	Before bool
	// DropValid has the directory of a valid run removed.
	DropValid bool
	// Control is the same run with the control lock, which is made in a directory if the run is invalid; nil: none was asked for.
	Control func(run history.Run, dir string) (Control, error)
}

// A Control is how the control lock makes a run again. Without a lock it can't.
type Control struct {
	Lock, Command string
	Make          func(context.Context, harness.Config) error
}

// A Played is what came of one run.
type Played struct {
	reports.Input

	// Dir is its directory; empty: it was removed.
	Dir  string
	Took time.Duration
	// Failed is what the harness could not do, such as to heal a fault, of a run that is judged all the same.
	Failed error
}

// Play makes one run, judges it, also after Ctrl-C, and writes its reports. Where nothing was recorded, its directory is
// removed again.
func (p Player) Play(ctx context.Context, r Run) (Played, error) {
	start := time.Now()
	failed := p.record(ctx, r)
	if failed != nil && !history.Dir(r.Dir).Exists() {
		return Played{}, errors.Join(failed, removeEmpty(r.Dir, r.Before))
	}
	played := Played{Dir: r.Dir, Took: time.Since(start), Failed: failed}
	var err error
	if played.Input, err = reports.ReadRecord(r.Dir); err != nil {
		return played, errors.Join(failed, err)
	}
	if failed != nil {
		played.Run.Failed = cmp.Or(played.Run.Failed, failed.Error())
	}
	judge.Record(context.WithoutCancel(ctx), &played.Input)
	if failed == nil && r.Control != nil && played.Report.Verdict == checker.Invalid {
		err = p.playControl(ctx, r, &played.Run)
	}
	if r.DropValid && played.Report.Verdict == checker.Valid {
		played.Dir = ""
		return played, os.RemoveAll(r.Dir)
	}
	return played, errors.Join(err, reports.WriteDir(r.Dir, played.Input))
}

// record makes the run.
func (p Player) record(ctx context.Context, r Run) error {
	file, err := createLog(r.Dir)
	if err != nil {
		return err
	}
	defer file.Close()
	r.Log, r.Program = p.Log(file), p.Program
	if r.Backend, r.BackendName, err = p.Open(ctx, r.Log, r.Store); err != nil {
		return err
	}
	return r.Make(ctx, r.Config)
}

// controlDir is the run directory of the control, in that of the run.
const controlDir = "control"

// playControl has the control lock make a run again, and notes in the run's record what came of it.
func (p Player) playControl(ctx context.Context, r Run, run *history.Run) error {
	dir := r.Dir
	r.Dir = filepath.Join(dir, controlDir)
	c, err := r.Control(*run, r.Dir)
	if err != nil || c.Lock == "" {
		return err
	}
	if r.Notice == nil {
		r.Notice = func(what string) { fmt.Fprintln(p.Out, what) }
	}
	r.Notice(fmt.Sprintf("%s is invalid: the same plan again with %s", r.Title, c.Lock))
	r.Command, r.Make = c.Command, c.Make
	if err := p.record(ctx, r); err != nil {
		return fmt.Errorf("run the control: %w", err)
	}
	in, err := judge.Run(ctx, r.Dir)
	if err != nil {
		return err
	}
	run.Control = &history.Control{Lock: c.Lock, Dir: controlDir, Verdict: string(in.Report.Verdict)}
	return history.Dir(dir).WriteRun(*run)
}

// Pooled is the same player for many runs on servers of some stores, which log into one file and go on to the next run if they are
// as good as new. What it returns stops them. Those that others started are no pool.
func (p Player) Pooled(ctx context.Context, log io.Writer, stores ...string) (Player, func() error, error) {
	var ends []func() error
	backends, names := map[string]topologies.Backend{}, map[string]string{}
	for _, store := range stores {
		if backends[store] != nil {
			continue
		}
		backend, name, err := p.Open(ctx, p.Log(log), store)
		if err != nil {
			return p, nil, err
		}
		if name != history.Attached {
			var end func() error
			backend, end = harness.Pool(backend)
			ends = append(ends, end)
		}
		backends[store], names[store] = backend, name
	}
	p.Open = func(_ context.Context, _ *slog.Logger, store string) (topologies.Backend, string, error) {
		return backends[store], names[store], nil
	}
	return p, func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}, nil
}

// createLog makes the harness's own log, as JSON lines.
func createLog(dir string) (*os.File, error) {
	logs := filepath.Join(dir, history.LogsDir)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, fmt.Errorf("make log: %w", err)
	}
	return os.Create(filepath.Join(logs, "lockchaos.log"))
}

// removeEmpty removes a run directory in which nothing was recorded; of one that was there before, only what was put
// into it.
func removeEmpty(dir string, before bool) error {
	err := os.RemoveAll(filepath.Join(dir, history.LogsDir))
	if err == nil && !before {
		err = os.Remove(dir)
	}
	return err
}

// Batch does jobs, several at a time, in their order as far as they begin one by one. The first error ends it: no further
// job begins, and the context of those under way ends. It waits for all. An error that only says that the context ended hides
// no other; that ctx ended is none.
func Batch[J any](ctx context.Context, workers int, jobs []J, do func(context.Context, J) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	errs := make([]error, len(jobs))
	for i, job := range jobs {
		group.Go(func() error {
			if ctx.Err() == nil {
				errs[i] = do(ctx, job)
			}
			return errs[i]
		})
	}
	first := group.Wait()
	for _, err := range errs {
		if err != nil && errors.Is(first, context.Canceled) {
			first = err
		}
	}
	return first
}
