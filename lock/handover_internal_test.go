package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// What a message says is believed from the instant at which the last refused request
// was sent, and never from a later one; only if it is of the ticket that was in the
// queue then; and not at all where much of the lease may be over: half of the watchdog's at first, and next to nothing of another.
func TestWhenALockWasHandedOver(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	tests := []struct {
		name, message string
		ago           time.Duration // since the refusal of ticket 1000
		ok            bool
	}{
		{"at once", "1000 5000 7 lock:{orders}", 0, true},
		{"later", "1000 5000 7 lock:{orders}", 2 * time.Second, true},
		{"too late", "1000 5000 7 lock:{orders}", 3 * time.Second, false},
		{"of another ticket", "2500 5000 7 lock:{orders}", 0, false},
		{"no lease", "1000 0 7 lock:{orders}", 0, false},
		{"nothing", "", 0, false},
		{"too little", "1000 5000 7", 0, false},
		{"no numbers", "1000 5000 x lock:{orders}", 0, false},
		{"a key with spaces", "1000 5000 7 lock:{a b c}", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := c.Mutex("orders").grant(Options{Wait: Forever})
			g.asked, g.number = time.Now().Add(-tt.ago), 1000
			a, ok := g.handed(tt.message)
			require.Equal(t, tt.ok, ok)
			if ok {
				require.Equal(t, int64(7), a.token)
				require.Equal(t, c.expires(g.asked, handedLease), a.expires)
			}
		})
	}
	t.Run("without a ticket", func(t *testing.T) {
		_, ok := c.Mutex("orders").grant(Options{Wait: Forever}).handed("0 5000 7 lock:{orders}")
		require.False(t, ok)
	})
}

// tickets.lua and this package agree on how long a mark lives.
func TestTheScriptsKnowHowLongAMarkLives(t *testing.T) {
	require.True(t, strings.Contains(Scripts()["release"], "local ticketLife, silence, markLife = 15000, 10000, 15000"))
	require.Equal(t, 15*time.Second, markLife)
}
