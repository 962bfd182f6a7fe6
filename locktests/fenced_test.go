package locktests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

const tokenKey = "lock:{orders}:token"

// Each grant's token is greater than that of the one before, whatever ended that
// and whatever became of the last token. Redisson's begin anew at 1 when the lock
// is deleted.
func TestTokensGrow(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	c, other := open(t, s, lock.Config{}), open(t, s, lock.Config{})
	var last int64
	next := func(c *lock.Client, why string) *lock.Hold {
		t.Helper()
		h := acquire(t, c.Fenced(), "a", long)
		require.Greater(t, h.Lease().Token, last, why)
		last = h.Lease().Token
		return h
	}
	require.NoError(t, next(c, "the first").Release(ctx))
	require.NoError(t, next(c, "a release").Release(ctx))
	require.NoError(t, next(other, "another client").Release(ctx))

	next(c, "a release by the other client")
	_, err := c.FencedMutex("orders").ForceUnlock(ctx)
	require.NoError(t, err)

	next(c, "a force unlock")
	require.NoError(t, rdb.Del(ctx, "lock:{orders}").Err()) // as at the end of the lease

	require.NoError(t, next(other, "an expiry").Release(ctx))
	require.NoError(t, rdb.Del(ctx, tokenKey).Err()) // as at the end of TokenLife
	require.NoError(t, next(c, "a token that was forgotten").Release(ctx))

	require.NoError(t, rdb.FlushAll(ctx).Err())
	require.NoError(t, next(c, "a server that lost its data").Release(ctx))

	// The clock is behind the last token: set back, or that of another server.
	ahead := rdb.Time(ctx).Val().Add(time.Hour).UnixMicro()
	require.NoError(t, rdb.Set(ctx, tokenKey, ahead, time.Minute).Err())
	for i := range int64(3) {
		h := next(c, "a clock that was set back")
		require.Equal(t, ahead+1+i, h.Lease().Token)
		require.NoError(t, h.Release(ctx))
	}
}

// A re-entry has the token of the hold that it re-enters: with a greater one, as
// Redisson gives, what the outer holder does is refused by the resource.
func TestReentryKeepsItsToken(t *testing.T) {
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	ctx := t.Context()
	outer := acquire(t, c.Fenced(), "a", long)
	inner := acquire(t, c.Fenced(), "a", long)
	token := outer.Lease().Token
	require.Equal(t, token, inner.Lease().Token)
	require.NoError(t, outer.Release(ctx))
	third := acquire(t, c.Fenced(), "a", long)
	require.Equal(t, token, third.Lease().Token, "the lock wasn't free in between")
	require.NoError(t, third.Extend(ctx, 2*long))
	require.Equal(t, token, third.Lease().Token)
	require.NoError(t, inner.Release(ctx))
	require.NoError(t, third.Release(ctx))
	next := acquire(t, c.Fenced(), "a", long)
	require.Greater(t, next.Lease().Token, token)
	require.NoError(t, next.Release(ctx))
}

// Redisson's counters stay for ever: 25 million in one deployment (redisson
// #6510).
func TestTokensAreForgotten(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	c := open(t, s, lock.Config{TokenLife: 3 * time.Second})
	h := acquire(t, c.Fenced(), "a", long)
	token := rdb.PTTL(ctx, tokenKey).Val()
	require.Positive(t, token)
	require.LessOrEqual(t, token, 3*time.Second)
	require.NoError(t, h.Release(ctx))
	for _, key := range rdb.Keys(ctx, "*").Val() {
		require.NotEqualValues(t, -1, rdb.PTTL(ctx, key).Val(), key)
	}
	redistest.Await(t, "the token to be forgotten", func() bool { return rdb.Exists(ctx, tokenKey).Val() == 0 })

	day := acquire(t, open(t, s, lock.Config{}).Fenced(), "a", long)
	require.Greater(t, rdb.PTTL(ctx, tokenKey).Val(), 23*time.Hour)
	require.NoError(t, day.Release(ctx))
}
