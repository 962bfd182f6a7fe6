package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/topologies"
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

// player makes runs on servers that flags name.
func (a *app) player(s *serverFlags) campaign.Player {
	return campaign.Player{
		Program: version(), Log: a.log, Out: a.stderr,
		Open: func(ctx context.Context, log *slog.Logger, store string) (topologies.Backend, string, error) {
			return a.openServers(ctx, s, log, store)
		},
	}
}
