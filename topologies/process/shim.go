package process

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// FindCompiler looks for the C compiler that a [Backend] with Shim set needs.
// It fails with [topologies.ErrMissing] if there is none.
func FindCompiler() (path string, err error) {
	for _, name := range []string{"gcc", "clang", "cc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no C compiler, which faults of clocks and disks are made with, and the links of topology zookeeper "+
		"(install one with `make compiler` or `apt-get install gcc libc6-dev`)", topologies.ErrMissing)
}

//go:embed shim/shim.c
var shimSource []byte

// library is the shim, compiled once for the whole process: that takes longer
// than a boot.
var library = sync.OnceValues(func() ([]byte, error) { return compile(shimSource) }) //nolint:gochecknoglobals // see above

// compile makes a library that servers are preloaded with.
func compile(code []byte) (library []byte, err error) {
	compiler, err := FindCompiler()
	if err != nil {
		return nil, err
	}
	folder, err := scratch.Make("shim")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	source, made := filepath.Join(folder.Path, "shim.c"), filepath.Join(folder.Path, "shim.so")
	if err := os.WriteFile(source, code, 0o600); err != nil {
		return nil, fmt.Errorf("write shim: %w", err)
	}
	out, err := exec.CommandContext(context.Background(), compiler, "-O2", "-shared", "-fPIC", "-o", made, source, "-ldl").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("compile shim with %s: %w\n%s", compiler, err, out)
	}
	return os.ReadFile(made)
}

// shared is what a server with the shim and the harness both map: the C code
// has the same layout.
type shared struct {
	loaded  atomic.Int64
	version atomic.Int64
	offset  atomic.Int64
	since   atomic.Int64
	drift   atomic.Int64
	stalled atomic.Int64
	waiting atomic.Int64
	missed  atomic.Int64
	files   [240]struct{ inode, synced atomic.Int64 }
}

// A shim interferes with what one server sees of its clock, and of its disk.
type shim struct {
	server  *server
	library string
	file    string
	page    []byte
	*shared
}

// newShim prepares a server to be started with the library.
func newShim(s *server, library string) (*shim, error) {
	h := &shim{server: s, library: library, file: filepath.Join(s.dir, "shim")}
	f, err := os.Create(h.file)
	if err != nil {
		return nil, fmt.Errorf("make shim: %w", err)
	}
	defer f.Close()
	size := os.Getpagesize()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("make shim: %w", err)
	}
	if h.page, err = mapFile(f, size); err != nil {
		return nil, fmt.Errorf("map shim: %w", err)
	}
	h.shared = (*shared)(unsafe.Pointer(&h.page[0]))
	return h, nil
}

// started forgets what a process that is gone had begun.
func (h *shim) started() { h.waiting.Store(0) }

// close must come once the server is gone.
func (h *shim) close() error {
	h.shared = nil
	return unmap(h.page)
}

// Set changes the server's wall clock. See [topologies.Clock].
func (h *shim) Set(offset time.Duration, rate float64) error {
	if rate < 0 {
		return fmt.Errorf("change the clock of %s: a rate of %v would let it run backwards", h.server.name, rate)
	}
	if h.loaded.Load() == 0 {
		return fmt.Errorf("change the clock of %s: it runs without the shim; is it linked statically?", h.server.name)
	}
	h.version.Add(1)
	h.offset.Store(int64(offset))
	h.since.Store(time.Now().UnixNano())
	h.drift.Store(int64((rate - 1) * 1e9))
	h.version.Add(1)
	return nil
}

// Stall makes syncs wait. See [topologies.Disk].
func (h *shim) Stall() (mend func()) {
	h.stalled.Store(1)
	return func() { h.stalled.Store(0) }
}

// Stalled is how many syncs wait. Those of a process that is gone do not.
func (h *shim) Stalled() int {
	if pid, _ := h.server.pid(); pid == 0 {
		return 0
	}
	return int(h.waiting.Load())
}

// CutBack removes from the append-only files what was not synced. The other
// files of Redis are replaced as a whole, after they were synced.
func (h *shim) CutBack(context.Context) (lost int64, err error) {
	if pid, _ := h.server.pid(); pid != 0 {
		return 0, fmt.Errorf("cut back %s: it still runs", h.server.name)
	}
	if n := h.missed.Load(); n > 0 {
		return 0, fmt.Errorf("cut back %s: it has more than %d files that were synced, and nothing is known of %d syncs", h.server.name, len(h.files), n)
	}
	files, err := filepath.Glob(filepath.Join(h.server.dir, "appendonlydir", "*.incr.aof"))
	if err != nil {
		return 0, fmt.Errorf("cut back %s: %w", h.server.name, err)
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("cut back %s: it has no append-only file", h.server.name)
	}
	for _, file := range files {
		inode, size, err := look(file)
		if err != nil {
			return 0, fmt.Errorf("cut back %s: %w", h.server.name, err)
		}
		keep := h.synced(inode)
		if keep >= size {
			continue
		}
		if err := os.Truncate(file, keep); err != nil {
			return 0, fmt.Errorf("cut back %s: %w", h.server.name, err)
		}
		lost += size - keep
	}
	return lost, nil
}

// synced is how much of a file is on the disk. Two threads that synced it first,
// and at once, have noted it twice.
func (h *shim) synced(inode int64) (size int64) {
	for i := range h.files {
		if f := &h.files[i]; f.inode.Load() == inode {
			size = max(size, f.synced.Load())
		}
	}
	return size
}

// forget says that the server's files are gone.
func (h *shim) forget() {
	for i := range h.files {
		h.files[i].inode.Store(0)
		h.files[i].synced.Store(0)
	}
	h.missed.Store(0)
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
	compiled, err := library()
	if err != nil {
		return err
	}
	library := filepath.Join(g.folder.Path, "shim.so")
	if err := os.WriteFile(library, compiled, 0o700); err != nil { //nolint:gosec // it is a program
		return fmt.Errorf("write shim: %w", err)
	}
	for _, s := range g.servers {
		var err error
		if s.shim, err = newShim(s, library); err != nil {
			return err
		}
		s.preloads.add(library, "LOCKCHAOS_SHIM="+s.shim.file)
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
			errs = append(errs, s.shim.close())
		}
	}
	return errors.Join(errs...)
}
