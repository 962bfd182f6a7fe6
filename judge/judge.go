// Package judge judges what was recorded: runs of lockchaos in their directories, and histories of any other program.
package judge

import (
	"context"
	"errors"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// Budget bounds how long the judging of one run may take.
const Budget = time.Minute

// Record judges what a run left.
func Record(ctx context.Context, in *reports.Input) {
	ctx, cancel := context.WithTimeout(ctx, Budget)
	defer cancel()
	in.Report = harness.Judge(ctx, in.Run, in.History)
}

// Read judges the run in a directory, and writes nothing.
func Read(ctx context.Context, dir string) (reports.Input, error) {
	in, err := reports.ReadRecord(dir)
	if err == nil {
		Record(ctx, &in)
	}
	return in, err
}

// Write writes the reports of a run that was judged into its directory; not if the user ended that.
func Write(ctx context.Context, dir string, in reports.Input) error {
	if cause := context.Cause(ctx); cause != nil && !errors.As(cause, new(easeError)) {
		return cause
	}
	return reports.WriteDir(dir, in)
}

// Run judges the run in a directory, and writes its reports there.
func Run(ctx context.Context, dir string) (reports.Input, error) {
	in, err := Read(ctx, dir)
	if err == nil {
		err = Write(ctx, dir, in)
	}
	return in, err
}

// Amend changes the record of a run, judges it again and writes its reports.
func Amend(ctx context.Context, dir string, change func(*history.Run) error) error {
	run, err := history.Dir(dir).Run()
	if err == nil {
		err = change(&run)
	}
	if err == nil {
		err = history.Dir(dir).WriteRun(run)
	}
	if err == nil {
		_, err = Run(ctx, dir)
	}
	return err
}
