// Package shim is a library that a process is preloaded with, which then sees another wall clock than its
// machine has, and of which it is known how much of its files is on the disk.
package shim

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// FindCompiler looks for the C compiler that [Library] needs.
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

// Usable is why no process of this machine can be preloaded; nil if it can. It wraps [topologies.ErrMissing].
func Usable() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w: processes are preloaded on Linux alone", topologies.ErrMissing)
	}
	_, err := FindCompiler()
	return err
}

//go:embed source/shim.c
var source []byte

// Write leaves the library in a folder, under a name of its own.
var Write = Library("shim", source) //nolint:gochecknoglobals // it is compiled once

// Library leaves one of that name in a folder. It is compiled once for the whole process: that takes longer than a boot.
func Library(name string, source []byte) (write func(folder string) (path string, err error)) {
	compiled := sync.OnceValues(func() ([]byte, error) { return compile(source) })
	return func(folder string) (path string, err error) {
		library, err := compiled()
		if err != nil {
			return "", err
		}
		path = filepath.Join(folder, name+".so")
		if err := os.WriteFile(path, library, 0o700); err != nil { //nolint:gosec // it is a program
			return "", fmt.Errorf("write %s: %w", name, err)
		}
		return path, nil
	}
}

// compile makes a library that processes are preloaded with.
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

// shared is what the processes with the library and this one both map: the C code
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
	reads   atomic.Int64
	files   [240]struct{ inode, synced atomic.Int64 }
}

// A Shim interferes with what one process sees of its clock, and of its disk; or several that have
// one clock. [New] makes it, and its maker closes it once the processes are gone.
type Shim struct {
	name string
	file string
	page []byte
	*shared
}

// New prepares the processes of a name, which share a file.
func New(name, file string) (*Shim, error) {
	h := &Shim{name: name, file: file}
	f, err := os.Create(file)
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

// Setting is what a process is told of the file, as NAME=VALUE.
func (h *Shim) Setting() string { return "LOCKCHAOS_SHIM=" + h.file }

// Close unmaps the file.
func (h *Shim) Close() error {
	h.shared = nil
	return unmap(h.page)
}

// Started forgets what a process that is gone had begun.
func (h *Shim) Started() { h.waiting.Store(0) }

// Set changes the wall clock. See [topologies.Clock].
func (h *Shim) Set(offset time.Duration, rate float64) error {
	if rate < 0 {
		return fmt.Errorf("change the clock of %s: a rate of %v would let it run backwards", h.name, rate)
	}
	if h.loaded.Load() == 0 {
		return fmt.Errorf("change the clock of %s: it runs without the shim; is it linked statically?", h.name)
	}
	h.version.Add(1)
	h.offset.Store(int64(offset))
	h.since.Store(time.Now().UnixNano())
	h.drift.Store(int64((rate - 1) * 1e9))
	h.version.Add(1)
	return nil
}

// Stall makes syncs wait. See [topologies.Disk].
func (h *Shim) Stall() (mend func()) {
	h.stalled.Store(1)
	return func() { h.stalled.Store(0) }
}

// Waiting is how many syncs wait, those of a process that is gone included.
func (h *Shim) Waiting() int { return int(h.waiting.Load()) }

// Reads is how often the wall clock was read so far.
func (h *Shim) Reads() int64 { return h.reads.Load() }

// Unknown is why it is not known of all files how much of them was synced; nil: it is.
func (h *Shim) Unknown() error {
	if n := h.missed.Load(); n > 0 {
		return fmt.Errorf("%s has more than %d files that were synced, and nothing is known of %d syncs", h.name, len(h.files), n)
	}
	return nil
}

// Synced is how much of a file is on the disk, and its size. Two threads that synced it first,
// and at once, have noted it twice.
func (h *Shim) Synced(file string) (kept, size int64, err error) {
	inode, size, err := look(file)
	for i := range h.files {
		if f := &h.files[i]; f.inode.Load() == inode {
			kept = max(kept, f.synced.Load())
		}
	}
	return kept, size, err
}

// Forget says that the files are gone.
func (h *Shim) Forget() {
	for i := range h.files {
		h.files[i].inode.Store(0)
		h.files[i].synced.Store(0)
	}
	h.missed.Store(0)
}
