package process_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// An ensemble of ZooKeeper does what a cluster of etcd does.
func TestZooKeeperKeepsTheContract(t *testing.T) {
	t.Parallel()
	runtest.NeedStore(t, topologies.StoreZooKeeper)
	runtest.NeedCompiler(t)
	began := time.Now()
	d, err := startMembers(t, topologies.ZooKeeperEnsemble)
	require.NoError(t, err)
	t.Logf("whole after %v", time.Since(began))
	membersKeepTheContract(t, d, func() {
		for _, member := range d.Topology().Servers() {
			require.Empty(t, pastTheLinks(t, member, d.Server(member)))
		}
		for _, pair := range [][2]string{{"zookeeper-1", "zookeeper-2"}, {"zookeeper-2", "zookeeper-3"}, {"zookeeper-1", "zookeeper-3"}} {
			there, back := d.Proxy(pair[0]+">"+pair[1]), d.Proxy(pair[1]+">"+pair[0])
			require.Positive(t, there.Reset()+back.Reset(), "%s and %s are not connected by their links", pair[0], pair[1])
		}
	})
}

// pastTheLinks are the ends of connections that a member has to another one and that no
// proxy made: of each that it dialled, the address is one that another announces.
func pastTheLinks(t *testing.T, member string, s topologies.Server) []string {
	t.Helper()
	conf, err := os.ReadFile(filepath.Join(filepath.Dir(s.Log()), "zoo.cfg"))
	require.NoError(t, err)
	listens := regexp.MustCompile(`clientPortAddress=127\.(\d+)\.1\.(\d+)`).FindStringSubmatch(string(conf))
	require.NotNil(t, listens)
	slot, err := strconv.Atoi(listens[1])
	require.NoError(t, err)
	host, err := strconv.Atoi(listens[2])
	require.NoError(t, err)
	ours := map[string]bool{}
	open, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range open {
		if socket, err := os.Readlink(fd); err == nil {
			ours[socket] = true
		}
	}
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	// An address as the kernel writes it: the bytes in the machine's order.
	at := func(plane, host int) string {
		return fmt.Sprintf("%08X:", binary.LittleEndian.Uint32([]byte{127, byte(slot), byte(plane), byte(host)}))
	}
	var found []string
	peers, dialled := 0, at(1, host)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || !strings.HasPrefix(fields[1], dialled) || fields[3] != "01" {
			continue
		}
		if ours["socket:["+fields[9]+"]"] {
			continue // a proxy's, towards the other
		}
		for other := range 5 {
			if port := fields[2][9:]; strings.HasPrefix(fields[2], at(1, other+1)) && (port == fmt.Sprintf("%04X", 22888) || port == fmt.Sprintf("%04X", 23888)) {
				found = append(found, member+" dialled "+fields[2])
			}
			if strings.HasPrefix(fields[2], at(2, other+1)) {
				peers++
			}
		}
	}
	t.Logf("%s dialled %d peers by what they announce", member, peers)
	return found
}

// What is wrong with the Java or the ZooKeeper of a machine is said in a sentence.
func TestZooKeeperThatCantBeUsed(t *testing.T) {
	jar := filepath.Join(t.TempDir(), "zookeeper.jar")
	require.NoError(t, os.WriteFile(jar, nil, 0o600))
	version := func(is, otherwise string) string {
		return script(t, `for a; do last=$a; done; case $last in *VersionInfoMain) echo "Apache ZooKeeper, version `+is+` 2024-12-29";; *) `+otherwise+`;; esac`)
	}
	for _, tt := range []struct {
		name, jar, java, want string
		is                    error
	}{
		{"a jar that is not there", "/nowhere/zookeeper.jar", "", "LOCKCHAOS_ZOOKEEPER names /nowhere/zookeeper.jar, and there is no such jar", topologies.ErrUnusable},
		{"a java that is not there", jar, "/nowhere/java", "LOCKCHAOS_JAVA names /nowhere/java, and there is no such program", topologies.ErrUnusable},
		{"another jar", jar, script(t, "echo Error: no main class >&2; exit 1"), "runs no ZooKeeper from " + jar + ": Error: no main class", topologies.ErrUnusable},
		{"another program", jar, script(t, "echo hello"), "no version of ZooKeeper in what it prints", topologies.ErrUnusable},
		{"too old", jar, version("3.4.13", ""), "zookeeper is too old: " + jar + " is version 3.4.13, and 3.8.0 is the oldest", topologies.ErrTooOld},
		{"a member that does not come up", jar, version("3.8.0", "echo no room on this disk; exit 1"), "no room on this disk", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(process.ZooKeeperVariable, tt.jar)
			t.Setenv(process.JavaVariable, tt.java)
			_, err := startMembers(t, topologies.ZooKeeperEnsemble)
			require.ErrorContains(t, err, tt.want)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
				require.NotContains(t, err.Error(), "\n")
			}
		})
	}
	t.Run("no java", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		t.Setenv(process.ZooKeeperVariable, jar)
		_, err := startMembers(t, topologies.ZooKeeperEnsemble)
		require.ErrorIs(t, err, topologies.ErrMissing)
		require.ErrorContains(t, err, "no java, which ZooKeeper runs on (install it with `make zookeeper` or `apt-get install default-jre-headless`")
	})
}
