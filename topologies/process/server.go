package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// A server is one process of a store's server program, sentinels included. It is killed and
// started again under the same name and address.
type server struct {
	name     string
	at       bootstrap.Address
	path     string   // of the binary
	args     []string // without the binary
	preloads preloads
	dir      string
	logTo    string
	alive    func(ctx context.Context) error // nil once it answers
	launched func(pid int) (ended func())    // told of each process when it was started, and when it has ended; nil: nothing is
	observer *redis.Client
	folder   *scratch.Folder // in which dir is
	shim     *serverShim     // nil without one

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

func (s *server) Name() string            { return s.name }
func (s *server) Observer() *redis.Client { return s.observer }
func (s *server) Log() string             { return s.logTo }

// launch starts the process without waiting for an answer.
func (s *server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := os.OpenFile(s.logTo, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	defer out.Close()
	cmd := exec.CommandContext(context.Background(), s.path, s.args...)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = out, out
	if s.shim != nil {
		s.shim.Started()
	}
	cmd.Env = s.preloads.environment()
	if err := spawn.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	ended := func() {}
	if s.launched != nil {
		ended = s.launched(cmd.Process.Pid)
	}
	s.cmd, s.gone = cmd, make(chan struct{})
	gone := s.gone
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		ended()
		close(gone)
	}()
	return s.folder.Watch(cmd.Process.Pid)
}

// answers waits until the process answers, or has ended.
func (s *server) answers(ctx context.Context) error {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	ctx, cancel := await.Unless(ctx, gone, errors.New("it ended"))
	defer cancel()
	if err := await.Until(ctx, func() error { return s.alive(ctx) }); err != nil {
		return fmt.Errorf("await %s: %w\n%s", s.name, err, bootstrap.TailLog(s.logTo))
	}
	return nil
}

// pid is the process to signal; 0 if it has ended.
func (s *server) pid() (int, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0, nil
	}
	select {
	case <-s.gone:
		return 0, s.gone
	default:
		return s.cmd.Process.Pid, s.gone
	}
}

func (s *server) signal(send func(group int) error) error {
	pid, _ := s.pid()
	if pid == 0 {
		return fmt.Errorf("signal %s: it does not run", s.name)
	}
	if err := send(pid); err != nil {
		return fmt.Errorf("signal %s: %w", s.name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and waits until it is gone. To kill one
// that is gone is no error.
func (s *server) Kill(ctx context.Context) error {
	pid, gone := s.pid()
	if pid == 0 {
		return nil
	}
	if err := spawn.Kill(pid); err != nil {
		return fmt.Errorf("kill %s: %w", s.name, err)
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill %s: %w", s.name, context.Cause(ctx))
	}
}

// Restart starts the process again and waits until it answers.
func (s *server) Restart(ctx context.Context) error {
	if pid, _ := s.pid(); pid != 0 {
		return fmt.Errorf("restart %s: it still runs", s.name)
	}
	if err := s.launch(); err != nil {
		return err
	}
	return s.answers(ctx)
}

// Pause stops the process with SIGSTOP and waits until the kernel says so.
func (s *server) Pause(ctx context.Context) error {
	if err := s.signal(spawn.Stop); err != nil {
		return err
	}
	return s.awaitState(ctx, func(state string) bool { return state == "T" })
}

// Resume lets a paused process go on.
func (s *server) Resume(ctx context.Context) error {
	if err := s.signal(spawn.Continue); err != nil {
		return err
	}
	return s.awaitState(ctx, func(state string) bool { return state != "T" })
}

func (s *server) awaitState(ctx context.Context, want func(string) bool) error {
	pid, _ := s.pid()
	return await.Until(ctx, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return fmt.Errorf("look at %s: %w", s.name, err)
		}
		// The state follows the command's name, which is in brackets.
		_, after, _ := strings.Cut(string(stat), ") ")
		if state, _, _ := strings.Cut(after, " "); !want(state) {
			return fmt.Errorf("look at %s: its state is still %s", s.name, state)
		}
		return nil
	})
}

// Wipe removes the data of a server that does not run.
func (s *server) Wipe(context.Context) error {
	if pid, _ := s.pid(); pid != 0 {
		return fmt.Errorf("wipe %s: it still runs", s.name)
	}
	if err := bootstrap.Wipe(s.dir); err != nil {
		return fmt.Errorf("wipe %s: %w", s.name, err)
	}
	if s.shim != nil {
		s.shim.Forget()
	}
	return nil
}

// newServer prepares a server in a folder of its own without starting it.
func newServer(name string, binary Binary, store bootstrap.Store, at bootstrap.Address, c bootstrap.Config, f *scratch.Folder) (*server, error) {
	dir := filepath.Join(f.Path, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	if err := c.Write(dir); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	o := bootstrap.ObserverOptions(at.Listen.String())
	if _, other := store.(bootstrap.Consensus); other {
		o.Dialer = bootstrap.NoRedis(name)
	}
	// A loopback address refuses at once, so that a dial that takes long says
	// nothing of the server, but that this process is slow.
	o.DialTimeout = 5 * time.Second
	return &server{
		name: name, at: at, path: binary.Path, args: slices.Concat(binary.Args, c.Args), dir: dir, logTo: filepath.Join(dir, "log"),
		alive:    func(ctx context.Context) error { return store.Alive(ctx, at) },
		observer: redis.NewClient(o), folder: f,
	}, nil
}
