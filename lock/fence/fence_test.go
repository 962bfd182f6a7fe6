package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/fence"
	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// checker is either guard.
type checker func(name string, token int64) error

// guards lists the guards, each with nothing in it.
func guards(t *testing.T, run func(t *testing.T, check checker)) {
	t.Helper()
	t.Run("in memory", func(t *testing.T) { run(t, new(fence.Guard).Check) })
	t.Run("on Redis", func(t *testing.T) {
		g, err := fence.NewRedis(redistest.Start(t).Client(t, nil), fence.Config{})
		require.NoError(t, err)
		run(t, func(name string, token int64) error { return g.Check(t.Context(), name, token) })
	})
	t.Run("on Redis, with a life", func(t *testing.T) {
		g, err := fence.NewRedis(redistest.Start(t).Client(t, nil), fence.Config{Life: time.Hour})
		require.NoError(t, err)
		run(t, func(name string, token int64) error { return g.Check(t.Context(), name, token) })
	})
}

func TestGuards(t *testing.T) {
	guards(t, func(t *testing.T, check checker) {
		t.Helper()
		steps := []struct {
			name  string
			token int64
			want  error
		}{
			{"orders", 33, nil},
			{"orders", 33, nil}, // the holder's second write
			{"orders", 34, nil},
			{"orders", 33, fence.ErrStale},
			{"orders", 9, fence.ErrStale}, // not as text
			{"orders", 34, nil},           // a refusal changes nothing
			{"other", 1, nil},
			{"orders", 0, fence.ErrNotFenced},
			{"orders", -1, fence.ErrNotFenced},
			{"orders", 100, nil},
			{"orders", 99, fence.ErrStale},
			{"orders", math.MaxInt64 - 1, nil}, // exact beyond 2^53
			{"orders", math.MaxInt64 - 2, fence.ErrStale},
			{"orders", math.MaxInt64, nil},
			{"orders", math.MaxInt64 - 1, fence.ErrStale},
		}
		for i, s := range steps {
			require.ErrorIs(t, check(s.name, s.token), s.want, "step %d", i)
		}
		err := check("orders", 7)
		require.ErrorContains(t, err, "token 7")
		require.ErrorContains(t, err, fmt.Sprint(math.MaxInt64), "both tokens are named")
		require.ErrorContains(t, err, `"orders"`)
		require.False(t, errors.Is(err, fence.ErrNotFenced))
		require.False(t, errors.Is(check("orders", 0), fence.ErrStale))
		require.ErrorContains(t, check("", 1), "say which resource")
	})
}

