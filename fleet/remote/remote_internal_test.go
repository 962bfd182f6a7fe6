//go:build linux

package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/workload"
)

// asWorker is set for this program as a worker: the address, the key, the lock and the driver's command.
const asWorker = "LOCKCHAOS_TEST_REMOTE_WORKER"

func TestMain(m *testing.M) {
	if args := strings.Split(os.Getenv(asWorker), "\n"); len(args) == 4 {
		key, err := ReadKey(args[1])
		if err == nil {
			err = Join(context.Background(), WorkerConfig{
				Address: args[0], Key: key, Version: "v1", Lock: args[2], Command: []string{"/bin/sh", args[3]}, Log: os.Stderr,
				Say: func(what string) { fmt.Fprintln(os.Stderr, what) },
			})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // it is main here
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
}

// script is a driver of which a folder is the lock, if it is CORRECT, or that grants whatever it is asked for.
const script = `while read -r line; do
	id=${line#*\"id\":} && id=${id%%,*} && id=${id%\}}
	case $line in
	*'"op":"hello"'*) echo '{"re":0,"protocol":1,"name":"folder","promises":{"release_tells":true}}' ;;
	*'"op":"acquire"'*)
		if CORRECT && ! mkdir FOLDER 2>/dev/null; then echo "{\"re\":$id,\"result\":\"fail\"}"
		else echo "{\"re\":$id,\"result\":\"ok\",\"hold\":\"$$-$id\"}"; fi ;;
	*'"op":"release"'*) rmdir FOLDER 2>/dev/null; echo "{\"re\":$id,\"result\":\"ok\"}" ;;
	*'"op":"ping"'*) echo "{\"re\":$id,\"result\":\"ok\"}" ;;
	esac
done
`

// A fixture is a coordinator with what it noticed.
type fixture struct {
	*Coordinator
	t       *testing.T
	key     string
	mu      sync.Mutex
	noticed bytes.Buffer
	workers map[string]*exec.Cmd // by their zones
	said    map[string]*bytes.Buffer
}

// newKey is a new key, and its file.
func newKey(t *testing.T) (key Key, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(rand.Text()+rand.Text()), 0o600))
	key, err := ReadKey(path)
	require.NoError(t, err)
	return key, path
}

func coordinate(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, workers: map[string]*exec.Cmd{}, said: map[string]*bytes.Buffer{}}
	var key Key
	key, f.key = newKey(t)
	var err error
	f.Coordinator, err = Listen(Config{Address: "127.0.0.1:0", Key: key, Version: "v1", Lock: "folder", Zones: []string{"zone-a", "zone-b"}, Notice: func(what string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintln(&f.noticed, what)
	}})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close("the test has ended") })
	return f
}

func (f *fixture) notices(words string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Contains(f.noticed.String(), words)
}

func (f *fixture) awaitNotice(words string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.notices(words) }, time.Minute, 5*time.Millisecond, "%q in %s", words, &f.noticed)
}

// work starts workers of a correct lock, or of one that is not, for both zones. The clock of the second is 5 s ahead, where
// this machine can do that.
func (f *fixture) work(correct bool) {
	f.t.Helper()
	path, folder := filepath.Join(f.t.TempDir(), "driver.sh"), filepath.Join(f.t.TempDir(), "lock")
	require.NoError(f.t, os.WriteFile(path, []byte(strings.NewReplacer("CORRECT", fmt.Sprint(correct), "FOLDER", folder).Replace(script)), 0o600))
	self, err := os.Executable()
	require.NoError(f.t, err)
	for _, zone := range []string{"zone-a", "zone-b"} {
		cmd := exec.Command(self)
		ahead := []string{"-U", "-T", "--monotonic", "5", "--boottime", "5", "--"}
		if shifts := exec.Command("unshare", append(ahead, "true")...).Run() == nil; shifts && zone == "zone-b" {
			cmd = exec.Command("unshare", append(ahead, self)...)
		}
		cmd.Env = append(os.Environ(), asWorker+"="+strings.Join([]string{f.Address(), f.key, "folder", path}, "\n"))
		f.said[zone] = new(bytes.Buffer)
		cmd.Stderr = f.said[zone]
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(f.t, cmd.Start())
		f.workers[zone] = cmd
		f.t.Cleanup(func() { _ = cmd.Process.Kill() })
		f.awaitNotice("the worker of " + zone)
	}
	require.NoError(f.t, f.Await(f.t.Context()))
}

