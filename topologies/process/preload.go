package process

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/shim"
)

//go:embed shim/address.c
var addressSource []byte

var writeAddress = shim.Library("address", addressSource) //nolint:gochecknoglobals // it is compiled once

// preloads are the libraries that a server is preloaded with, and what they are told.
type preloads struct {
	libraries []string
	settings  []string
}

func (p *preloads) add(library string, settings ...string) {
	p.libraries = append(p.libraries, library)
	p.settings = append(p.settings, settings...)
}

// environment is what a server is started with; nil: as we were.
func (p *preloads) environment() []string {
	if len(p.libraries) == 0 {
		return nil
	}
	return append(append(os.Environ(), "LD_PRELOAD="+strings.Join(p.libraries, ":")), p.settings...)
}

// rebind has every server listen at an address of its own when it asks for the one that it
// announces, and dial from there.
func (g *resources) rebind() error {
	library, err := writeAddress(g.folder.Path)
	if err != nil {
		return err
	}
	for _, s := range g.servers {
		s.child.preloads.add(library, "LOCKCHAOS_ANNOUNCED="+s.At.Announced.Addr().String(), "LOCKCHAOS_LISTENING="+s.At.Listen.Addr().String())
	}
	return nil
}

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
	files, _ := filepath.Glob(filepath.Join(h.server.Dir, "appendonlydir", "*.incr.aof")) // the pattern is good
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
