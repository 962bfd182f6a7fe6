package locktests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
	"github.com/lockchaos/lockchaos/topologies"
)

// While the slot of a lock moves to another server, with keys on both of them, no wait and
// no release ends, and no hold is lost.
func slotMoves(t *testing.T, d topologies.Deployment) {
	t.Helper()
	migrate, err := faults.ByName("migrate-slot")
	require.NoError(t, err)
	rdb := clients(t, d, "zone-a")[0]
	c := newClient(t, rdb, lock.Config{})
	other := newClient(t, clients(t, d, "zone-b")[0], lock.Config{})
	_, err = c.Semaphore("orders").TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	tries := func() (n string) { // how often servers said that a script's keys are not all there
		for _, name := range d.Topology().Of(topologies.Redis) {
			n += d.Server(name).Observer().InfoMap(t.Context(), "errorstats").Val()["Errorstats"]["errorstat_TRYAGAIN"] + " "
		}
		return n
	}
	o := lock.Options{Lease: long, Wait: lock.Forever}
	for _, kind := range kinds() {
		if kind.shared { // its holders share it
			continue
		}
		t.Run(kind.name, func(t *testing.T) {
			h, err := kind.of(c).Acquire(t.Context(), "orders", o)
			require.NoError(t, err)
			fault, err := migrate.New(faults.Site{Deployment: d}, faults.Step{Params: map[string]string{"key": kind.key}})
			require.NoError(t, err)
			move, err := fault.Inject(t.Context())
			require.NoError(t, err)
			require.Equal(t, int64(1), rdb.Exists(t.Context(), kind.key).Val(), "it is asked for at the other server")

			err = h.Extend(t.Context(), 2*long)
			require.NotErrorIs(t, err, lock.ErrNotHeld)
			before := tries()
			next := make(chan *lock.Hold, 1)
			go func() {
				defer close(next)
				if h, err := kind.of(other).Acquire(t.Context(), "orders", o); err == nil {
					next <- h
				}
			}()
			redistest.Await(t, "a request whose keys are not all there", func() bool { return tries() != before })
			before = tries()
			released := make(chan error, 1)
			go func() { released <- h.Release(t.Context()) }()
			redistest.Await(t, "another one", func() bool { return tries() != before })
			_, err = move.Heal(t.Context())
			require.NoError(t, err)
			require.NoError(t, <-released)
			h = <-next
			require.NotNil(t, h)
			require.NoError(t, h.Extend(t.Context(), 2*long))
			require.NoError(t, h.Release(t.Context()))
		})
	}
}
