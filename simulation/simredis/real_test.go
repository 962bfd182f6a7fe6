//go:build linux

package simredis_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/simulation/simredis"
	"github.com/lockchaos/lockchaos/topologies/shim"
)

// realServer is a redis-server whose wall clock stands still until it is set.
type realServer struct {
	socket string
	clock  []byte // the page that the preloaded library reads
	micros int64
}

// lacks skips a test that needs something that this machine lacks, or fails it
// where all must run.
func lacks(tb testing.TB, err error) {
	tb.Helper()
	if err == nil {
		return
	}
	if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
		tb.Fatal(err)
	}
	tb.Skip(err)
}

// startReal starts a redis-server that ends with the test.
func startReal(tb testing.TB, args ...string) *realServer {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a real server; -short leaves them out")
	}
	binary := os.Getenv("LOCKCHAOS_REDIS_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	out, err := exec.Command(binary, "--version").Output()
	lacks(tb, err)
	if !strings.Contains(string(out), "v=7.0.") {
		tb.Skipf("the engine simulates Redis 7.0, and this is %s", out)
	}
	compiler, err := shim.FindCompiler()
	lacks(tb, err)
	dir, err := os.MkdirTemp("", "lc") //nolint:usetesting // a socket's path has at most 108 bytes
	require.NoError(tb, err)
	s := &realServer{socket: filepath.Join(dir, "s")}
	library, page := filepath.Join(dir, "shim.so"), filepath.Join(dir, "clock")
	out, err = exec.Command(compiler, "-O2", "-shared", "-fPIC", "-o", library, "../../topologies/shim/source/shim.c").CombinedOutput()
	require.NoError(tb, err, "%s", out)
	require.NoError(tb, os.WriteFile(page, make([]byte, os.Getpagesize()), 0o600))
	f, err := os.OpenFile(page, os.O_RDWR, 0)
	require.NoError(tb, err)
	s.clock, err = syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require.NoError(tb, err)
	require.NoError(tb, f.Close())
	binaryPut(s.clock, 4, -1e9) // it drifts by as much as time passes
	s.set(start)
	// Small hashes keep their order.
	cmd := exec.CommandContext(context.Background(), binary, append([]string{
		"--port", "0", "--unixsocket", s.socket, "--dir", dir, "--save", "", "--enable-debug-command", "yes",
		"--hash-max-listpack-entries", "100000", "--hash-max-listpack-value", "100000",
	}, args...)...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "LOCKCHAOS_SHIM="+page)
	require.NoError(tb, spawn.Start(cmd))
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = syscall.Munmap(s.clock)
		_ = os.RemoveAll(dir)
	})
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	defer cancel()
	require.NoError(tb, await.Until(ctx, func() error {
		c, err := net.Dial("unix", s.socket)
		if err == nil {
			err = c.Close()
		}
		return err
	}))
	c := s.dial(tb)
	require.Equal(tb, "+OK\r\n", c.do(tb, "DEBUG", "SET-ACTIVE-EXPIRE", "0"))
	require.Equal(tb, "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n", c.do(tb, "TIME"), "the clock doesn't stand still")
	return s
}

func binaryPut(page []byte, word int, n int64) {
	binary.LittleEndian.PutUint64(page[8*word:], uint64(n))
}

// set sets the server's clock.
func (s *realServer) set(micros int64) {
	s.micros = micros
	binaryPut(s.clock, 2, micros*1000)
}

// realConn is a connection to a real server.
type realConn struct {
	net.Conn

	r *bufio.Reader
}

func (s *realServer) dial(tb testing.TB) *realConn {
	tb.Helper()
	c, err := net.Dial("unix", s.socket)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return &realConn{c, bufio.NewReaderSize(c, 1<<16)}
}

func (c *realConn) do(tb testing.TB, args ...string) string {
	tb.Helper()
	_, err := c.Write(simredis.AppendCommand(nil, args...))
	require.NoError(tb, err)
	r, err := c.read(5 * time.Second)
	require.NoError(tb, err)
	return r
}

// read reads one reply.
func (c *realConn) read(limit time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	var b strings.Builder
	err := c.readOne(&b)
	return b.String(), err
}

func (c *realConn) readOne(b *strings.Builder) error {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return err
	}
	b.WriteString(line)
	n := 0
	for _, d := range strings.TrimSpace(line[1:]) {
		if d < '0' || d > '9' {
			n = -1
			break
		}
		n = 10*n + int(d-'0')
	}
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return nil
		}
		text := make([]byte, n+2)
		for at := 0; at < len(text); {
			k, err := c.r.Read(text[at:])
			if err != nil {
				return err
			}
			at += k
		}
		b.Write(text)
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		for range n {
			if err := c.readOne(b); err != nil {
				return err
			}
		}
	}
	return nil
}
