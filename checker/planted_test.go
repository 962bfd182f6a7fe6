package checker_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/mutants/broken"
	"github.com/lockchaos/lockchaos/workload"
)

// server starts a Redis server on a socket, for the length of the test.
func server(t *testing.T) redis.UniversalClient {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server")
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip("there is no redis-server")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	require.NoError(t, cmd.Start())
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	t.Cleanup(func() {
		_ = rdb.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() == nil }, time.Minute, 10*time.Millisecond)
	return rdb
}

// Every lock with a planted bug is caught by the property that should catch it,
// in a run against a real server.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, property, kind string
		make                 func(broken.Setup) *broken.Lock
	}{
		{"plain delete", "ownership", checker.ForeignRelease, broken.PlainDelete},
		{"constant token", "mutual-exclusion", checker.DoubleGrant, broken.ConstantToken},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			locker := test.make(broken.Setup{Servers: []redis.UniversalClient{server(t)}})
			t.Cleanup(locker.Close)
			// As long as it takes until the bug has shown, which is not long.
			require.Eventually(t, func() bool {
				var record bytes.Buffer
				r := history.NewRecorder(&record)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				workload.Run(ctx, workload.Config{Lease: 15 * time.Millisecond, Clients: 8, Locks: 1, Careless: true}, []workload.Zone{{Name: "zone", Locker: locker}}, r, &workload.Processes{})
				require.NoError(t, r.Close())
				report, err := checker.CheckReader(t.Context(), history.NewReader(&record))
				require.NoError(t, err)
				for _, v := range result(t, report, test.property).Violations {
					if v.Kind == test.kind {
						return true
					}
				}
				return false
			}, time.Minute, time.Millisecond)
		})
	}
}
