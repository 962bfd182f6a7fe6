//go:build linux

package attach_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

// A project is docker-compose.yml under a name, and at ports, of its own.
type project struct{ name, ports string }

// run runs one of the scripts in compose/.
func (p project) run(args ...string) (string, error) {
	cmd := exec.Command("compose/"+args[0], args[1:]...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "PROJECT="+p.name, "LOCKCHAOS_PORTS="+p.ports, "WAIT=300")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// left is what the engine still has of the project.
func (p project) left(t *testing.T) string {
	t.Helper()
	var left []string
	for _, list := range [][]string{{"ps", "--all"}, {"network", "ls"}, {"volume", "ls"}} {
		out, err := exec.Command("docker", append(list, "--quiet", "--filter", "label=com.docker.compose.project="+p.name)...).Output()
		require.NoError(t, err)
		left = append(left, strings.Fields(string(out))...)
	}
	return strings.Join(left, " ")
}

// freePorts are the first two digits of ports of which nobody uses those of
// toxiproxy.
func freePorts(t *testing.T) string {
	t.Helper()
	const first, last = 11, 31
	for i := range last - first + 1 {
		digits := first + (os.Getpid()+i)%(last-first+1)
		free := true
		for block := 100; block <= 400; block += 100 {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d%d", digits, block))
			if free = free && err == nil; err == nil {
				require.NoError(t, l.Close())
			}
		}
		if free {
			return fmt.Sprint(digits)
		}
	}
	t.Fatal("no ports are free")
	return ""
}

// newProject is taken down, with all of its profiles, when the test ends.
func newProject(t *testing.T) project {
	t.Helper()
	t.Cleanup(runtest.EngineLock(t, true))
	p := project{fmt.Sprintf("lockchaos-test-%d", os.Getpid()), freePorts(t)}
	t.Cleanup(func() {
		out, err := p.run("down")
		require.NoError(t, err, out)
		require.Empty(t, p.left(t))
	})
	return p
}

// needEngine skips the test where no engine answers, or there is no Compose, or no image.
func needEngine(t *testing.T) {
	t.Helper()
	runtest.NoShort(t)
	if out, err := exec.Command("docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		runtest.LacksEngine(t, fmt.Errorf("no Docker engine answers: %w: %s", err, out))
	}
	if exec.Command("docker", "compose", "version").Run() != nil && exec.Command("docker-compose", "version").Run() != nil {
		runtest.LacksEngine(t, errors.New("there is no docker compose, nor docker-compose"))
	}
	const image = "lockchaos/testnode:local"
	if os.Getenv("REDIS_IMAGE") == "" && exec.Command("docker", "image", "inspect", image).Run() != nil {
		runtest.Lacks(t, fmt.Errorf("there is no image %s: make image", image))
	}
}

func TestComposeProjectsKeepTheContract(t *testing.T) {
	t.Parallel()
	needEngine(t)
	p := newProject(t)
	all := topologies.NamesOf(topologies.StoreRedis)
	out, err := p.run(append([]string{"up"}, all...)...) // each call of docker-compose costs a second or more
	require.NoError(t, err, out)
	// One after the other: the checks of health of twenty containers and the failovers of one topology
	// make Sentinels of another one miss their deadlines.
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			b := attach.Backend{Compose: p.name, Yes: true, Log: slog.New(slog.NewTextHandler(&log, nil))}
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log.String())
				}
			})
			topologiestest.Run(t, b, nil, topologies.Topology{Name: name})
			switch name {
			case topologies.Single:
				t.Run("put back", func(t *testing.T) { putsBack(t, b) })
			case topologies.Sentinels, topologies.Cluster:
				if name == topologies.Sentinels {
					t.Run("armed", func(t *testing.T) { replacesOneMaster(t, b) })
					t.Run("called off", func(t *testing.T) { restoresWhatWasCalledOff(t, p, b) })
				}
				t.Run("peers are counted", func(t *testing.T) { countsPeers(t, b, name) })
			}
		})
	}
}

// putsBack checks that Close lets run again what was killed or paused.
func putsBack(t *testing.T, b attach.Backend) {
	t.Helper()
	for _, hurt := range []func(topologies.Server, context.Context) error{topologies.Server.Kill, topologies.Server.Pause} {
		d, err := b.Start(within(t), topologies.Topology{Name: topologies.Single})
		require.NoError(t, err)
		require.NoError(t, hurt(d.Server("redis-1"), within(t)))
		require.NoError(t, d.Close())
	}
	d, err := b.Start(within(t), topologies.Topology{Name: topologies.Single})
	require.NoError(t, err, "it runs")
	require.NoError(t, d.Server("redis-1").Kill(within(t)))
	refused(t, b, topologies.Single, "its container single-redis-1 is exited")
	require.NoError(t, d.Server("redis-1").Restart(within(t)))
	log, err := os.ReadFile(d.Server("redis-1").Log())
	require.NoError(t, err)
	require.Contains(t, string(log), "Ready to accept connections")
	require.NoError(t, d.Close())
	require.NoFileExists(t, d.Server("redis-1").Log())
}

// states says of every container of a topology what it does.
func (p project) states(t *testing.T, topology string) string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "--all", "--format", `{{.Label "com.docker.compose.service"}} {{.State}}`,
		"--filter", "label=com.docker.compose.project="+p.name).Output()
	require.NoError(t, err)
	lines := slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return !strings.HasPrefix(line, topology+"-") })
	require.NotEmpty(t, lines)
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// leader is what the sentinel that starts failovers has been told.
func (p project) leader(t *testing.T) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + p.ports + "209"})
	defer c.Close()
	m, err := c.Do(within(t), "SENTINEL", "MASTER", "mymaster").Result()
	require.NoError(t, err)
	said := m.(map[any]any)
	return fmt.Sprint(said["down-after-milliseconds"], " ", said["quorum"])
}

