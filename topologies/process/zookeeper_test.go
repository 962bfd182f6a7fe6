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
			if port := fields[2][9:]; strings.HasPrefix(fields[2], at(1, other+1)) && (port == fmt.Sprintf("%04X", 23001) || port == fmt.Sprintf("%04X", 23501)) {
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
