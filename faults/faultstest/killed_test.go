//go:build linux

package faultstest_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// kept is what the other program has started: without a reference, the garbage
// collector would close it.
var kept topologies.Deployment

// inject injects the fault of a step.
func inject(ctx context.Context, d topologies.Deployment, step faults.Step) (i faults.Injection, err error) {
	p, err := faults.Environment{Topology: d.Topology(), Script: true}.Resolve(step)
	if err != nil {
		return i, err
	}
	f, err := p.On(faults.Site{Deployment: d})
	if err != nil {
		return i, err
	}
	return f.Inject(ctx)
}

// harness is another program that this test binary is: it injects a fault, says
// so, and panics when it is told to.
func harness(topology, fault string) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1)
	o := topologies.Options{Persistence: topologies.PersistAlways}
	if topologies.StoreOf(topology) != topologies.StoreRedis {
		o = topologies.Options{}
	}
	if topology == topologies.Cluster {
		o.NodeTimeout = time.Second // so that none fails over only because the machine is busy
	}
	plan, err := topologies.New(topology, o)
	if err != nil {
		return err
	}
	var backend topologies.Backend = process.Backend{}
	if !plan.Consensus() { // whose clocks and disks can't be interfered with
		backend = process.Backend{}.Instrumented()
	}
	d, err := backend.Start(context.Background(), plan)
	if err != nil {
		return err
	}
	kept = d
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var i faults.Injection
	if plan.Consensus() {
		i, err = inject(ctx, d, faults.Step{Fault: fault, Target: plan.Servers()[0]})
	} else {
		i, err = faultstest.Inject(ctx, d, fault)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Println(i.Effect); err != nil { //nolint:forbidigo // to the test
		return err
	}
	go func() {
		<-told
		panic("a bug")
	}()
	select {}
}

// TestHarness_killedDuringAFaultLeavesNothing kills a harness, and has one panic, while a fault lasts: the last of each
// family on each topology, which of processes is one that stands still. Nightly every fault has its turn, with a panic too.
func TestHarness_killedDuringAFaultLeavesNothing(t *testing.T) {
	t.Parallel()
	need(t)
	of := map[string]string{
		"crash-failover": topologies.Sentinels, "split-brain": topologies.Sentinels,
		"migrate-slot": topologies.Cluster, "partition-ring": topologies.Cluster,
		"partition-bridge": topologies.Independent, "partition-halves": topologies.Independent,
	}
	type killed struct{ topology, fault string }
	every := []killed{{topologies.EtcdCluster, "pause"}, {topologies.ZooKeeperEnsemble, "pause"}}
	last := map[string]killed{topologies.EtcdCluster: every[0], topologies.ZooKeeperEnsemble: every[1]}
	for _, spec := range faults.All() {
		if spec.Life != history.Momentary && slices.Contains(faultstest.Names(), spec.Name) {
			k := killed{cmp.Or(of[spec.Name], topologies.Single), spec.Name} // a single server can have all others
			every = append(every, k)
			last[k.topology+" "+string(spec.Family)] = k
		}
	}
	some := slices.Collect(maps.Values(last))
	if runtest.Nightly() {
		some = every
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, k := range some {
		topology, name := k.topology, k.fault
		for end, with := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "panics": syscall.SIGUSR1} {
			if end != "killed" && (topologies.StoreOf(topology) != topologies.StoreRedis || !runtest.Nightly() && name != "pause") { // the kernel does the same
				continue
			}
			t.Run(topology+" "+name+" "+end, func(t *testing.T) {
				t.Parallel()
				runtest.NeedStore(t, topologies.StoreOf(topology))
				tmp := t.TempDir()
				cmd := exec.Command(self, "harness", topology, name)
				cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
				var complaints strings.Builder
				cmd.Stderr = &complaints
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				t.Cleanup(func() { _ = cmd.Process.Kill() })
				effect, err := bufio.NewReader(out).ReadString('\n')
				if err != nil {
					_ = cmd.Wait() // all that it complains of
					require.NoError(t, err, complaints.String())
				}
				require.NotEmpty(t, effect)
				require.NotEmpty(t, left(tmp), "there is something to leave: %s", effect)
				require.NoError(t, cmd.Process.Signal(with))
				require.Error(t, cmd.Wait())
				require.Equal(t, with == syscall.SIGUSR1, strings.Contains(complaints.String(), "panic: a bug"))
				ctx := runtest.Within(t, 2*time.Minute)
				require.NoError(t, await.Until(ctx, func() error {
					if l := left(tmp); len(l) > 0 {
						return fmt.Errorf("left behind: %v", l)
					}
					return nil
				}))
			})
		}
	}
}

// left is what is in a folder, and the processes that work, or worked, there.
func left(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "*")) // the patterns are good
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			found = append(found, link)
		}
	}
	return found
}
