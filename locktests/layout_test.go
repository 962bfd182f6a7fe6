package locktests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A lock that one request holds is a string, until there is more to say of it.
// Whatever makes it a hash leaves who holds it, and until when.
func TestWhatMakesALockAHash(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	const key = "lock:{orders}"
	for name, do := range map[string]func(t *testing.T, h *lock.Hold){
		"another owner is refused": func(t *testing.T, _ *lock.Hold) {
			t.Helper()
			_, err := c.Mutex("orders").Acquire(t.Context(), lock.Options{Owner: "b"})
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		},
		"another owner of the fair one": func(t *testing.T, _ *lock.Hold) {
			t.Helper()
			_, err := c.FairMutex("orders").Acquire(t.Context(), lock.Options{Owner: "b"})
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		},
		"a re-entry": func(t *testing.T, _ *lock.Hold) {
			t.Helper()
			again := acquire(t, c, "a owner", long)
			require.Equal(t, 2, again.Lease().Holds)
			require.NoError(t, again.Release(t.Context()))
		},
		"a re-entry of the fair one": func(t *testing.T, _ *lock.Hold) {
			t.Helper()
			again, err := c.FairMutex("orders").Acquire(t.Context(), lock.Options{Owner: "a owner", Lease: long})
			require.NoError(t, err)
			require.Equal(t, 2, again.Lease().Holds)
			require.NoError(t, again.Release(t.Context()))
		},
		"a release by another client": func(t *testing.T, h *lock.Hold) {
			t.Helper()
			n, err := rdb.Eval(t.Context(), lock.Scripts()["release"], plainKeys(key, "other"), held("other", "owner"), 1, "", "channel").Int()
			require.NoError(t, err)
			require.Zero(t, n)
			require.True(t, time.Now().Before(h.Lease().Expires))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := acquire(t, c, "a owner", long)
			require.Equal(t, "held "+h.Lease().Request+" a owner", rdb.Get(t.Context(), key).Val())
			do(t, h)
			require.Equal(t, "hash", rdb.Type(t.Context(), key).Val())
			state, err := c.Mutex("orders").State(t.Context())
			require.NoError(t, err)
			require.Equal(t, "a owner", state.Owner)
			require.WithinDuration(t, h.Lease().Expires, time.Now().Add(rdb.PTTL(t.Context(), key).Val()), 5*time.Second)
			require.NoError(t, h.Release(t.Context()))
			require.Zero(t, rdb.Exists(t.Context(), key).Val())
		})
	}
}
