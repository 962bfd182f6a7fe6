package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// harnessOf is the label of what a process makes.
func harnessOf(t *testing.T, process int) string {
	t.Helper()
	boot, err := thisBoot()
	require.NoError(t, err)
	return fmt.Sprintf("%s/%d", boot, process)
}

func ourselves(t *testing.T) string {
	t.Helper()
	return harnessOf(t, os.Getpid())
}

// A leftover is something that a deployment has made.
type leftover struct {
	kind, name string
	labels     map[string]string
	running    bool
}

func (l leftover) String() string { return l.kind + " " + l.name }

// lookEvery is how often the engine is asked what it has, which keeps it from its work:
// making a network takes it a second.
const lookEvery = 20 * time.Millisecond

// leftOf lists what the engine has of a harness.
func leftOf(t *testing.T, c *client.Client, harness string) []leftover {
	t.Helper()
	by := client.Filters{}.Add("label", harnessLabel+"="+harness)
	containers, err := c.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: by})
	require.NoError(t, err)
	networks, err := c.NetworkList(t.Context(), client.NetworkListOptions{Filters: by})
	require.NoError(t, err)
	var left []leftover
	for _, n := range networks.Items {
		left = append(left, leftover{"network", n.Name, n.Labels, false})
	}
	for _, n := range containers.Items {
		left = append(left, leftover{"container", n.Names[0][1:], n.Labels, n.State == "running"})
	}
	return left
}

// leftOfDeployment lists what the engine has of one of our deployments, which
// others may run beside.
func leftOfDeployment(t *testing.T, c *client.Client, d topologies.Deployment) []leftover {
	t.Helper()
	return slices.DeleteFunc(leftOf(t, c, ourselves(t)), func(l leftover) bool { return l.labels[folderLabel] != folderOf(d) })
}

// folderOf is the folder of a deployment.
func folderOf(d topologies.Deployment) string {
	return filepath.Dir(filepath.Dir(d.Server(d.Topology().Servers()[0]).Log()))
}

func TestCloseRemovesAlsoWhatIsPaused(t *testing.T) {
	t.Parallel()
	c := engine(t)
	d := start(t, Backend{}, topologies.Single)
	require.Len(t, leftOfDeployment(t, c, d), 2, "a network and a container")
	require.NoError(t, d.Server("redis-1").Pause(within(t)))
	require.NoError(t, d.Close())
	require.Empty(t, leftOfDeployment(t, c, d))
}

// reapersOf finds the processes that were told of a folder.
func reapersOf(t *testing.T, folder string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	return slices.DeleteFunc(lines, func(file string) bool {
		line, err := os.ReadFile(file)
		return err != nil || !slices.Contains(strings.Split(string(line), "\x00"), folder)
	})
}

// moments are some of a boot's, by what a harness has from then on: a moment that
// passes may be over when somebody looks.
func moments(nodes int) map[string]func([]leftover) bool {
	has := func(is func(leftover) bool) func([]leftover) bool {
		return func(left []leftover) bool { return slices.ContainsFunc(left, is) }
	}
	return map[string]func([]leftover) bool{
		"a network":             has(func(l leftover) bool { return l.kind == "network" }),
		"a container":           has(func(l leftover) bool { return l.kind == "container" }),
		"a running container":   has(func(l leftover) bool { return l.running }),
		"all of its containers": func(left []leftover) bool { return len(left) > nodes },
	}
}

// A boot is a topology that is booted until something has come.
type boot struct {
	topology, name string
	come           func([]leftover) bool
}

// boots are those that are killed and called off: at each moment of a single server's, at one of a topology with several,
// and nightly at that of each.
func boots() []boot {
	var all []boot
	for name, come := range moments(1) {
		all = append(all, boot{topologies.Single, name, come})
	}
	several := []string{topologies.Sentinels}
	if runtest.Nightly() {
		several = append(several, topologies.Cluster, topologies.Independent)
	}
	for _, topology := range several {
		const name = "a running container"
		all = append(all, boot{topology, name, moments(0)[name]})
	}
	return all
}

// TestAKilledHarnessLeavesNothing kills a harness at several moments of its
// boot.
func TestAKilledHarnessLeavesNothing(t *testing.T) {
	t.Parallel()
	needsContainers(t)
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("the reaper needs the docker command")
	}
	for _, k := range boots() {
		t.Run(k.topology+" once it has "+k.name, func(t *testing.T) {
			t.Parallel()
			c := engine(t)
			come := k.come
			harness := exec.CommandContext(t.Context(), os.Args[0])
			harness.Env = append(os.Environ(), bootVariable+"="+k.topology)
			stay, err := harness.StdinPipe()
			require.NoError(t, err)
			defer stay.Close()
			require.NoError(t, harness.Start())
			o := harnessOf(t, harness.Process.Pid)
			folder := ""
			require.Eventually(t, func() bool {
				left := leftOf(t, c, o)
				if len(left) > 0 {
					folder = left[0].labels[folderLabel]
				}
				return come(left)
			}, 3*time.Minute, lookEvery)
			require.NoError(t, harness.Process.Kill())
			require.Error(t, harness.Wait())
			// The folder goes last.
			require.Eventually(t, func() bool {
				_, err := os.Stat(folder)
				return os.IsNotExist(err)
			}, 3*time.Minute, 10*time.Millisecond)
			require.Empty(t, slices.DeleteFunc(leftOf(t, c, o), func(l leftover) bool { return l.kind == "network" && lostCount(t, c, l.name) }))
			require.Eventually(t, func() bool { return len(reapersOf(t, folder)) == 0 }, time.Minute, 10*time.Millisecond)
		})
	}
}

