//go:build unix

// Package scratch makes folders that do not outlive the process that made them.
package scratch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// script removes the folder. It waits for the end of its input, which comes when the harness dies in
// whatever way; the processes that work in there end at that moment as well, see package spawn.
const script = `
trap '' INT TERM HUP QUIT
read -r _
tries=0
until rm -rf -- "$1" || [ "$tries" -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
[ ! -e "$1" ]
`

// A Folder is empty when it is made, and is gone when this process is. Close it.
type Folder struct {
	// Path is absolute and without links, so that it is what the kernel says
	// of a process that works there.
	Path string

	reaper *exec.Cmd
	input  io.WriteCloser
	held   *os.File // the folder, locked as long as we live
}

// prefix begins the names of all folders.
const prefix = "lockchaos-"

// Make makes a folder for temporary files; kind is a part of its name. What is
// left of those of the same kind whose makers are dead is removed before.
func Make(kind string) (*Folder, error) { return makeIn(os.TempDir(), kind) }

// fast is where a file is memory.
const fast = "/dev/shm"

// MakeFast is [Make] for programs that wait for the disk at each write: the folder is in
// memory where there is a /dev/shm, unless TMPDIR says where it is to be.
func MakeFast(kind string) (*Folder, error) { return makeIn(Fast(), kind) }

// Fast is where [MakeFast] makes folders.
func Fast() string {
	if info, err := os.Stat(fast); err == nil && info.IsDir() && os.Getenv("TMPDIR") == "" {
		return fast
	}
	return os.TempDir()
}

func makeIn(parent, kind string) (*Folder, error) {
	parent, err := filepath.Abs(parent)
	if err == nil {
		parent, err = filepath.EvalSymlinks(parent)
	}
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	// Those that no process holds, of which the reaper was killed as well, as when a whole container is.
	left, _ := filepath.Glob(filepath.Join(parent, prefix+kind+"-*")) // the pattern is good
	for _, path := range left {
		Unheld(path, func() { _ = os.RemoveAll(path) }) // one that another process uses stays
	}
	for {
		path := filepath.Join(parent, prefix+kind+"-"+rand.Text()[:12])
		f, err := Hold(path, script, path)
		if !errors.Is(err, errSwept) {
			return f, err
		}
	}
}

// errSwept says that another process' sweep took a new folder for one that no
// process holds: it came before the lock of this one.
var errSwept = errors.New("it was swept away")

// Hold makes a folder under a path that is not in use, and holds it for as long as we live. The shell
// script is started before, with its arguments, and outlives us for a moment: its input ends when we do.
func Hold(path, script string, args ...string) (f *Folder, err error) {
	f = &Folder{Path: path}
	// A process that is killed in between leaves no folder.
	if err = f.startReaper(script, args...); err != nil {
		return nil, err
	}
	err = os.Mkdir(path, 0o700)
	if err == nil {
		if err = f.lock(); errors.Is(err, fs.ErrNotExist) {
			err = errSwept
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a folder: %w", err), f.Close())
	}
	return f, nil
}

// lock protects the folder from all sweeps. It fails with [fs.ErrNotExist] if one
// came before.
func (f *Folder) lock() (err error) {
	if f.held, err = os.Open(f.Path); err != nil {
		return err
	}
	if err := syscall.Flock(int(f.held.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	_, err = os.Stat(f.Path)
	return err
}

// Unheld calls do if there is a folder and no process holds it, which none can meanwhile.
func Unheld(path string, do func()) {
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	defer dir.Close()
	if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		do()
	}
}

// Tell has the script read a line.
func (f *Folder) Tell(line string) error {
	if _, err := io.WriteString(f.input, line+"\n"); err != nil {
		return fmt.Errorf("tell reaper: %w", err)
	}
	return nil
}

// Close ends the input of the script and waits for it. That of [Make] removes the folder.
func (f *Folder) Close() error {
	if err := f.input.Close(); err != nil {
		return fmt.Errorf("remove %s: %w", f.Path, err)
	}
	err := f.reaper.Wait()
	if f.held != nil {
		err = errors.Join(err, f.held.Close())
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", f.Path, err)
	}
	return nil
}

// Leave ends the input of the script and does not wait.
func (f *Folder) Leave() error {
	return errors.Join(f.input.Close(), f.held.Close(), f.reaper.Process.Release())
}

// startReaper starts a shell script: setsid(2) detaches it from our terminal.
func (f *Folder) startReaper(script string, args ...string) (err error) {
	cmd := exec.CommandContext(context.Background(), "/bin/sh", append([]string{"-c", script, "lockchaos-reaper"}, args...)...)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	f.reaper = cmd
	if f.input, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start reaper: %w", err)
	}
	return nil
}