// driver is that of a zone.
func (f *fixture) driver(zone string) *driver.Driver {
	f.t.Helper()
	r, err := f.Start(zone, nil, false, new(net.Dialer).DialContext)
	require.NoError(f.t, err)
	d, err := driver.Start(f.t.Context(), driver.Config{Remote: r, Name: "folder", Zone: zone})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, d.Close()) })
	return d
}

// A lock that is granted to both zones for 10 ms is found, and one that is not is valid, whatever the clocks of workers say.
func TestClientsOfTwoMachinesMakeOneHistory(t *testing.T) {
	t.Parallel()
	for correct, want := range map[bool]checker.Verdict{true: checker.Valid, false: checker.Invalid} {
		t.Run(fmt.Sprint(correct), func(t *testing.T) {
			t.Parallel()
			f := coordinate(t)
			f.work(correct)
			var record bytes.Buffer
			recorder := history.NewRecorder(&record)
			recorder.Record(history.Event{Process: history.NoProcess, Op: history.Declare, Type: history.OK, Lock: "x", Kind: history.KindMutex})
			var processes workload.Processes
			client := func(zone string) *workload.Client {
				return &workload.Client{Name: zone, Locker: f.driver(zone), Recorder: recorder, Processes: &processes, Careless: true}
			}
			a, b := client("zone-a"), client("zone-b")
			ask := workload.Request{Locks: []string{"x"}, Lease: time.Minute}
			for range 20 {
				require.Equal(t, history.OK, a.Ask(t.Context(), ask))
				granted := b.Ask(t.Context(), ask)
				require.Equal(t, !correct, granted == history.OK)
				time.Sleep(10 * time.Millisecond) // which is what the checker is to see
				require.Equal(t, history.OK, a.Release(t.Context()))
				if granted == history.OK {
					b.Release(t.Context())
				}
				require.Equal(t, history.OK, b.Ask(t.Context(), ask))
				require.Equal(t, history.OK, b.Release(t.Context()))
			}
			require.NoError(t, recorder.Close())
			h, err := history.ReadAll(&record)
			require.NoError(t, err)
			report := checker.Check(t.Context(), h, checker.MutualExclusion())
			require.Equal(t, want, report.Verdict)
			for _, zone := range f.config.Zones {
				require.Positive(t, f.RoundTrip(zone))
			}
			f.Close("it is enough")
			for zone, cmd := range f.workers {
				require.NoError(t, cmd.Wait(), "%s", f.said[zone])
				require.Contains(t, f.said[zone].String(), "it is enough")
			}
		})
	}
}

// What a worker did that hangs is unknown, and says why. The test of the program has those that end.
func TestAWorkerThatHangsIsLost(t *testing.T) {
	t.Parallel()
	f := coordinate(t)
	f.work(true)
	d := f.driver("zone-a")
	require.NoError(t, f.workers["zone-a"].Process.Signal(syscall.SIGSTOP))
	<-d.Gone()
	<-d.Done()
	require.ErrorIs(t, d.Err(), driver.ErrBroken)
	require.ErrorContains(t, d.Err(), "the worker of zone-a on ")
	require.ErrorContains(t, d.Err(), "is lost: it said nothing for ")
	_, err := f.Start("zone-a", nil, false, nil)
	require.ErrorContains(t, err, "it said nothing for ")
}

