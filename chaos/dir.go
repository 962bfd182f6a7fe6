package chaos

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockchaos/lockchaos/internal/spawn"
)

// ReportsDir is the folder, beside the test, in which the runs of tests that failed
// stay. Git ignores it. Each run has a folder with the name of its test; those of
// the test before are removed when it runs again.
const ReportsDir = "lockchaos-reports"

// artifacts reports whether go test keeps what tests leave (-artifacts).
func artifacts() bool {
	f := flag.Lookup("test.artifacts")
	return f != nil && f.Value.String() == "true"
}

// newDir makes the folder of a run of the test with that name.
func newDir(t *testing.T, name string) (string, error) {
	t.Helper()
	if artifacts() {
		return os.MkdirTemp(t.ArtifactDir(), fileName(name)+"-") //nolint:usetesting // go test keeps it
	}
	parent, err := filepath.Abs(ReportsDir)
	if err != nil {
		return "", fmt.Errorf("make a folder for the report: %w", err)
	}
	dirs.Lock()
	defer dirs.Unlock()
	err = os.MkdirAll(parent, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(parent, ignore), []byte("*\n"), 0o644)
	}
	if err != nil { // the folder of the test may be one that can't be written to
		return os.MkdirTemp("", "lockchaos-report-") //nolint:usetesting // it stays if the test fails
	}
	dir := filepath.Join(parent, fileName(name))
	left, _ := os.ReadDir(parent) // it is there
	for _, e := range left {
		number, ok := strings.CutPrefix(e.Name(), fileName(name)+".")
		number, _, _ = strings.Cut(number, "-")
		if pid, err := strconv.Atoi(number); ok && err == nil && spawn.Gone(pid) { // the process that made it
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return "", fmt.Errorf("remove the report of an earlier test: %w", err)
			}
		}
	}
	for n := 1; ; n++ {
		numbered := fmt.Sprintf("%s.%d-%d", dir, os.Getpid(), n)
		if err := os.Mkdir(numbered, 0o755); !errors.Is(err, os.ErrExist) {
			return numbered, err
		}
	}
}

// ignore is the file that has Git ignore the folder of reports.
const ignore = ".gitignore"

// dirs is held while folders are made and removed.
var dirs sync.Mutex //nolint:gochecknoglobals // the folder is one for the whole process

// fileName is a test's name as that of a file.
func fileName(test string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '-'
		}
		return r
	}, test)
}

// keep removes the folder of a run of a test that passed.
func keep(t *testing.T, dir string) {
	t.Helper()
	if dir == "" || artifacts() || t.Failed() {
		return
	}
	dirs.Lock()
	defer dirs.Unlock()
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	parent := filepath.Dir(dir)
	if left, err := os.ReadDir(parent); err == nil && filepath.Base(parent) == ReportsDir && len(left) == 1 && left[0].Name() == ignore {
		_ = os.RemoveAll(parent) // else it is there for the next test
	}
}
