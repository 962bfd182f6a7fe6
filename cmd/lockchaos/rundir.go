package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// runsDir is the folder of run directories by default.
const runsDir = "reports/runs"

// newRunDir makes a run directory, which must be new or empty. Without a name it
// is made of the time, what is run and the seed.
func newRunDir(chosen string, seed uint64, what ...string) (string, error) {
	if chosen != "" {
		return chosen, emptyDir(chosen)
	}
	parts := append(append([]string{time.Now().UTC().Format("20060102T150405Z")}, what...), strconv.FormatUint(seed, 10))
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
		return fmt.Errorf("look into --out: %w", err)
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
	in, err := readRecord(dir)
	if err != nil {
		return in, err
	}
	budget, cancel := context.WithTimeout(ctx, checkBudget)
	defer cancel()
	in.Report = harness.Judge(budget, in.Run, in.History)
	return in, nil
}

// readRecord reads what a run left, without its results.
func readRecord(dir string) (reports.Input, error) {
	var in reports.Input
	var err error
	if in.Run, err = history.Dir(dir).Run(); err != nil {
		return in, err
	}
	in.History, err = history.Dir(dir).History()
	return in, err
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
