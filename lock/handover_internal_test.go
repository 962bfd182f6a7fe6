package lock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What a message says is believed from the instant at which it was sent, and
// never from a later one; and not at all where half the lease may be over.
func TestWhenALockWasHandedOver(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	const ago = 2 * time.Second // since the refusal, in which the server's clock said 1000
	tests := []struct {
		name, message string
		latest        time.Duration // when it was sent at the latest, after the refusal
		ok            bool
	}{
		{"at once", "1000 6000 7 lock:{orders}", 0, true},
		{"later", "2500 7500 7 lock:{orders}", 1500 * time.Millisecond, true},
		{"just now", "3000 8000 7 lock:{orders}", 2 * time.Second, true},
		{"clock set forward", "9000 14000 7 lock:{orders}", 2 * time.Second, true},
		{"before the refusal, or clock set back", "500 5500 7 lock:{orders}", 0, false},
		{"too late", "1000 3000 7 lock:{orders}", 0, false},
		{"no lease", "3000 3000 7 lock:{orders}", 0, false},
		{"nothing", "", 0, false},
		{"too little", "1000 6000 7", 0, false},
		{"no numbers", "1000 6000 x lock:{orders}", 0, false},
		{"a key with spaces", "2500 7500 7 lock:{a b c}", 1500 * time.Millisecond, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := c.Mutex("orders").grant(Options{Wait: Forever})
			g.refused = instant{sent: time.Now().Add(-ago), server: 1000}
			a, ok := g.handed(tt.message)
			require.Equal(t, tt.ok, ok)
			if !ok {
				return
			}
			require.Equal(t, int64(7), a.token)
			require.False(t, a.expires.After(c.expires(g.refused.sent.Add(tt.latest), handedLease).Add(100*time.Millisecond)))
			require.False(t, a.expires.After(c.expires(time.Now(), handedLease)))
			require.True(t, a.expires.After(c.expires(g.refused.sent.Add(tt.latest), handedLease).Add(-100*time.Millisecond)),
				"no more is left out than the drift")
		})
	}
	t.Run("drawn again", func(t *testing.T) { // so the message may be from before
		g := c.Mutex("orders").grant(Options{Wait: Forever})
		g.refused, g.redrawn = instant{sent: time.Now(), server: 1000}, true
		_, ok := g.handed("1000 6000 7 lock:{orders}")
		require.False(t, ok)
	})
	t.Run("never refused", func(t *testing.T) {
		_, ok := c.Mutex("orders").grant(Options{Wait: Forever}).handed("1000 6000 7 lock:{orders}")
		require.False(t, ok)
	})
}

// tickets.lua and this package agree on how long a lock is handed over.
func TestScriptsKnowTheHandedLease(t *testing.T) {
	require.Contains(t, ticketsLua, "local ticketLife, silence, markLife, handed = 15000, 10000, 15000, 5000")
	require.Equal(t, 5*time.Second, handedLease)
	require.Equal(t, 15*time.Second, markLife)
}
