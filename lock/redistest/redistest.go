// Package redistest runs Redis servers for the tests of locks, and of what uses them.
package redistest

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Required is the environment variable that makes a missing redis-server a
// failure instead of a skip.
const Required = "LOCKCHAOS_TEST_REQUIRE"

// Server is a redis-server behind a Unix socket, without persistence.
type Server struct {
	args    []string
	process *process
}

// Start starts a server for the length of the test.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a real server; -short leaves them out")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv(Required) != "" {
			tb.Fatalf("%s is set, but: %v", Required, err)
		}
		tb.Skipf("needs redis-server: %v", err)
	}
	dir, err := os.MkdirTemp("", "lc") //nolint:usetesting // a socket's path has at most 108 bytes
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{args: args}
	if s.process, err = launch(dir, args); err != nil {
		_ = os.RemoveAll(dir)
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.process.kill()
		_ = os.RemoveAll(dir)
	})
	return s
}

// Start starts the server again after Kill, with nothing in it.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	p, err := launch(s.process.dir, s.args)
	if err != nil {
		tb.Fatal(err)
	}
	s.process = p
}

// Kill ends the server and waits until it is gone.
func (s *Server) Kill() { s.process.kill() }

// Pause stops the server until resume is called, at the latest at the end of the
// test.
func (s *Server) Pause(tb testing.TB) (resume func()) {
	tb.Helper()
	pid := s.process.pid
	if err := stop(pid); err != nil {
		tb.Fatal(err)
	}
	resume = sync.OnceFunc(func() { _ = goOn(pid) })
	tb.Cleanup(resume)
	return resume
}

// Client returns a client with go-redis' defaults, but for what change says. It heeds the deadlines of contexts.
func (s *Server) Client(tb testing.TB, change func(*redis.Options)) *redis.Client {
	tb.Helper()
	o := &redis.Options{Network: "unix", Addr: s.process.socket, ContextTimeoutEnabled: true}
	if change != nil {
		change(o)
	}
	rdb := redis.NewClient(o)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Dial opens a connection to the server.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", s.process.socket)
}

// Door is a TCP address at which the server is reached by other servers, which
// can't name its Unix socket, until it is shut.
func (s *Server) Door(tb testing.TB) (port int, shut func()) {
	tb.Helper()
	ln, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	isShut := false
	shut = func() { // the port stays ours, so that a replica meets no other server there
		mu.Lock()
		defer mu.Unlock()
		isShut = true
		for _, c := range conns {
			_ = c.Close()
		}
	}
	tb.Cleanup(func() {
		_ = ln.Close()
		shut()
	})
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := s.Dial(context.Background())
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			if conns = append(conns, in, out); isShut {
				_, _ = in.Close(), out.Close()
			}
			mu.Unlock()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		}
	}()
	addr, _ := ln.Addr().(*net.TCPAddr)
	return addr.Port, shut
}

// Replica starts a replica of the server and returns when it is in step. The
// server sees it until detach is called.
func (s *Server) Replica(tb testing.TB) (replica *Server, detach func()) {
	tb.Helper()
	port, detach := s.Door(tb)
	replica = Start(tb, "--replicaof", "127.0.0.1 "+strconv.Itoa(port))
	s.inStep(tb)
	return replica, detach
}

// inStep waits until a replica keeps in step with the server.
func (s *Server) inStep(tb testing.TB) {
	tb.Helper()
	rdb := s.Client(tb, nil)
	// A replica that has just come online answers only once a second at first.
	Await(tb, "the replica to keep in step", func() bool {
		for range 3 {
			var acks *redis.Cmd
			_, err := rdb.Pipelined(tb.Context(), func(p redis.Pipeliner) error {
				p.Set(tb.Context(), "in step", 1, time.Second)
				acks = p.Do(tb.Context(), "WAIT", 1, 100)
				return nil
			})
			if n, _ := acks.Int(); err != nil || n != 1 {
				return false
			}
		}
		return rdb.Del(tb.Context(), "in step").Err() == nil
	})
}

// SwapWith makes a replica of the server its master, without losing a write, and
// the server its replica: what Redis' own FAILOVER does. All connections stay
// open. moved is called once the replica is the master.
func (s *Server) SwapWith(tb testing.TB, replica *Server, moved func()) {
	tb.Helper()
	ctx := tb.Context()
	old, promoted := s.Client(tb, nil), replica.Client(tb, nil)
	port, _ := replica.Door(tb)
	do := func(rdb *redis.Client, args ...any) {
		tb.Helper()
		if err := rdb.Do(ctx, args...).Err(); err != nil {
			tb.Fatal(err)
		}
	}
	s.inStep(tb)
	do(old, "CLIENT", "PAUSE", 20_000, "WRITE")
	Await(tb, "the replica to have it all", func() bool { return offset(tb, old) == offset(tb, promoted) })
	do(promoted, "REPLICAOF", "NO", "ONE")
	moved()
	do(old, "REPLICAOF", "127.0.0.1", port)
	do(old, "CLIENT", "UNPAUSE")
	replica.inStep(tb)
}

// offset is how much of its master's writes a server has, or has made.
func offset(tb testing.TB, rdb *redis.Client) string {
	tb.Helper()
	text, err := rdb.Info(tb.Context(), "replication").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "master_repl_offset:"); ok {
			return at
		}
	}
	tb.Fatalf("no offset in %s", text)
	return ""
}

// A Name is an address that may move to another server, as a name in the DNS, a
// virtual address or the endpoint of a managed master does. Clients that use it are
// told nothing: their open connections stay where they are.
type Name struct{ at atomic.Pointer[Server] }

// Move makes new connections go to another server.
func (n *Name) Move(to *Server) { n.at.Store(to) }

// Use makes a client use the name.
func (n *Name) Use(o *redis.Options) {
	o.Network, o.Addr = "tcp", "master.test:6379"
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return n.at.Load().Dial(ctx) }
}

// Await waits for a condition that must come true.
func Await(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("timed out waiting for %s", what)
		}
	}
}
