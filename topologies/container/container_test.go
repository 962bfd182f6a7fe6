package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

// bootVariable makes the test binary boot the topology that it names, and stay
// until it is killed.
const bootVariable = "LOCKCHAOS_TEST_BOOT"

func TestMain(m *testing.M) {
	logging.Disable()
	if name := os.Getenv(bootVariable); name != "" {
		bootAndStay(name)
		return
	}
	runtest.FewAtOnce(2)
	goleak.VerifyTestMain(m)
}

func bootAndStay(name string) {
	t, err := topologies.ByName(name)
	if err == nil {
		_, err = Backend{}.Start(context.Background(), t)
	}
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// missing is why no containers can be had here: noEngine where no engine answers, noImage where it has no image.
var missing = sync.OnceValues(func() (noEngine, noImage error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return err, nil
	}
	defer c.Close()
	_, err = findImage(ctx, c, "", topologies.StoreRedis, quiet())
	return nil, err
})

// needsContainers skips the test where there are none.
func needsContainers(tb testing.TB) {
	tb.Helper()
	runtest.NoShort(tb)
	noEngine, noImage := missing()
	if noEngine != nil {
		runtest.LacksEngine(tb, noEngine)
	}
	if noImage != nil {
		runtest.Lacks(tb, noImage)
	}
}

// removedAll requires that everything was removed, but for what an engine with a
// defect never lets go.
func removedAll(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, errMiscounts) {
		tb.Log(err)
		return
	}
	require.NoError(tb, err)
}

// start boots a topology, or skips the test where there are no containers.
func start(tb testing.TB, b Backend, name string) topologies.Deployment {
	tb.Helper()
	needsContainers(tb)
	topology, err := topologies.ByName(name)
	require.NoError(tb, err)
	d, err := b.Start(tb.Context(), topology)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, n := range topology.Nodes {
				if s := d.Server(n.Name); s != nil {
					log, err := os.ReadFile(s.Log())
					tb.Logf("log of %s (%v):\n%s", n.Name, err, log)
				}
			}
		}
		removedAll(tb, d.Close())
	})
	return d
}

func within(t *testing.T) context.Context {
	t.Helper()
	return runtest.Within(t, 3*time.Minute)
}

// engine is a connection to the engine that the tests look with.
func engine(t *testing.T) *client.Client {
	t.Helper()
	needsContainers(t)
	c, err := connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestBackendKeepsTheContract(t *testing.T) {
	t.Parallel()
	c := engine(t)
	for _, tt := range []struct {
		name    string
		options topologies.Options
	}{
		{topologies.Single, topologies.Options{Persistence: topologies.PersistAlways}},
		{topologies.Sentinels, topologies.Options{Persistence: topologies.PersistAlways, Access: topologies.AccessName}},
		{topologies.Cluster, topologies.Options{NodeTimeout: time.Second}}, // so that it does not fail over only because the machine is busy
		{topologies.Independent, topologies.Options{Persistence: topologies.PersistAlways, Nodes: 3}},
	} {
		topology, err := topologies.New(tt.name, tt.options)
		require.NoError(t, err)
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			topologiestest.Run(t, Backend{}, func(d topologies.Deployment) []string {
				left := names.Of(leftOfDeployment(t, c, d), leftover.String)
				folder := folderOf(d)
				if _, err := os.Stat(folder); err == nil {
					left = append(left, folder)
				}
				return append(left, reapersOf(t, folder)...)
			}, topology)
		})
	}
}

// The members of a consensus store elect another leader when theirs is killed, each of them told from the others
// by the address of its container, and are whole again afterwards.
func TestMembersElect(t *testing.T) {
	t.Parallel()
	c := engine(t)
	for _, name := range []string{topologies.EtcdCluster, topologies.ZooKeeperEnsemble} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, err := findImage(t.Context(), c, "", topologies.StoreOf(name), quiet())
			require.NoError(t, err)
			if i.version == "" {
				runtest.Lacks(t, fmt.Errorf("image %s has no %s", i.name, name))
			}
			d := start(t, Backend{}, name)
			shard := d.Topology().Shards()[0]
			leader := topologiestest.MasterOf(within(t), t, d, shard)
			for _, follower := range d.Topology().Servers() {
				if follower != leader {
					require.NoError(t, await.Until(within(t), func() error {
						if d.Proxy(follower+">"+leader).Reset() == 0 {
							return fmt.Errorf("no connection of %s was seen on its link", follower)
						}
						return nil
					}))
				}
			}
			require.NoError(t, d.AwaitReady(within(t)))
			leader = topologiestest.MasterOf(within(t), t, d, shard)
			require.NoError(t, d.Server(leader).Kill(within(t)))
			_, err = d.AwaitMaster(within(t), shard, leader)
			require.NoError(t, err)
			if _, without := d.Unsupported()[topologies.Wiping]; !without {
				require.NoError(t, d.Server(leader).Wipe(within(t)))
			}
			require.NoError(t, d.Server(leader).Restart(within(t)))
			require.NoError(t, d.AwaitReady(within(t)))
			removedAll(t, d.Close())
			require.Empty(t, leftOfDeployment(t, c, d))
			require.NoDirExists(t, folderOf(d))
		})
	}
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	c := engine(t)
	topology, err := topologies.ByName(topologies.Single)
	require.NoError(t, err)
	tests := []struct {
		name, image, want string
		is                error
	}{
		{"no image", "127.0.0.1:1/nowhere:1", "`make image` builds", topologies.ErrUnusable},
		{"no name of an image", "Not A Name", "no image Not A Name", topologies.ErrUnusable},
		{"too old", variant(t, c, "LABEL org.lockchaos.redis=6.2.14"), "7.0.0 is the oldest", topologies.ErrTooOld},
		{"no Redis", variant(t, c, "LABEL org.lockchaos.redis=", "ENV PATH=/bin"), "redis-server: not found", nil},
		{"no Redis, though it says so", variant(t, c, "ENV PATH=/bin"), "redis-server: not found", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Backend{Image: tt.image}.Start(within(t), topology)
			require.ErrorContains(t, err, tt.want)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
			require.Empty(t, leftOf(t, c, ourselves(t)))
		})
	}
	t.Run("no engine", func(t *testing.T) {
		t.Setenv("DOCKER_HOST", "unix:///nowhere.sock")
		_, err := Backend{}.Start(within(t), topology)
		require.ErrorIs(t, err, topologies.ErrMissing)
		require.ErrorContains(t, err, "unix:///nowhere.sock, where no Docker engine answers")
	})
}

