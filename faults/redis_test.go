package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// What has no effect is an error. (That it leaves nothing behind, faultstest checks of what is called off.)
func TestFaultsWithoutEffect(t *testing.T) {
	t.Parallel()
	d := deployed(t, topologies.Single)
	server := d.Server("redis-1")
	require.NoError(t, server.Observer().FlushAll(t.Context()).Err())
	for _, f := range []faults.Fault{
		built(t, d, "flush", server.Name()), built(t, d, "drop-key", server.Name(), "pattern", "lock:*"), built(t, d, "corrupt-key", server.Name(), "pattern", "lock:*"),
		built(t, d, "kill-pubsub", server.Name()), built(t, d, "evict", server.Name()),
	} {
		t.Run(f.Fault, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := f.Inject(ctx)
			require.ErrorContains(t, err, f.Fault+" on redis-1: ")
		})
	}
}

// Each node of a cluster takes the keys of its own slots only, and of one at a
// time.
func TestFaultsOfAClustersNode(t *testing.T) {
	t.Parallel()
	d := deployed(t, topologies.Cluster)
	rdb := client(t, d)
	masters := []topologies.Server{d.Server("redis-1"), d.Server("redis-2"), d.Server("redis-3")}
	for i, step := range []faults.Step{
		{Fault: "out-of-memory"},
		{Fault: "evict"},
		{Fault: "flush"},
		{Fault: "pause-writes"},
		{Fault: "busy-script"},
		{Fault: "script-flush"},
		{Fault: "drop-key", Params: map[string]string{"pattern": "lock:*"}},
		{Fault: "corrupt-key", Params: map[string]string{"pattern": "lock:*"}},
	} {
		server := masters[i%len(masters)]
		step.Target = server.Name()
		t.Run(step.Fault+" on "+step.Target, func(t *testing.T) {
			for i := range 60 {
				require.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("lock:%d", i), 1, time.Minute).Err())
			}
			n, err := server.Observer().WithTimeout(time.Minute).DBSize(t.Context()).Result()
			require.NoError(t, err)
			require.Greater(t, n, int64(1), "it has several, each in a slot of its own")
			injection, err := made(t, faults.Site{Deployment: d}, step).Inject(t.Context())
			require.NoError(t, err)
			require.Contains(t, injection.Effect, step.Target)
			if injection.Heal != nil {
				_, err := injection.Heal(t.Context())
				require.NoError(t, err)
			}
			require.NoError(t, d.AwaitReady(t.Context()))
		})
	}
}
