//go:build linux

package faultstest

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

// kept is what the other program has started: without a reference, the garbage
// collector would close it.
var kept topologies.Deployment

// harness is another program that this test binary is: it injects a fault, says so, and goes on until it is killed.
func harness(topology, fault string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	d, err := start(ctx, topology)
	if err != nil {
		return err
	}
	kept = d
	all := entries()
	e := all[slices.IndexFunc(all, func(e entry) bool { return e.Fault == fault && (e.on == topology || d.Topology().Consensus()) })]
	if d.Topology().Consensus() {
		e.Target = d.Topology().Servers()[0]
	} else if err := (&scene{d: d}).ready(ctx); err != nil {
		return fmt.Errorf("nothing to hit: %w", err)
	}
	f, err := e.make(d)
	if err != nil {
		return err
	}
	i, err := f.Inject(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Println(i.Effect); err != nil { //nolint:forbidigo // to the test
		return err
	}
	select {}
}

// TestHarness_killedDuringAFaultLeavesNothing kills a harness while a fault lasts: the last of each
// family on each topology, which of processes is one that stands still. Nightly every fault has its turn.
func TestHarness_killedDuringAFaultLeavesNothing(t *testing.T) {
	t.Parallel()
	need(t)
	type killed struct{ topology, fault string }
	every := []killed{{topologies.EtcdCluster, "pause"}, {topologies.ZooKeeperEnsemble, "pause"}}
	last := map[string]killed{topologies.EtcdCluster: every[0], topologies.ZooKeeperEnsemble: every[1]}
	for _, e := range entries() {
		if spec, _ := faults.ByName(e.Fault); e.lasts() {
			k := killed{e.on, e.Fault}
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
		t.Run(k.topology+" "+k.fault, func(t *testing.T) {
			t.Parallel()
			runtest.NeedStore(t, topologies.StoreOf(k.topology))
			tmp := t.TempDir()
			cmd := exec.Command(self, "harness", k.topology, k.fault)
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
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
			require.NoError(t, await.Until(runtest.Within(t, 2*time.Minute), func() error {
				if l := left(tmp); len(l) > 0 {
					return fmt.Errorf("left behind: %v", l)
				}
				return nil
			}))
		})
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
