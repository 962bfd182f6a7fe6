package locktests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// WAIT counts the replicas that have all that the server had written when the script
// before it ran, also where that script found its work done by an earlier copy, over
// another connection, and wrote nothing.
func TestRepetitionNeedsTheAcksToo(t *testing.T) {
	t.Parallel()
	server, link, ctx := redistest.Start(t), &redistest.Link{}, t.Context()
	replica, _ := server.Replica(t)
	plain := open(t, server, lock.Config{})
	require.NoError(t, plain.Semaphore("orders").SetPermits(ctx, 5))
	require.NoError(t, plain.Semaphore("orders").Acquire(ctx, 2, 0))
	_, err := plain.CountDownLatch("orders").TrySetCount(ctx, 3)
	require.NoError(t, err)
	_, err = plain.CountDownLatch("orders").CountDown(ctx) // so that the server knows the scripts
	require.NoError(t, err)
	require.NoError(t, plain.Semaphore("orders").Release(ctx, 1))
	replica.Pause(t)
	c := newClient(t, server.Client(t, link.Use), lock.Config{ReplicaAcks: 1, AckTimeout: 20 * time.Millisecond})
	s, l := c.Semaphore("orders"), c.CountDownLatch("orders")
	for script, change := range map[string]func() error{
		"semaphore_size":    func() error { return s.AddPermits(ctx, 1) },
		"semaphore_acquire": func() error { return s.Acquire(ctx, 1, 0) },
		"semaphore_give":    func() error { return s.Release(ctx, 1) },
		"latch_down":        func() error { _, err := l.CountDown(ctx); return err },
	} {
		require.Error(t, change(), script) // and from now on by digest
		dropped := link.DropReply(digest(t, script))
		err := change()
		<-dropped
		require.Error(t, err, script)
		require.Regexp(t, "0 of 1 replicas|not replicated", err.Error(), script)
	}
}