// lostCount reports whether the engine keeps a network for an endpoint that it does
// not have. Docker 20.10 does so, until it is restarted, where a container is removed
// while it is connected to the network on a busy machine: its count of endpoints stays.
func lostCount(t *testing.T, c *client.Client, name string) bool {
	t.Helper()
	_, err := c.NetworkRemove(t.Context(), name, client.NetworkRemoveOptions{})
	if err == nil || !strings.Contains(err.Error(), "has active endpoints") {
		return false
	}
	seen, inspected := c.NetworkInspect(t.Context(), name, client.NetworkInspectOptions{Verbose: true})
	require.NoError(t, inspected)
	t.Logf("%v; its containers: %v", err, seen.Network.Containers)
	return len(seen.Network.Containers) == 0
}

func TestABootThatIsCalledOffLeavesNothing(t *testing.T) {
	c := engine(t)
	for _, m := range boots() {
		t.Run(m.topology+" once it has "+m.name, func(t *testing.T) {
			topology, err := topologies.ByName(m.topology)
			require.NoError(t, err)
			come := m.come
			ctx, cancel := context.WithCancelCause(t.Context())
			failed := make(chan error, 1)
			go func() {
				d, err := Backend{}.Start(ctx, topology)
				if err == nil { // it stays until the engine was seen to have what is awaited
					<-ctx.Done()
					err = errors.Join(errors.New("it was ready before"), d.Close())
				}
				failed <- err
			}()
			require.Eventually(t, func() bool { return len(failed) > 0 || come(leftOf(t, c, ourselves(t))) }, 3*time.Minute, lookEvery)
			cancel(errors.New("called off"))
			err = <-failed
			require.Regexp(t, "called off|^it was ready before$", err.Error())
			require.Empty(t, leftOf(t, c, ourselves(t)))
		})
	}
}

// lone makes a network with one running container, redis-1, in the name of a
// harness.
func lone(t *testing.T, c *client.Client, harness string) (*resources, *node) {
	t.Helper()
	ctx := within(t)
	dir := filepath.Join(t.TempDir(), folderPrefix+rand.Text()[:12])
	require.NoError(t, os.Mkdir(dir, 0o700))
	g := &resources{program: programs()[topologies.StoreRedis], engine: c, dir: dir, labels: map[string]string{
		deploymentLabel: filepath.Base(dir), harnessLabel: harness, folderLabel: dir,
	}}
	var err error
	g.bridge, err = makeBridge(ctx, c, g.labels)
	require.NoError(t, err)
	i, err := findImage(ctx, c, "", topologies.StoreRedis, quiet())
	require.NoError(t, err)
	n, err := g.node("redis-1", bootstrap.Address{Listen: netip.AddrPortFrom(g.bridge.address(1), redisPort)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Observer().Close()) })
	require.NoError(t, n.create(ctx, i, g.bridge, g.labels, bootstrap.Config{Args: []string{"--protected-mode", "no"}}))
	require.NoError(t, n.Restart(ctx))
	return g, n
}

// TestANetworkIsRemovedOnceItsContainersLeft makes certain what is rare: that
// the engine still counts a container as part of the network.
func TestANetworkIsRemovedOnceItsContainersLeft(t *testing.T) {
	t.Parallel()
	c := engine(t)
	ctx := within(t)
	g, n := lone(t, c, ourselves(t))
	tries := 0
	require.NoError(t, letGo(ctx, c, g.bridge.ID, func(ctx context.Context) error {
		err := g.bridge.Remove(ctx)
		if tries++; tries == 1 {
			require.ErrorContains(t, err, "active endpoints")
			require.NoError(t, n.remove(ctx))
		}
		return err
	}))
	require.Greater(t, tries, 1)
}

// A removal that was refused until its time was over says why, also if its last try
// was cut off.
func TestARemovalSaysWhyItWasRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tries := 0
	err := insist(ctx, func(ctx context.Context) error {
		if tries++; tries == 1 {
			return errors.New("it has active endpoints")
		}
		cancel()
		return ctx.Err()
	}, "active endpoints")
	require.ErrorContains(t, err, "active endpoints")
	require.Equal(t, 2, tries)
}

func TestCleanRemovesWhatTheDeadLeftAndSparesTheLiving(t *testing.T) {
	c := engine(t)
	ctx := within(t)
	living := start(t, Backend{}, topologies.Single)
	alive := leftOf(t, c, ourselves(t))

	dead := harnessOf(t, 1) // and no process holds its folder
	before, _ := lone(t, c, "another-boot/1")
	require.NoError(t, os.RemoveAll(before.dir))
	elsewhere, n := lone(t, c, harnessOf(t, 2))
	require.NoError(t, os.RemoveAll(elsewhere.dir), "it is not here")
	g, _ := lone(t, c, dead)
	dir := g.dir

	removed, err := Clean(ctx)
	removedAll(t, err)
	for _, want := range []string{
		fmt.Sprintf("container %s-redis-1", filepath.Base(dir)), "network " + g.bridge.Name, "folder " + dir,
	} {
		require.Contains(t, removed, want)
	}
	require.Empty(t, slices.Concat(leftOf(t, c, dead), leftOf(t, c, "another-boot/1")))
	require.Len(t, leftOf(t, c, harnessOf(t, 2)), 2, "nothing is known of it")
	require.NoError(t, errors.Join(n.remove(ctx), letGo(ctx, c, elsewhere.bridge.ID, elsewhere.bridge.Remove)))
	require.NoDirExists(t, dir)
	require.Equal(t, alive, leftOf(t, c, ourselves(t)))
	require.NoError(t, living.Server("redis-1").Observer().Ping(ctx).Err())
	removed, err = Clean(ctx)
	removedAll(t, err)
	require.NotContains(t, removed, "folder "+dir, "once is enough")
}
