//go:build linux

package attach_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == stockCommand {
		serveToxiproxy(os.Args[2], os.Args[3], os.Args[4])
	}
	logging.Disable()
	runtest.FewAtOnce(2)
	// The thread that starts processes is never given back.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
}

// The passwords of the servers that the tests attach to: of the default user,
// which servers use among themselves, of the user chaos, and of the sentinels.
const (
	insidePassword   = "inside-secret"
	chaosPassword    = "chaos-secret"
	sentinelPassword = "sentinel-secret"
)

// An installation is a deployment that somebody else runs: nothing stands
// between its servers, and they ask for passwords.
type installation struct {
	topology topologies.Topology
	at       map[string]bootstrap.Address
	running  map[string]*exec.Cmd
}

// ports gives each server of this process a port of its own, above those that
// compose projects publish. The address is the process's own, out of those that
// the process backend never takes. A JVM binds none that ends with 255.
var ports atomic.Uint32

func ownAddress() netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, 251, byte(pid / 250), byte(1 + pid%250)})
}

func nextPort() uint16 { return uint16(31500 + ports.Add(1)) }

// install runs a topology with passwords and waits until it is whole. The
// arguments are added to those of every Redis server.
func install(t *testing.T, name string, extra ...string) *installation {
	t.Helper()
	var o topologies.Options
	if name == topologies.Cluster {
		o.NodeTimeout = time.Second // so that nobody fails over only because the machine is busy
	}
	topology, err := topologies.New(name, o)
	require.NoError(t, err)
	return installSized(t, topology, extra...)
}

// installSized runs a topology of another size than the usual.
func installSized(t *testing.T, topology topologies.Topology, extra ...string) *installation {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	i := &installation{topology: topology, at: map[string]bootstrap.Address{}, running: map[string]*exec.Cmd{}}
	for _, n := range topology.Nodes {
		if n.Kind == topologies.Zone {
			continue
		}
		at := netip.AddrPortFrom(ownAddress(), nextPort())
		bus := nextPort()
		i.at[n.Name] = bootstrap.Address{Listen: at, Announced: at, Bus: bus, AnnouncedBus: bus}
	}
	for name := range i.at {
		i.start(t, name, extra)
	}
	ctx := within(t)
	require.NoError(t, await.Until(ctx, func() error { return i.whole(ctx) }))
	return i
}

func (i *installation) start(t *testing.T, name string, extra []string) {
	t.Helper()
	c := bootstrap.RedisStore{}.Configure(i.topology, name, i.at)
	dir := t.TempDir()
	for file, content := range c.Files {
		if n, _ := i.topology.Node(name); n.Kind == topologies.Sentinel {
			content += "requirepass " + sentinelPassword + "\nsentinel sentinel-pass " + sentinelPassword +
				"\nsentinel auth-pass mymaster " + insidePassword + "\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	if n, _ := i.topology.Node(name); n.Kind == topologies.Redis {
		c.Args = append(c.Args, "--requirepass", insidePassword, "--masterauth", insidePassword,
			"--user", "chaos", "on", ">"+chaosPassword, "~*", "&*", "+@all")
		c.Args = append(c.Args, extra...)
	}
	out, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer out.Close()
	cmd := exec.Command("redis-server", c.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	i.running[name] = cmd
	t.Cleanup(func() {
		i.kill(name)
		if t.Failed() {
			t.Logf("%s: %s", name, bootstrap.TailLog(out.Name()))
		}
	})
}

// kill ends a server, as its owner might.
func (i *installation) kill(name string) {
	if cmd := i.running[name]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(i.running, name)
	}
}

// client is the owner's own connection to a server.
func (i *installation) client(name string) *redis.Client {
	password := insidePassword
	if n, _ := i.topology.Node(name); n.Kind == topologies.Sentinel {
		password = sentinelPassword
	}
	return redis.NewClient(&redis.Options{
		Addr: i.endpoint(name), Password: password, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
}

func (i *installation) endpoint(name string) string { return i.at[name].Announced.String() }

// endpoints are those of a kind, in order.
func (i *installation) endpoints(kind topologies.Kind) []string {
	return names.Of(i.topology.Of(kind), i.endpoint)
}

// whole fails until everybody knows everybody.
func (i *installation) whole(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(i.at)) {
		c := i.client(name)
		defer c.Close()
		n, _ := i.topology.Node(name)
		var said string
		var err error
		var want []string
		switch {
		case n.Kind == topologies.Sentinel:
			if err = c.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", "1000", "PUBLISH-PERIOD", "500").Err(); err != nil {
				return err
			}
			var m any
			m, err = c.Do(ctx, "SENTINEL", "MASTER", "mymaster").Result()
			said, want = fmt.Sprint(m), []string{
				"flags:master ", fmt.Sprintf("num-slaves:%d ", len(i.topology.Members("redis-1"))-1), "num-other-sentinels:2 ",
			}
		case i.topology.Name == topologies.Cluster:
			said, err = c.ClusterInfo(ctx).Result()
			want = []string{"cluster_state:ok", "cluster_known_nodes:6", "cluster_slots_ok:16384"}
		case n.Role == topologies.Replica:
			said, err = c.Info(ctx, "replication").Result()
			want = []string{"master_link_status:up"}
		default:
			err = c.Ping(ctx).Err()
		}
		if err != nil {
			return err
		}
		for _, w := range want {
			if !strings.Contains(said, w) {
				return fmt.Errorf("%s lacks %q: %s", name, w, said)
			}
		}
	}
	return nil
}

// backend attaches to the installation from one server where that is enough.
func (i *installation) backend() attach.Backend {
	b := attach.Backend{
		Username: "chaos", Password: chaosPassword, SentinelPassword: sentinelPassword, Yes: true,
		Endpoints: i.endpoints(topologies.Redis),
	}
	switch i.topology.Name {
	case topologies.Sentinels:
		b.Endpoints = []string{i.endpoint("sentinel-2")}
	case topologies.Cluster:
		b.Endpoints = []string{i.endpoint("redis-5")}
	}
	return b
}

// with is backend, changed.
func (i *installation) with(change func(*attach.Backend)) attach.Backend {
	b := i.backend()
	change(&b)
	return b
}

// within bounds a test.
func within(t *testing.T) context.Context {
	t.Helper()
	return runtest.Within(t, 2*time.Minute)
}
