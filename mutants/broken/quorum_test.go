package broken_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
	"github.com/lockchaos/lockchaos/mutants/broken"
)

// A release that one server carried out ended that vote, and with it perhaps the
// hold: another server may have answered no when the lease was over. An extension
// ends nothing.
func TestAQuorumRefusesAReleaseOnlyIfNoServerCarriedItOut(t *testing.T) {
	var servers []redis.UniversalClient
	for range 3 {
		servers = append(servers, redistest.Start(t).Client(t, nil))
	}
	l := broken.CorrectQuorum(broken.Setup{Servers: servers, Timeout: timeout})
	defer l.Close()
	for lost, definite := range map[int]bool{2: false, 3: true} {
		h, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
		require.NoError(t, err)
		for _, rdb := range servers[:lost] {
			require.NoError(t, rdb.Del(t.Context(), broken.Key("orders")).Err())
		}
		_, err = l.Extend(t.Context(), h.Lease(), time.Minute)
		require.ErrorIs(t, err, lock.ErrNotHeld)
		err = h.Release(t.Context())
		require.Error(t, err)
		require.Equal(t, definite, errors.Is(err, lock.ErrNotHeld), "%d votes lost: %v", lost, err)
	}
}

// A vote that outlasts the lease makes no hold.
func TestAQuorumRefusesAReleaseAfterTheLease(t *testing.T) {
	var servers []redis.UniversalClient
	for range 3 {
		servers = append(servers, redistest.Start(t).Client(t, nil))
	}
	l := broken.CorrectQuorum(broken.Setup{Servers: servers, Timeout: timeout})
	defer l.Close()
	h, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Second})
	require.NoError(t, err)
	require.NoError(t, servers[0].Persist(t.Context(), broken.Key("orders")).Err())
	redistest.Await(t, "the other votes to end", func() bool {
		return servers[1].Exists(t.Context(), broken.Key("orders")).Val()+servers[2].Exists(t.Context(), broken.Key("orders")).Val() == 0
	})
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
}
