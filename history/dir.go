package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// The files of a run directory that a run itself writes: what was run, what was
// observed, and the folder of the logs.
const (
	RunFile    = "run.json"
	EventsFile = "history.jsonl"
	LogsDir    = "logs"
)

// A Dir is the path of a run directory.
type Dir string

// Path is the path of something in the directory.
func (d Dir) Path(name ...string) string {
	return filepath.Join(append([]string{string(d)}, name...)...)
}

// Create makes the directory with its folder of logs, and the file of events, which
// the caller closes.
func (d Dir) Create() (*os.File, error) {
	if err := os.MkdirAll(d.Path(LogsDir), 0o755); err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	f, err := os.Create(d.Path(EventsFile))
	if err != nil {
		return nil, fmt.Errorf("make history: %w", err)
	}
	return f, nil
}

// WriteRun writes the record of the run, in place of one that is there.
func (d Dir) WriteRun(run Run) error {
	return WriteFile(d.Path(RunFile), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(run)
	})
}

// Exists reports whether the directory has the record of a run.
func (d Dir) Exists() bool {
	_, err := os.Stat(d.Path(RunFile))
	return err == nil
}

// Run reads the record of the run. See [ReadRun] for what it refuses.
func (d Dir) Run() (Run, error) { return ReadRunFile(d.Path(RunFile)) }

// ReadRunFile reads the record of a run from a file of any name.
func ReadRunFile(path string) (Run, error) { return Load(Open, path, ReadRun) }

// History reads the events.
func (d Dir) History() (*History, error) { return Load(Open, d.Path(EventsFile), ReadAll) }

// Load reads what is in a file that open opens, such as [Open]. Where an error is of what was read, that is returned as well.
func Load[T any](open func(path string) (*os.File, error), path string, read func(io.Reader) (T, error)) (what T, err error) {
	f, err := open(path)
	if err != nil {
		return what, err // which names the file
	}
	what, err = read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return what, err
}

// Open opens a file of a run directory to read it. It refuses what is no regular
// file, such as a pipe, without waiting for a writer.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// WriteFile writes a file of a run directory in one step, so that no reader sees half
// of it.
func WriteFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err == nil {
		b := bufio.NewWriter(tmp)
		err = errors.Join(write(b), b.Flush(), tmp.Chmod(0o644), tmp.Close())
		if err == nil {
			err = os.Rename(tmp.Name(), path)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
