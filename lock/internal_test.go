package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock/internal/redistest"
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

func TestKeysShareASlot(t *testing.T) {
	names := rapid.StringOfN(rapid.SampledFrom([]rune("{}%ab:7BD25")), 1, 8, -1)
	rapid.Check(t, func(t *rapid.T) {
		name, other := names.Draw(t, "name"), names.Draw(t, "other")
		k := keysOf("lock", name)
		for _, key := range []string{k.mark("r"), k.channel} {
			if hashed(key) != hashed(k.lock) {
				t.Fatalf("%q and %q of lock %q are in different slots", key, k.lock, name)
			}
		}
		if tag := hashed(name); tag != name && hashed(k.lock) != tag {
			t.Fatalf("lock %q lost its hash tag in %q", name, k.lock)
		}
		if name != other && keysOf("lock", other).lock == k.lock {
			t.Fatalf("locks %q and %q share key %q", name, other, k.lock)
		}
	})
}

// A copy of a request that arrives after its withdrawal gets nothing.
func TestRequestThatArrivesAfterItsWithdrawal(t *testing.T) {
	s := redistest.Start(t)
	c, err := New(s.Client(t, nil), Config{})
	require.NoError(t, err)
	defer c.Close()
	g := &grant{Mutex: c.Mutex("orders"), owner: "a", request: "r", lease: time.Minute}
	require.NoError(t, g.withdraw(t.Context()))
	a, err := g.ask(t.Context())
	require.NoError(t, err)
	require.False(t, a.granted)
	locked, err := g.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)
}
