package locktests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
	"github.com/lockchaos/lockchaos/topologies"
)

// slotIsMoving begins to move the slot of a key to another server.
func slotIsMoving(t *testing.T, d topologies.Deployment, key string) faults.Injection {
	t.Helper()
	step, err := faults.Environment{Topology: d.Topology(), Script: true}.Resolve(faults.Step{Fault: "migrate-slot", Params: map[string]string{"key": key}})
	require.NoError(t, err)
	fault, err := step.On(faults.Site{Deployment: d})
	require.NoError(t, err)
	move, err := fault.Inject(t.Context())
	require.NoError(t, err)
	return move
}

// While the slot of a lock moves to another server, with keys on both of them, no wait and
// no release ends, and no hold is lost.
func slotMoves(t *testing.T, d topologies.Deployment) {
	t.Helper()
	rdb := clients(t, d, "zone-a")[0]
	c := newClient(t, rdb, lock.Config{})
	other := newClient(t, clients(t, d, "zone-b")[0], lock.Config{})
	_, err := c.Semaphore("orders").TrySetPermits(t.Context(), 1)
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
			move := slotIsMoving(t, d, kind.key)
			require.Equal(t, int64(1), rdb.Exists(t.Context(), kind.key).Val(), "it is asked for at the other server")

			err = h.Extend(t.Context(), 2*long)
			require.NotErrorIs(t, err, lock.ErrNotHeld)
			before := tries()
			next := granting(t.Context(), t, kind.of(other), o)
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

// While the slot of a lock moves to another server, and for as long as that takes, a lock
// that is held is refused, held by its owner, released, and granted to the next.
func slotStaysMoving(t *testing.T, d topologies.Deployment) {
	t.Helper()
	c := newClient(t, clients(t, d, "zone-a")[0], lock.Config{})
	other := newClient(t, clients(t, d, "zone-b")[0], lock.Config{})
	o := lock.Options{Lease: long}
	for _, kind := range kinds() {
		if kind.family != "" && kind.family != "fair_" {
			continue // it is kept in one key
		}
		asks := kind.name == "Mutex" || kind.name == "SpinMutex" // it can be asked for, too
		t.Run(kind.name, func(t *testing.T) {
			h, err := kind.of(c).Acquire(t.Context(), "orders", o)
			require.NoError(t, err)
			move := slotIsMoving(t, d, "lock:{orders}")
			if asks {
				_, err = kind.of(other).Acquire(t.Context(), "orders", o)
				require.ErrorIs(t, err, lock.ErrNotAcquired)
			}
			require.NoError(t, h.Extend(t.Context(), 2*long))
			require.NoError(t, h.Release(t.Context()))
			require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
			if asks {
				for range 3 { // a free lock, whose other keys are not all at one server
					h, err = kind.of(other).Acquire(t.Context(), "orders", o)
					require.NoError(t, err)
					waits := granting(t.Context(), t, kind.of(c), lock.Options{Lease: long, Wait: lock.Forever})
					require.NoError(t, h.Release(t.Context()))
					next := <-waits
					require.NotNil(t, next)
					require.Greater(t, time.Until(next.Lease().Expires), long/2)
					require.NoError(t, next.Release(t.Context()))
				}
			}
			_, err = move.Heal(t.Context())
			require.NoError(t, err)
		})
	}
}
