// Package etcdserver runs an etcd of one member on loopback, for the tests of its
// adapter and for benchmarks.
package etcdserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/spawn"
)

// BinaryVariable is the environment variable that names the etcd to run; else it
// is looked for in the PATH.
const BinaryVariable = "LOCKCHAOS_ETCD"

const (
	readyTimeout = time.Minute
	askEvery     = 20 * time.Millisecond
	// fast is where a file is memory, so that etcd waits for no disk.
	fast = "/dev/shm"
)

// Find returns the path of the etcd that [Start] would run.
func Find() (string, error) {
	return exec.LookPath(cmp.Or(os.Getenv(BinaryVariable), "etcd"))
}

// Server is an etcd that runs. The caller that started it closes it.
type Server struct {
	endpoint string
	dir      string
	kill     func()
	exited   chan struct{}
	output   bytes.Buffer // to be read after exited was closed
}

// Start starts an etcd with nothing in it, and waits until it is ready. Its data
// is in memory where there is a /dev/shm, else in the folder for temporary files.
func Start(ctx context.Context) (*Server, error) {
	binary, err := Find()
	if err != nil {
		return nil, err
	}
	parent := os.TempDir()
	if info, err := os.Stat(fast); err == nil && info.IsDir() {
		parent = fast
	}
	dir, err := os.MkdirTemp(parent, "lockchaos-etcd-")
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	s := &Server{dir: dir, exited: make(chan struct{})}
	if err := s.start(ctx, binary); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), s.Close())
	}
	return s, nil
}

// starting is held from the choice of addresses until etcd listens there.
var starting sync.Mutex //nolint:gochecknoglobals // the addresses are the process's

func (s *Server) start(ctx context.Context, binary string) error {
	starting.Lock()
	defer starting.Unlock()
	client, peer, err := freeAddresses(ctx)
	if err != nil {
		return err
	}
	s.endpoint = client
	args := []string{
		"--name", "bench", "--data-dir", filepath.Join(s.dir, "data"), "--logger", "zap",
		"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		"--initial-cluster", "bench=http://" + peer,
	}
	cmd := exec.Command(binary, args...) //nolint:noctx // it outlives the context; Close ends it
	cmd.Stdout, cmd.Stderr = &s.output, &s.output
	if err := spawn.Start(cmd); err != nil {
		return err
	}
	s.kill = func() { _ = cmd.Process.Kill() }
	go func() {
		_ = cmd.Wait()
		close(s.exited)
	}()
	return s.awaitReady(ctx)
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.endpoint+"/health", http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("it ended: %s", bytes.TrimSpace(s.output.Bytes()))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// freeAddresses are two on loopback at which no program listens. Between now and when
// etcd does, any program may take a port of 127.0.0.1, if only to dial from. So they
// are of a host that is this process's own, where a system has more than one.
func freeAddresses(ctx context.Context) (client, peer string, err error) {
	var config net.ListenConfig
	pid := os.Getpid()
	host := netip.AddrFrom4([4]byte{127, 253, byte(pid >> 8), byte(pid)}).String()
	one, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		host = "127.0.0.1"
		one, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return "", "", err
	}
	two, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", "", errors.Join(err, one.Close())
	}
	return one.Addr().String(), two.Addr().String(), errors.Join(one.Close(), two.Close())
}

// Endpoint is where clients connect to: HOST:PORT.
func (s *Server) Endpoint() string { return s.endpoint }

// Close ends the etcd, waits for it, and removes its files.
func (s *Server) Close() error {
	if s.kill != nil {
		s.kill()
		<-s.exited
	}
	return os.RemoveAll(s.dir)
}
