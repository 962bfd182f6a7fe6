package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// poll is how often a condition is looked at while it is awaited.
const poll = 2 * time.Millisecond

// await calls ready until it is nil or the context ends; then it returns what
// ready said last, before that end got into its way.
func await(ctx context.Context, ready func() error) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	var last error
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
	}
}

// A server is one redis-server process, sentinels included. It is killed and
// started again under the same name and address.
type server struct {
	name          string
	path          string   // of the binary
	args          []string // without the binary
	dir           string
	logTo         string
	real, virtual netip.AddrPort
	observer      *redis.Client
	reaper        *reaper

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
	if err := theSpawner.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.cmd, s.gone = cmd, make(chan struct{})
	gone := s.gone
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(gone)
	}()
	return s.reaper.watch(cmd.Process.Pid)
}

// answers waits until the process answers a PING, or has ended.
func (s *server) answers(ctx context.Context) error {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-gone:
			cancel(errors.New("it ended"))
		case <-ctx.Done():
		}
	}()
	if err := await(ctx, func() error { return ping(ctx, s.real) }); err != nil {
		return fmt.Errorf("await %s: %w\n%s", s.name, err, s.lastWords())
	}
	return nil
}

// ping asks over a connection of its own: go-redis stops dialling for a second
// once as many dials have failed as its pool is large.
func ping(ctx context.Context, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply := make([]byte, len("+PONG"))
	if _, err := io.ReadFull(c, reply); err != nil {
		return err
	}
	if string(reply) != "+PONG" {
		return fmt.Errorf("it answers %q", reply)
	}
	return nil
}

// lastWords are the last lines of the server's log.
func (s *server) lastWords() string {
	log, err := os.ReadFile(s.logTo)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
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

func (s *server) signal(sig syscall.Signal) error {
	pid, _ := s.pid()
	if pid == 0 {
		return fmt.Errorf("signal %s: it does not run", s.name)
	}
	if err := syscall.Kill(-pid, sig); err != nil {
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
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
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
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return s.awaitState(ctx, func(state string) bool { return state == "T" })
}

// Resume lets a paused process go on.
func (s *server) Resume(ctx context.Context) error {
	if err := s.signal(syscall.SIGCONT); err != nil {
		return err
	}
	return s.awaitState(ctx, func(state string) bool { return state != "T" })
}

func (s *server) awaitState(ctx context.Context, want func(string) bool) error {
	pid, _ := s.pid()
	return await(ctx, func() error {
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

// newServer prepares a server without starting it.
func newServer(name, path, root string, at, virtual netip.AddrPort, r *reaper) (*server, error) {
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	return &server{
		name: name, path: path, dir: dir, logTo: filepath.Join(dir, "log"),
		real: at, virtual: virtual, reaper: r,
		observer: redis.NewClient(observerOptions(at)),
	}, nil
}