// dial connects with a key.
func (f *fixture) dial(key Key) *grpc.ClientConn {
	f.t.Helper()
	secret, err := key.config()
	require.NoError(f.t, err)
	conn, err := grpc.NewClient("passthrough:///"+f.Address(), grpc.WithTransportCredentials(credentials.NewTLS(secret)), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stranger joins by hand, and says what came of it; nil if it is welcome and says nothing more.
func (f *fixture) stranger(conn *grpc.ClientConn, first message, more ...any) error {
	f.t.Helper()
	s, err := conn.NewStream(f.t.Context(), duplex(joinStream), "/"+service+"/"+joinStream)
	if err == nil {
		_ = s.SendMsg(&first)
	}
	for err == nil {
		m := new(message)
		if err = s.RecvMsg(m); err == nil && m.Kind == welcome && len(more) == 0 {
			return nil
		}
		for _, m := range more {
			_ = s.SendMsg(m)
		}
	}
	return err
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	f := coordinate(t)
	key := f.config.Key
	other, path := newKey(t)
	require.NoError(t, os.WriteFile(path, []byte("short"), 0o600))
	_, err := ReadKey(path)
	require.ErrorContains(t, err, "has 5 bytes, and a key at least 32")
	good := message{Kind: join, Version: "v1", Lock: "folder", Host: "h\x1b", ID: "1"}
	with := func(change func(*message)) message {
		m := good
		change(&m)
		return m
	}
	refused := func(want string, key Key, first message, more ...any) {
		t.Helper()
		require.ErrorContains(t, f.stranger(f.dial(key), first, more...), want)
	}
	refused("certificate", other, good)
	for _, tt := range []struct {
		want  string
		first message
	}{
		{`it is lockchaos "v2", and the coordinator is "v1": use the same on all machines`, with(func(m *message) { m.Version = "v2" })},
		{`its lock is "exec:rm", and that of the run is "folder": give both the same --lock`, with(func(m *message) { m.Lock = "exec:rm" })},
		{`its first message was "line", and not "join"`, with(func(m *message) { m.Kind = line })},
	} {
		refused(tt.want, key, tt.first)
		f.awaitNotice("was refused: " + tt.want)
	}
	// Those that join, and then are no worker: their zone is free again.
	for want, more := range map[string]any{
		"larger than max":                    &message{Kind: line, Line: make([]byte, 10<<20)},
		"failed to unmarshal":                []byte("{"),
		"it answered a ping that was not":    &message{Kind: pong, Sent: time.Hour},
		`it sent "line" of a driver that`:    &message{Kind: line, Number: 1, Line: []byte("{}")},
		`it sent "welcome" of a driver that`: &message{Kind: welcome},
	} {
		refused("", key, good, more)
		f.awaitNotice(want)
	}
	a, b := f.dial(key), f.dial(key)
	require.NoError(t, f.stranger(a, good))
	refused("it has joined already, for zone-a", key, good)
	require.NoError(t, f.stranger(b, with(func(m *message) { m.ID = "2" })))
	require.NoError(t, f.Await(t.Context()))
	refused(`the run has its workers: the worker of zone-a on "h\x1b", the worker of zone-b`, key, with(func(m *message) { m.ID = "3" }))
	f.connections(a, b)

	// Half a handshake, of one byte a second, ends.
	half, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.Address())
	require.NoError(t, err)
	for err == nil {
		_, _ = half.Write([]byte{22}) // the read says how it ended
		require.NoError(t, half.SetReadDeadline(time.Now().Add(time.Second)))
		if _, err = half.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
	}
	f.awaitNotice("it showed no certificate of the coordinator's key file")
	require.NoError(t, half.Close())
	plain, err := tls.Dial("tcp", f.Address(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // it is a stranger
	if err == nil {
		_, err = plain.Read(make([]byte, 1))
		_ = plain.Close()
	}
	require.ErrorContains(t, err, "certificate required")
}

// connections opens some of two workers: they reach the servers of the driver of their own worker, and nothing else.
func (f *fixture) connections(a, b *grpc.ClientConn) {
	f.t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	at := server.Addr().String()
	_, err = f.Start("zone-a", []string{at}, false, new(net.Dialer).DialContext)
	require.NoError(f.t, err)
	for _, tt := range []struct {
		conn          *grpc.ClientConn
		address, want string
	}{
		{a, at, ""},
		{b, at, "no server of this worker's run"},
		{f.dial(f.config.Key), at, "no server of this worker's run"},
		{a, f.Address(), "no server of this worker's run"},
	} {
		ctx := metadata.AppendToOutgoingContext(f.t.Context(), addressKey, tt.address)
		s, err := tt.conn.NewStream(ctx, duplex(connectStream), "/"+service+"/"+connectStream)
		require.NoError(f.t, err)
		_ = s.SendMsg([]byte("there and back"))
		var got []byte
		if err = s.RecvMsg(&got); tt.want != "" {
			require.ErrorContains(f.t, err, tt.want)
			continue
		}
		require.NoError(f.t, err)
		require.Equal(f.t, "there and back", string(got))
		require.NoError(f.t, s.CloseSend())
		require.Error(f.t, s.RecvMsg(&got), "it ends with its driver's")
	}
}