// The next holder doesn't come in between the check of the former and its write.
func TestNothingSlipsInBetween(t *testing.T) {
	var g fence.Guard
	var wrote []int64 // without a lock of its own, for the race detector
	var work sync.WaitGroup
	for token := range int64(100) {
		work.Go(func() {
			err := g.Do("orders", token+1, func() error {
				wrote = append(wrote, token+1)
				runtime.Gosched()
				if last := wrote[len(wrote)-1]; last != token+1 {
					t.Errorf("%d was written while %d was", last, token+1)
				}
				return nil
			})
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	require.True(t, slices.IsSorted(wrote))
	require.Equal(t, int64(100), g.Greatest("orders"))

	require.NoError(t, g.Do("orders", 100, func() error { return g.Check("other", 1) }), "other resources don't wait")
	failed := errors.New("disk full")
	require.ErrorIs(t, g.Do("orders", 101, func() error { return failed }), failed)
	require.ErrorIs(t, g.Do("orders", 100, func() error { t.Error("called"); return nil }), fence.ErrStale)
	require.Equal(t, int64(101), g.Greatest("orders"), "remembered though it failed")
}

func TestForget(t *testing.T) {
	var g fence.Guard
	require.Zero(t, g.Greatest("orders"))
	g.Forget("orders")
	require.NoError(t, g.Check("orders", 33))
	require.Equal(t, int64(33), g.Greatest("orders"))
	g.Forget("orders")
	require.Zero(t, g.Greatest("orders"))
	require.NoError(t, g.Check("orders", 1))

	// Those who waited for their turn while it was forgotten agree on a new one.
	var work sync.WaitGroup
	for i := range int64(100) {
		work.Go(func() {
			if i%10 == 0 {
				g.Forget("orders")
			} else if err := g.Check("orders", i); err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	require.NoError(t, g.Check("orders", 1000))
	require.ErrorIs(t, g.Check("orders", 999), fence.ErrStale)
}

func TestSet(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	g, err := fence.NewRedis(rdb, fence.Config{})
	require.NoError(t, err)
	ctx := t.Context()
	for _, key := range []string{"stock", "{user:1}:cart", "a{b"} {
		require.NoError(t, g.Set(ctx, key, "a", 33))
		require.NoError(t, g.Set(ctx, key, "b", 34))
		require.ErrorIs(t, g.Set(ctx, key, "a again", 33), fence.ErrStale)
		require.ErrorIs(t, g.Set(ctx, key, "no lock", 0), fence.ErrNotFenced)
		require.Equal(t, "b", rdb.Get(ctx, key).Val())
		require.ErrorIs(t, g.Check(ctx, key, 33), fence.ErrStale, "the same memory")
		require.NoError(t, g.Set(ctx, key, 5, 34))
		require.Equal(t, "5", rdb.Get(ctx, key).Val())
	}
	slot := func(key string) int64 { return rdb.ClusterKeySlot(ctx, key).Val() }
	for key, token := range map[string]string{
		"stock": "fence:{stock}", "{user:1}:cart": "fence::{user:1}:cart", "a{b": "fence:{a{b}",
	} {
		require.Equal(t, int64(1), rdb.Exists(ctx, token).Val(), token)
		require.Equal(t, slot(key), slot(token), "%s and %s share a slot", key, token)
		require.Equal(t, time.Duration(-1), rdb.PTTL(ctx, token).Val(), "kept for good")
	}
	before := rdb.DBSize(ctx).Val()
	for _, key := range []string{"a}b", "{}b"} {
		require.ErrorContains(t, g.Set(ctx, key, "x", 1), "hash tag")
	}
	require.Equal(t, before, rdb.DBSize(ctx).Val())

	other, err := fence.NewRedis(rdb, fence.Config{Prefix: "other"})
	require.NoError(t, err)
	require.NoError(t, other.Check(ctx, "stock", 1), "prefixes keep guards apart")

	require.NoError(t, rdb.HSet(ctx, "fence:{hash}", "a", "b").Err())
	err = g.Set(ctx, "hash", "x", 1)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.False(t, errors.Is(err, fence.ErrStale))
	require.Zero(t, rdb.Exists(ctx, "hash").Val(), "nothing was written")
	require.NoError(t, rdb.Set(ctx, "fence:{text}", "not a number at all", 0).Err())
	require.ErrorContains(t, g.Set(ctx, "text", "x", 1), "strange token")
	require.Zero(t, rdb.Exists(ctx, "text").Val())
}

// What a life costs: after it, the former holder is let in.
func TestLife(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	g, err := fence.NewRedis(rdb, fence.Config{Life: time.Hour})
	require.NoError(t, err)
	require.NoError(t, g.Check(t.Context(), "orders", 34))
	life := rdb.PTTL(t.Context(), "fence:{orders}").Val()
	require.True(t, time.Hour/2 < life)
	require.True(t, life <= time.Hour)
	require.NoError(t, rdb.PExpire(t.Context(), "fence:{orders}", time.Minute).Err())
	require.ErrorIs(t, g.Check(t.Context(), "orders", 33), fence.ErrStale)
	require.True(t, rdb.PTTL(t.Context(), "fence:{orders}").Val() <= time.Minute, "a refusal doesn't prolong it")
	require.NoError(t, g.Check(t.Context(), "orders", 34))
	require.True(t, time.Hour/2 < rdb.PTTL(t.Context(), "fence:{orders}").Val())
	require.NoError(t, rdb.Del(t.Context(), "fence:{orders}").Err())
	require.NoError(t, g.Check(t.Context(), "orders", 33))
}

func TestLostReplyToSet(t *testing.T) {
	s := redistest.Start(t)
	link := &redistest.Link{}
	g, err := fence.NewRedis(s.Client(t, link.Use), fence.Config{})
	require.NoError(t, err)
	require.NoError(t, g.Set(t.Context(), "stock", "warm", 1))
	dropped := link.DropReply("evalsha")
	require.NoError(t, g.Set(t.Context(), "stock", "a", 33), "go-redis asked twice")
	<-dropped
	require.Equal(t, "a", s.Client(t, nil).Get(t.Context(), "stock").Val())
}

func TestConfig(t *testing.T) {
	require.NoError(t, fence.Config{}.Validate())
	_, err := fence.NewRedis(nil, fence.Config{Prefix: "{a}", Life: -1})
	for _, want := range []string{"no Redis client", "prefix", "life"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, fence.Config{Life: time.Microsecond}.Validate(), "at least 1ms")
}

func ExampleGuard() {
	var guard fence.Guard // at the resource
	write := func(h *lock.Hold) error {
		return guard.Do("orders", h.Lease().Token, func() error { return nil })
	}

	ctx := context.Background()
	locks := memory.New() // gives tokens, as a FencedMutex does
	zombie, _ := locks.Acquire(ctx, "orders", lock.Options{Owner: "a", Lease: time.Millisecond})
	<-zombie.Lost() // it is paused, and its lease ends
	next, _ := locks.Acquire(ctx, "orders", lock.Options{Owner: "b", Lease: time.Minute, Wait: lock.Forever})
	fmt.Println("b:", write(next))
	fmt.Println("a:", write(zombie))
	// Output:
	// b: <nil>
	// a: token 1 for "orders" after 2: stale fencing token
}
