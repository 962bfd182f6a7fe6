package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/lockchaos/lockchaos/internal/spawn"
)

// A Pool has workers do jobs, each of which is a process. Make it with [NewPool].
type Pool struct {
	path string
	args []string
	free chan *worker

	mu  sync.Mutex
	all []*worker
}

// NewPool makes a pool of so many workers, each of which is the program at path with
// these arguments and calls [Serve] on its standard input and output. They are started
// when they are needed.
func NewPool(workers int, path string, args ...string) *Pool {
	p := &Pool{path: path, args: args, free: make(chan *worker, workers)}
	for range workers {
		w := &worker{}
		p.all = append(p.all, w)
		p.free <- w
	}
	return p
}

// A worker is a process, or none that was started.
type worker struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	jobs    *json.Encoder
	results *json.Decoder
	said    *beginning
}

// A beginning is that of what was written, which says what happened. It is read once the process has ended.
type beginning struct{ bytes.Buffer }

const beginningLimit = 64 << 10

// Write drops what comes after the beginning.
func (t *beginning) Write(b []byte) (int, error) {
	t.Buffer.Write(b[:min(len(b), beginningLimit-t.Len())])
	return len(b), nil
}

// Do has a worker do a job. An error is of the worker, which hangs or has crashed;
// another one takes its place.
func (p *Pool) Do(ctx context.Context, j Job) (Result, error) {
	var w *worker
	select {
	case w = <-p.free:
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	defer func() { p.free <- w }()
	if w.cmd == nil {
		if err := p.start(w); err != nil {
			return Result{}, err
		}
	}
	r, err := w.do(ctx, j)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		err = errors.Join(fmt.Errorf("simulate lock %s, seed %d: %w", j.Lock, j.Seed, err), w.end())
		return r, err
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

func (p *Pool) start(w *worker) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.path, p.args...) //nolint:gosec,noctx // it is this program, and ends with its input
	// With one processor goroutines take turns in the same order each time, memory is collected between runs (and in one
	// that needs very much), since that interrupts goroutines, and math/rand takes a seed.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=1GiB", "GODEBUG=randseednop=0")
	w.said = &beginning{}
	cmd.Stderr = w.said
	in, err := cmd.StdinPipe()
	out, failed := cmd.StdoutPipe()
	if err = errors.Join(err, failed); err == nil {
		err = spawn.Start(cmd)
	}
	if err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	w.cmd, w.in, w.jobs, w.results = cmd, in, json.NewEncoder(in), json.NewDecoder(out)
	return nil
}

// do gives the worker a job. When the context ends, the worker is killed.
func (w *worker) do(ctx context.Context, j Job) (r Result, err error) {
	process := w.cmd.Process
	stop := context.AfterFunc(ctx, func() { _ = process.Kill() })
	defer stop()
	if err = w.jobs.Encode(j); err == nil {
		err = w.results.Decode(&r)
	}
	if err != nil && ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	return r, err
}

// end ends the process, and returns what it said if that was an error.
func (w *worker) end() error {
	if w.cmd == nil {
		return nil
	}
	_ = w.in.Close()
	err := w.cmd.Wait()
	w.cmd = nil
	if err == nil || w.said.Len() == 0 {
		return nil
	}
	return errors.New(w.said.String())
}

// Close ends the workers. No job may be under way.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.all {
		_ = w.end() // it has no job that it could have failed
	}
}
