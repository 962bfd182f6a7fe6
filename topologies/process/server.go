package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// A server is a process of a store's server program, sentinels included.
type server struct {
	*bootstrap.Host

	child *child
	shim  *serverShim // nil without one
}

// Wipe removes the data of a server that does not run.
func (s *server) Wipe(ctx context.Context) error {
	err := s.Host.Wipe(ctx)
	if err == nil && s.shim != nil {
		s.shim.Forget()
	}
	return err
}

// A child is the process of a server.
type child struct {
	path     string   // of the binary
	args     []string // without the binary
	preloads preloads
	dir, log string
	started  func()                       // before a process is
	launched func(pid int) (ended func()) // told of each process when it was started, and when it has ended

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

// Start starts the process.
func (c *child) Start(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(context.Background(), c.path, c.args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = out, out
	c.started()
	cmd.Env = c.preloads.environment()
	if err := spawn.Start(cmd); err != nil {
		return err
	}
	ended, gone := c.launched(cmd.Process.Pid), make(chan struct{})
	c.cmd, c.gone = cmd, gone
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		ended()
		close(gone)
	}()
	return nil
}

// pid is the process to signal; 0 if it has ended.
func (c *child) pid() (int, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return 0, nil
	}
	select {
	case <-c.gone:
		return 0, c.gone
	default:
		return c.cmd.Process.Pid, c.gone
	}
}

// Running reports whether it has not ended.
func (c *child) Running(context.Context) (bool, error) {
	pid, _ := c.pid()
	return pid != 0, nil
}

// Ended waits until it has.
func (c *child) Ended(ctx context.Context) error {
	pid, gone := c.pid()
	if pid == 0 {
		return nil
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Kill kills its group.
func (c *child) Kill(context.Context) error {
	if pid, _ := c.pid(); pid != 0 {
		return spawn.Kill(pid)
	}
	return nil
}

// Pause sends SIGSTOP and waits until the kernel says that it stands still.
func (c *child) Pause(ctx context.Context) error { return c.running(ctx, spawn.Pause) }

// Resume sends SIGCONT.
func (c *child) Resume(ctx context.Context) error { return c.running(ctx, spawn.Resume) }

// running does something to the process, which must not have ended.
func (c *child) running(ctx context.Context, do func(ctx context.Context, group int) error) error {
	pid, _ := c.pid()
	if pid == 0 {
		return errors.New("it does not run")
	}
	return do(ctx, pid)
}

// dialTimeout is that of observers. A loopback address refuses at once, so that a dial that takes long says
// nothing of the server, but that this process is slow.
const dialTimeout = 5 * time.Second

// newServer prepares a server in a folder of its own without starting it.
func newServer(name string, binary Binary, store bootstrap.Store, at bootstrap.Address, c bootstrap.Config, f *scratch.Folder) (*server, error) {
	s := &server{child: &child{
		path: binary.Path, args: slices.Concat(binary.Args, c.Args), started: func() {}, launched: func(int) func() { return func() {} },
	}}
	var err error
	if s.Host, err = bootstrap.NewHost(store, name, at, f.Path, s.child, dialTimeout); err != nil {
		return nil, err
	}
	s.child.dir, s.child.log = s.Dir, s.Log()
	if err := c.Write(s.Dir); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	return s, nil
}