// replacesOneMaster checks that a sentinel that was made quick gives the new master the time to answer
// that it needs to dial it, also if it stays quick for longer than it should.
func replacesOneMaster(t *testing.T, b attach.Backend) {
	t.Helper()
	d, err := b.Start(within(t), topologies.Topology{Name: topologies.Sentinels})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	ctx := within(t)
	old := topologiestest.MasterOf(ctx, t, d, d.Topology().Shards()[0])
	leader := d.Server("sentinel-3").Observer()
	events := leader.Subscribe(ctx, "+switch-master")
	defer events.Close()
	require.NoError(t, d.Arm(ctx))
	require.NoError(t, d.Server(old).Kill(ctx))
	event, err := events.ReceiveMessage(ctx)
	require.NoError(t, err)
	var port string
	require.NoError(t, await.Until(ctx, func() error {
		said, err := leader.Do(ctx, "SENTINEL", "MASTER", "mymaster").Result()
		m, _ := said.(map[any]any)
		if port = fmt.Sprint(m["port"]); m["flags"] != "master" {
			return fmt.Errorf("it has flags %v, %w", m["flags"], cmp.Or(err, errors.New("and may be down")))
		}
		return nil
	}))
	require.True(t, strings.HasSuffix(event.Payload, " "+port), "%s, then the master at %s", event.Payload, port)
	require.NoError(t, d.Disarm(ctx))
	require.NoError(t, d.Server(old).Restart(ctx))
}

// restoresWhatWasCalledOff checks that Close lets everything run again that was
// killed or paused, at whatever moment that was called off, and disarms the
// sentinels after that: the one that was armed may be among those.
func restoresWhatWasCalledOff(t *testing.T, p project, b attach.Backend) {
	t.Helper()
	states, leader := p.states(t, topologies.Sentinels), p.leader(t)
	require.NotContains(t, states, "exited")
	for _, server := range []string{"redis-1", "sentinel-3"} {
		for what, hurt := range map[string]func(topologies.Server, context.Context) error{
			"kill": topologies.Server.Kill, "pause": topologies.Server.Pause,
		} {
			for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Minute} {
				t.Run(fmt.Sprintf("%s %s after %v", what, server, after), func(t *testing.T) {
					var d topologies.Deployment
					ctx := within(t)
					require.NoError(t, await.Until(ctx, func() (err error) { // until all are well again after the case before
						d, err = b.Start(ctx, topologies.Topology{Name: topologies.Sentinels})
						return err
					}))
					require.NoError(t, d.Arm(within(t)))
					require.NotEqual(t, leader, p.leader(t))
					ctx = runtest.Within(t, after)
					if err := hurt(d.Server(server), ctx); after == time.Minute {
						require.NoError(t, err)
					}
					require.NoError(t, d.Close())
					require.Equal(t, states, p.states(t, topologies.Sentinels))
					require.Equal(t, leader, p.leader(t))
				})
			}
		}
	}
}

// countsPeers checks that a reset counts the connections of other servers.
func countsPeers(t *testing.T, b attach.Backend, topology string) {
	t.Helper()
	d, err := b.Start(within(t), topologies.Topology{Name: topology})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	replica := func(name string) (is bool) { // as of now: a busy cluster may fail over by itself
		ctx := within(t)
		require.NoError(t, await.Until(ctx, func() error {
			role, err := d.Server(name).Observer().Do(ctx, "ROLE").Slice()
			is = err == nil && fmt.Sprint(role[0]) == "slave"
			return err
		}))
		return is
	}
	for _, l := range d.Topology().Links {
		switch {
		case l.Kind == topologies.Client, l.Kind == topologies.Replication && topology == topologies.Cluster && replica(l.To):
			require.Zero(t, d.Proxy(l.Name()).Reset(), "no party dials %s", l.Name())
		default:
			require.Positive(t, d.Proxy(l.Name()).Reset(), "a party dials %s", l.Name())
			require.NoError(t, d.AwaitReady(within(t)))
		}
	}
}

func TestAProjectOfSomebodyElse(t *testing.T) {
	t.Parallel()
	needEngine(t)
	name := fmt.Sprintf("lockchaos-test-other-%d", os.Getpid())
	out, err := exec.Command("docker", "run", "--detach", "--name", name, "--publish", "127.0.0.1::6379",
		"--label", "com.docker.compose.project="+name, "--label", "com.docker.compose.service=cache",
		cmp.Or(os.Getenv("REDIS_IMAGE"), "lockchaos/testnode:local"),
		"redis-server", "--protected-mode", "no", "--requirepass", insidePassword).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() {
		out, err := exec.Command("docker", "rm", "--force", "--volumes", name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	inspect := func(format string) string {
		out, err := exec.Command("docker", "inspect", "--format", format, name).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	address := inspect(`{{.NetworkSettings.IPAddress}}`) + ":6379"
	require.NoError(t, await.Until(within(t), func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}))
	b := attach.Backend{Compose: name, Password: insidePassword, Yes: true}

	b.Endpoints = []string{"127.0.0.1:" + inspect(`{{(index (index .NetworkSettings.Ports "6379/tcp") 0).HostPort}}`)}
	d, err := b.Start(within(t), topologies.Topology{Name: topologies.Single})
	require.NoError(t, err)
	require.NotContains(t, d.Unsupported(), topologies.Processes, "it is known by the port that it publishes")
	require.NoError(t, d.Close())

	b.Endpoints = []string{address}
	topologiestest.Run(t, b, nil, topologies.Topology{Name: topologies.Single})
	b.Endpoints = nil
	refused(t, b, topologies.Single, "has no service single-toxiproxy")
}
