package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(Reusing{M: m}.Run()) //nolint:forbidigo // a test's main
}

// What a test leaves in a server is gone when the next test gets it, or the next test gets
// another one.
func TestServersAreAsNew(t *testing.T) {
	do := func(t *testing.T, s *Server, args ...any) {
		t.Helper()
		require.NoError(t, s.Client(t, nil).Do(t.Context(), args...).Err())
	}
	// lasting does something on a connection that no cleanup closes.
	lasting := func(t *testing.T, s *Server, request string) {
		t.Helper()
		conn, err := s.Dial(t.Context())
		require.NoError(t, err)
		_, err = conn.Write([]byte(request + "\r\n"))
		require.NoError(t, err)
		reply := make([]byte, 1)
		if !strings.HasPrefix(request, "BLPOP") {
			_, err = conn.Read(reply)
			require.NoError(t, err)
		}
	}
	command := func(args ...any) func(*testing.T, *Server) {
		return func(t *testing.T, s *Server) { t.Helper(); do(t, s, args...) }
	}
	for _, left := range []struct {
		what   string
		by     func(t *testing.T, s *Server)
		reused bool
	}{
		{"nothing", func(*testing.T, *Server) {}, true},
		{"a key", command("SET", "a", 1), true},
		{"a key of another database", func(t *testing.T, s *Server) {
			t.Helper()
			require.NoError(t, s.Client(t, func(o *redis.Options) { o.DB = 7 }).Set(t.Context(), "a", 1, 0).Err())
		}, true},
		{"a script", command("SCRIPT", "LOAD", "return 1"), true},
		{"a function", command("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)"), true},
		{"a connection", func(t *testing.T, s *Server) { t.Helper(); lasting(t, s, "PING") }, true},
		{"a subscription", func(t *testing.T, s *Server) { t.Helper(); lasting(t, s, "SUBSCRIBE a") }, true},
		{"a pattern", func(t *testing.T, s *Server) { t.Helper(); lasting(t, s, "PSUBSCRIBE a*") }, true},
		{"a monitor", func(t *testing.T, s *Server) { t.Helper(); lasting(t, s, "MONITOR") }, true},
		{"a client that is blocked", func(t *testing.T, s *Server) { t.Helper(); lasting(t, s, "BLPOP a 0") }, true},
		{"a transaction", func(t *testing.T, s *Server) { t.Helper(); lasting(t, s, "MULTI") }, true},
		{"a pause of all", command("CLIENT", "PAUSE", 600_000, "ALL"), false},
		{"a pause of writes", command("CLIENT", "PAUSE", 600_000, "WRITE"), true},
		{"statistics", command("EXISTS", "a"), true},
		{"a setting", command("CONFIG", "SET", "maxmemory", "100mb"), false},
		{"a setting of scripts", command("CONFIG", "SET", "busy-reply-threshold", "1"), false},
		{"a password", command("CONFIG", "SET", "requirepass", "secret"), false},
		{"a user", command("ACL", "SETUSER", "b", "on", "nopass", "+@all"), false},
		{"fewer rights", command("ACL", "SETUSER", "default", "-publish"), false},
		{"the part of a replica", command("REPLICAOF", "127.0.0.1", 1), false},
		{"the part of a former replica", func(t *testing.T, s *Server) {
			t.Helper()
			port, _ := Start(t).Door(t)
			do(t, s, "REPLICAOF", "127.0.0.1", port)
			Await(t, "the replica to be in step", func() bool {
				return strings.Contains(s.Client(t, nil).Info(t.Context(), "replication").Val(), "master_link_status:up")
			})
			do(t, s, "REPLICAOF", "NO", "ONE")
		}, false},
		{"a replica", func(t *testing.T, s *Server) { t.Helper(); s.Replica(t) }, false},
		{"a script that never ends", func(t *testing.T, s *Server) {
			t.Helper()
			do(t, s, "CONFIG", "SET", "busy-reply-threshold", "1")
			conn, err := s.Dial(t.Context())
			require.NoError(t, err)
			_, err = conn.Write([]byte("EVAL 'while true do end' 0\r\n"))
			require.NoError(t, err)
			rdb := s.Client(t, nil)
			Await(t, "the server to be busy", func() bool { return redis.HasErrorPrefix(rdb.Ping(t.Context()).Err(), "BUSY") })
		}, false},
		{"an end", func(_ *testing.T, s *Server) { s.Kill() }, false},
		{"another start", func(t *testing.T, s *Server) { t.Helper(); s.Kill(); s.Start(t) }, false},
		{"a standstill", func(t *testing.T, s *Server) { t.Helper(); s.Pause(t) }, false},
	} {
		t.Run(left.what, func(t *testing.T) {
			var formerly *Server
			t.Run("left", func(t *testing.T) {
				formerly = Start(t)
				left.by(t, formerly)
			})
			now := Start(t)
			require.Equal(t, left.reused, now.process == formerly.process)
			admin := now.process.admin()
			defer admin.Close()
			fresh, err := launch(t.TempDir(), nil)
			require.NoError(t, err)
			defer fresh.end()
			require.NoError(t, fresh.describeNew())
			is, err := describe(t.Context(), admin)
			require.NoError(t, err)
			// Each has its own directory, which is a setting.
			for name, value := range is {
				is[name] = strings.ReplaceAll(value, now.process.dir, fresh.dir)
			}
			require.Equal(t, fresh.fresh, is)
			_, err = formerly.Dial(t.Context())
			require.Error(t, err)
		})
	}
}

