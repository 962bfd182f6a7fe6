package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/topologies"
)

// start starts an etcd with nothing in it, and returns the address of one of its members.
func start(t *testing.T) string {
	t.Helper()
	d := runtest.Start(t, runtest.Backend{}, topologies.EtcdCluster, topologies.Options{})
	return d.Server("etcd-1").Observer().Options().Addr
}

func open(t *testing.T, at string, ttl time.Duration) (*etcd.Locker, *clientv3.Client) {
	t.Helper()
	c, err := etcd.Dial(at)
	require.NoError(t, err)
	l := etcd.New(c, ttl)
	t.Cleanup(func() {
		l.Close()
		require.NoError(t, c.Close())
	})
	return l, c
}

func TestContract(t *testing.T) {
	t.Parallel()
	at := start(t)
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		l, c := open(t, at, time.Minute)
		_, err := c.Delete(t.Context(), "/lockchaos/", clientv3.WithPrefix())
		require.NoError(t, err)
		return l
	}, locktest.Features{Fenced: true, Lease: 2 * time.Second, Callers: 40})
}

// A hold is lost with its session.
func TestSessionThatEnds(t *testing.T) {
	t.Parallel()
	at := start(t)
	l, c := open(t, at, 5*time.Second)
	h, err := l.Acquire(t.Context(), "orders", lock.Options{})
	require.NoError(t, err)
	leases, err := c.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1)
	_, err = c.Revoke(t.Context(), leases.Leases[0].ID)
	require.NoError(t, err)
	<-h.Lost()
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
	again, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, again.Release(t.Context()))
}
