package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/shim"
)

// A serverShim interferes with what one server sees of its clock, and of its disk.
type serverShim struct {
	*shim.Shim
	server *server
}

// Stalled is how many syncs wait. Those of a process that is gone do not.
func (h *serverShim) Stalled() int {
	if pid, _ := h.server.child.pid(); pid == 0 {
		return 0
	}
	return h.Waiting()
}

// CutBack removes from the append-only files what was not synced. The other
// files of Redis are replaced as a whole, after they were synced.
func (h *serverShim) CutBack(context.Context) (lost int64, err error) {
	if pid, _ := h.server.child.pid(); pid != 0 {
		return 0, fmt.Errorf("cut back %s: it still runs", h.server.Name())
	}
	if err := h.Unknown(); err != nil {
		return 0, fmt.Errorf("cut back: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(h.server.Dir, "appendonlydir", "*.incr.aof"))
	if err != nil {
		return 0, fmt.Errorf("cut back %s: %w", h.server.Name(), err)
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("cut back %s: it has no append-only file", h.server.Name())
	}
	for _, file := range files {
		keep, size, err := h.Synced(file)
		if err != nil {
			return 0, fmt.Errorf("cut back %s: %w", h.server.Name(), err)
		}
		if keep >= size {
			continue
		}
		if err := os.Truncate(file, keep); err != nil {
			return 0, fmt.Errorf("cut back %s: %w", h.server.Name(), err)
		}
		lost += size - keep
	}
	return lost, nil
}

// Instrumented returns a backend that preloads its servers, so that their
// clocks and disks can be interfered with.
func (b Backend) Instrumented() topologies.Backend {
	b.Shim = true
	return b
}

var _ topologies.Instrumenter = Backend{}

// shims gives every server its own.
func (g *resources) shims() error {
	library, err := shim.Write(g.folder.Path)
	if err != nil {
		return err
	}
	for _, s := range g.servers {
		h, err := shim.New(s.Name(), filepath.Join(s.Dir, "shim"))
		if err != nil {
			return err
		}
		s.shim, s.child.started = &serverShim{h, s}, h.Started
		s.child.preloads.add(library, h.Setting())
	}
	return nil
}

// clock is a server's clock; nil for none.
func (g *resources) clock(name string) topologies.Clock {
	if s := g.servers[name]; s != nil {
		return s.shim
	}
	return nil
}

// disk is a server's disk; nil for none.
func (g *resources) disk(name string) topologies.Disk {
	if s := g.servers[name]; s != nil {
		return s.shim
	}
	return nil
}

// closeShims must come once the servers are gone.
func (g *resources) closeShims() error {
	var errs []error
	for _, s := range g.servers {
		if s.shim != nil {
			errs = append(errs, s.shim.Close())
		}
	}
	return errors.Join(errs...)
}
