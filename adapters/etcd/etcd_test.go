package etcd_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/internal/etcdserver"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
)

func start(t *testing.T) *etcdserver.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server; -short leaves them out")
	}
	if _, err := etcdserver.Find(); err != nil {
		if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s, err := etcdserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func open(t *testing.T, s *etcdserver.Server, ttl time.Duration) (*etcd.Locker, *clientv3.Client) {
	t.Helper()
	c, err := etcd.Dial(s.Endpoint())
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
	s := start(t)
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		l, c := open(t, s, time.Minute)
		_, err := c.Delete(t.Context(), "/lockchaos/", clientv3.WithPrefix())
		require.NoError(t, err)
		return l
	}, locktest.Features{Fenced: true, Lease: 2 * time.Second, Callers: 40})
}

// A hold is lost with its session.
func TestSessionThatEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	l, c := open(t, s, 5*time.Second)
	h, err := l.Acquire(t.Context(), "orders", lock.Options{})
	require.NoError(t, err)
	leases, err := c.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1)
	_, err = c.Revoke(t.Context(), leases.Leases[0].ID)
	require.NoError(t, err)
	select {
	case <-h.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the session ended, and the hold was not lost")
	}
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
	again, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, again.Release(t.Context()))
}
