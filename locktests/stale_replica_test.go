package locktests

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A replica that doesn't know what its master did since can't confirm an extension, also of one
// that is shorter than what is left of the lease.
func TestStaleReplicaConfirmsNoExtension(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	replica, detach := s.Replica(t)
	name := &redistest.Name{}
	name.Move(s)
	rdb := s.Client(t, func(o *redis.Options) { name.Use(o) })
	c := newClient(t, rdb, lock.Config{})
	h := acquire(t, c, "a", long)
	direct := s.Client(t, nil)
	require.Equal(t, int64(1), direct.Wait(t.Context(), 1, time.Minute).Val(), "the replica has the grant")
	detach()
	other := open(t, s, lock.Config{})
	_, err := other.Mutex("orders").ForceUnlock(t.Context())
	require.NoError(t, err)
	next := acquire(t, other, "b", long)

	name.Move(replica)
	require.NoError(t, direct.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	for _, d := range []time.Duration{time.Second, 10 * time.Second, 2 * long} {
		require.ErrorContains(t, h.Extend(t.Context(), d), "READONLY", "for %v", d)
	}
	require.NoError(t, next.Release(t.Context()))
}
