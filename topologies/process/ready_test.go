package process_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

func TestAwaitReadySaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	d := runtest.Start(t, process.Backend{Log: slog.New(slog.NewTextHandler(&log, nil))}, topologies.Sentinels, topologies.Options{})
	require.Contains(t, log.String(), `msg="starting servers" servers=[redis-1]`)

	// An acknowledgement that takes a tenth of a second is one.
	mend, err := d.Proxy("redis-2>redis-1").Put(topologies.Upstream, topologies.Latency(100*time.Millisecond, 0))
	require.NoError(t, err)
	require.NoError(t, d.AwaitReady(within(t)))
	mend()

	require.NoError(t, d.Server("redis-2").Kill(within(t)))
	log.Reset()
	err = d.AwaitReady(runtest.Within(t, 2*time.Second))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "redis-2 to answer")
	require.ErrorContains(t, err, "MASTER <-> REPLICA sync: Finished with success", "the server's last words")
	require.Contains(t, log.String(), `msg=waiting for="redis-2 to answer"`)
	require.Less(t, bytes.Count(log.Bytes(), []byte("msg=waiting")), 10, "it is said when it changes, and not at each look:\n%s", log.String())
}

func TestAMasterRefusesWritesWithoutItsMinReplicas(t *testing.T) {
	t.Parallel()
	d := runtest.Start(t, runtest.Servers(), topologies.Sentinels, topologies.Options{MinReplicas: 2})
	ctx := within(t)
	require.NoError(t, d.Server("redis-3").Kill(ctx))
	require.Eventually(t, func() bool {
		err := d.Server("redis-1").Observer().Set(ctx, "k", "v", 0).Err()
		return err != nil && err.Error() == "NOREPLICAS Not enough good replicas to write."
	}, time.Minute, 20*time.Millisecond)
}

// A server that sentinels promoted is a master still when it is started again,
// although it was none at boot.
func TestAPromotedServerStaysOneWhenItIsStartedAgain(t *testing.T) {
	t.Parallel()
	d := start(t, "sentinel")
	ctx := within(t)
	require.NoError(t, d.Promote(ctx, "redis-1"))
	master, err := d.AwaitMaster(ctx, "redis-1", "redis-1")
	require.NoError(t, err)
	require.NoError(t, d.Disarm(ctx))
	require.NoError(t, d.AwaitReady(ctx))
	require.NoError(t, d.Server(master).Kill(ctx))
	require.NoError(t, d.Server(master).Restart(ctx))
	require.NoError(t, d.AwaitReady(ctx))
	require.Equal(t, master, topologiestest.MasterOf(ctx, t, d, "redis-1"))
}