// A client of a test that is over does not reach the test that has its server now.
func TestFormerClientsAreShutOut(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers; -short leaves them out")
	}
	var former *redis.Client
	var before *Server
	t.Run("before", func(t *testing.T) {
		before = Start(t)
		former = redis.NewClient(&redis.Options{Network: "unix", Addr: before.socket, MaxRetries: -1})
		require.NoError(t, former.Set(t.Context(), "a", 1, 0).Err())
	})
	defer former.Close()
	s := Start(t)
	require.True(t, s.process == before.process)
	for range 20 { // it opens a new connection where an old one is closed
		require.Error(t, former.Set(t.Context(), "a", 1, 0).Err())
	}
	require.Equal(t, int64(0), s.Client(t, nil).Exists(t.Context(), "a").Val())
}

// A test that failed says nothing of the state in which it left its server.
func TestServersOfAFailedTestEnd(t *testing.T) {
	tb := &failing{TB: t}
	s := Start(tb)
	tb.clean()
	select {
	case <-s.process.ended:
	default:
		t.Fatal("its server runs")
	}
	require.True(t, Start(t).process != s.process)
}

// failing is a test that has failed.
type failing struct {
	testing.TB

	cleanups []func()
}

func (f *failing) Failed() bool             { return true }
func (f *failing) Cleanup(c func())         { f.cleanups = append(f.cleanups, c) }
func (f *failing) Context() context.Context { return f.TB.Context() }

func (f *failing) clean() {
	for i := range f.cleanups {
		f.cleanups[len(f.cleanups)-1-i]()
	}
}

// The servers of a pool end with it, and those of a process with the process, however it
// ends.
func TestServersEnd(t *testing.T) {
	const how = "LOCKCHAOS_TEST_ENDS"
	if way := os.Getenv(how); way != "" {
		fmt.Fprintln(os.Stdout, Start(t).process.socket)
		if way == "panic" {
			go panic("as it was told")
		}
		select {}
	}
	var p pool
	p.open()
	s, err := launch(t.TempDir(), nil)
	require.NoError(t, err)
	require.NoError(t, s.describeNew())
	p.give(s)
	require.True(t, p.take() == s)
	p.give(s)
	p.close()
	<-s.ended
	require.True(t, p.take() == nil)

	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a process with its parent")
	}
	for _, way := range []string{"panic", "kill"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServersEnd$")
		cmd.Env = append(os.Environ(), how+"="+way)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		socket, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		socket = strings.TrimSpace(socket)
		if way == "kill" {
			require.NoError(t, cmd.Process.Kill())
		}
		require.Error(t, cmd.Wait())
		Await(t, "the server to be gone", func() bool {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
		require.NoError(t, os.RemoveAll(filepath.Dir(socket)))
	}
}
