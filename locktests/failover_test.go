package locktests

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func optionsOf(n *redistest.Name) *redis.Options {
	o := &redis.Options{}
	n.Use(o)
	return o
}

// A client that listens to every channel is none to which a lock can be handed over.
func TestListenerToAllChannelsIsNoWaiter(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	all := rdb.PSubscribe(t.Context(), "*")
	defer all.Close()
	_, err := all.Receive(t.Context())
	require.NoError(t, err)
	c := open(t, s, lock.Config{})
	h := acquire(t, c, "a", long)
	draw(t, rdb, ticket("gone", "gone", "x", 60_000, 0), true)
	require.NoError(t, h.Release(t.Context()))
	again, err := c.Mutex("orders").Acquire(t.Context(), lock.Options{Owner: "b", Lease: long})
	require.NoError(t, err)
	require.NoError(t, again.Release(t.Context()))
}