// variant is an image like the one in use, but for some lines of its
// Dockerfile.
func variant(t *testing.T, c *client.Client, changes ...string) string {
	t.Helper()
	i, err := findImage(t.Context(), c, "", topologies.StoreRedis, quiet())
	require.NoError(t, err)
	made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Image: i.name})
	require.NoError(t, err)
	image, err := c.ContainerCommit(t.Context(), made.ID, client.ContainerCommitOptions{Changes: changes})
	require.NoError(t, err)
	_, err = c.ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := c.ImageRemove(context.WithoutCancel(t.Context()), image.ID, client.ImageRemoveOptions{})
		require.NoError(t, err)
	})
	return image.ID
}

func TestAnImageThatDoesNotTellItsVersionIsAsked(t *testing.T) {
	t.Parallel()
	c := engine(t)
	told, err := findImage(t.Context(), c, "", topologies.StoreRedis, quiet())
	require.NoError(t, err)
	require.NotEmpty(t, told.version)
	asked := start(t, Backend{Image: variant(t, c, "LABEL org.lockchaos.redis=", "ENV REDIS_VERSION=")}, topologies.Single)
	require.Equal(t, told.version, asked.Version())
}

// TestAnImageLikeTheOfficialOne has what the testnode has not: a port, a
// volume, a script that starts the server, a version in the environment.
func TestAnImageLikeTheOfficialOne(t *testing.T) {
	c := engine(t)
	image := variant(t, c, "LABEL org.lockchaos.redis=", "ENV REDIS_VERSION=7.4.9", "EXPOSE 6379", "VOLUME /data",
		`ENTRYPOINT ["docker-entrypoint.sh"]`, `CMD ["redis-server"]`)
	d := start(t, Backend{Image: image}, topologies.Single)
	require.Equal(t, "7.4.9", d.Version())
	list, err := c.ContainerList(t.Context(), client.ContainerListOptions{
		Filters: client.Filters{}.Add("label", harnessLabel+"="+ourselves(t)),
	})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.NotEmpty(t, list.Items[0].Ports)
	for _, p := range list.Items[0].Ports {
		require.Equal(t, "127.0.0.1", p.IP.String(), "testcontainers publishes it, and nobody else may reach it")
	}
	for _, m := range list.Items[0].Mounts {
		require.Equal(t, mount.TypeBind, m.Type, "no volume is left to remove")
	}
}

func TestPortsThatSomebodyHasAreLeftToHim(t *testing.T) {
	c := engine(t)
	topology, err := topologies.ByName(topologies.Single)
	require.NoError(t, err)
	g := &resources{program: programs()[topologies.StoreRedis], engine: c, labels: map[string]string{deploymentLabel: "ports", harnessLabel: ourselves(t)}}
	g.bridge, err = makeBridge(t.Context(), c, g.labels)
	require.NoError(t, err)
	defer func() { require.NoError(t, g.bridge.Remove(t.Context())) }()
	taken := netip.AddrPortFrom(g.bridge.gateway, redisPorts+1)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", taken.String())
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, g.wire(topology))
	require.Equal(t, netip.AddrPortFrom(taken.Addr(), taken.Port()+portRange), g.addresses["redis-1"].Announced)

	require.NoError(t, g.network.Close())
	for i := range uint16(portRanges - 1) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(taken.Addr(), taken.Port()+(i+1)*portRange).String())
		require.NoError(t, err)
		defer l.Close()
	}
	require.ErrorContains(t, g.wire(topology), "no free range of ports on "+taken.Addr().String())
}

func TestLinksBetweenContainersCarryWhatTheySay(t *testing.T) {
	t.Parallel()
	d := start(t, Backend{}, topologies.Sentinels)
	ctx := within(t)
	attached := func(name, want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			info, err := d.Server(name).Observer().Info(ctx, "replication").Result()
			return err == nil && strings.Contains(info, "master_link_status:"+want)
		}, time.Minute, 5*time.Millisecond, "%s is to be %s", name, want)
	}
	attached("redis-2", "up")
	mend := d.Proxy("redis-2>redis-1").Cut()
	attached("redis-2", "down")
	attached("redis-3", "up")
	mend()
	attached("redis-2", "up")
}
