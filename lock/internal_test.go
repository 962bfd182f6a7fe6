package lock

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// hashed is what Redis hashes of a key, as the cluster specification has it.
func hashed(key string) string {
	begin := strings.Index(key, "{")
	if begin < 0 {
		return key
	}
	length := strings.Index(key[begin+1:], "}")
	if length <= 0 {
		return key
	}
	return key[begin+1 : begin+1+length]
}

// all are the keys that locks of a name may have.
func all(k keys) []string {
	var names []string
	for _, k := range []keys{k, k.in("semaphore"), k.in("latch")} {
		names = slices.Concat(names, k.plain("r"), k.queue("r"), k.semaphore("r"))
	}
	return names
}

func TestKeysShareASlot(t *testing.T) {
	const letters = "{}%ab:7BD25"
	parts := []string{"token", "released:r", "readers", "writers", "places", "grants", "semaphore", "semaphore:grants"}
	prefixes := []string{"lock", "lock:", "lock:token", "lock:semaphore"}
	draws(t, func(t *testing.T, rng *rand.Rand) {
		t.Helper()
		draw := func() string {
			name := make([]byte, 1+rng.IntN(8))
			for i := range name {
				name[i] = letters[rng.IntN(len(letters))]
			}
			return string(name)
		}
		name, other := draw(), draw()
		if part := oneOf(rng, parts...); rng.IntN(2) == 0 {
			other = oneOf(rng, name+":"+part, part+":"+name, ":"+name)
		}
		prefix, otherPrefix := oneOf(rng, prefixes...), oneOf(rng, prefixes...)
		k := keysOf(prefix, name)
		for _, key := range append(all(k), k.channel, k.readers(), k.writers()) {
			if hashed(key) != hashed(k.lock) {
				t.Fatalf("%q and %q of lock %q are in different slots", key, k.lock, name)
			}
		}
		if tag := hashed(name); tag != name && hashed(k.lock) != tag {
			t.Fatalf("lock %q lost its hash tag in %q", name, k.lock)
		}
		for _, key := range all(keysOf(otherPrefix, other)) {
			if (name != other || prefix != otherPrefix) && slices.Contains(all(k), key) {
				t.Fatalf("locks %q of %q and %q of %q share key %q", name, prefix, other, otherPrefix, key)
			}
		}
	})
}

// A copy of a request that arrives after its withdrawal gets nothing.
func TestRequestThatArrivesAfterItsWithdrawal(t *testing.T) {
	s := redistest.Start(t)
	c, err := New(s.Client(t, nil), Config{})
	require.NoError(t, err)
	defer c.Close()
	m := c.Mutex("orders")
	g := m.grant(Options{Owner: "a", Lease: time.Minute})
	require.NoError(t, g.withdraw(t.Context()))
	a, err := g.try(t.Context())
	require.NoError(t, err)
	require.False(t, a.granted)
	state, err := m.State(t.Context())
	require.NoError(t, err)
	require.Zero(t, state)
}

// closedClient is a client that starts nothing.
func closedClient(t *testing.T) *Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	c.Close()
	return c
}

func TestNothingIsWatchedAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := New(s.Client(t, nil), Config{Watchdog: time.Second})
	require.NoError(t, err)
	defer c.Close()
	for range 3 {
		h, err := c.Acquire(t.Context(), "orders", Options{})
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
	}
	h, err := c.Acquire(t.Context(), "orders", Options{})
	require.NoError(t, err)
	_, err = c.Mutex("orders").ForceUnlock(t.Context())
	require.NoError(t, err)
	<-h.Lost() // the watchdog has seen it
	require.Len(t, maps.Collect(c.held.Range), 0)
}
