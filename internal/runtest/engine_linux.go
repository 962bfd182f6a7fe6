package runtest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// EngineLock waits for a lock on the container engine of this machine, and returns what gives it back. Tests with a network of
// Docker Compose share it. One that has the engine leave a swarm has it alone: an engine that leaves disconnects all
// containers from the networks that others may join, also those of no swarm, and docker-compose 1 makes no others
// (clearAttachableNetworks in moby's daemon/network.go). The tests of each user have a lock of their own.
func EngineLock(tb testing.TB, shared bool) (unlock func()) {
	tb.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("lockchaos-test-engine-%d.lock", os.Getuid())), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(tb, err)
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	require.NoError(tb, syscall.Flock(int(f.Fd()), how))
	return func() { require.NoError(tb, f.Close()) }
}
