package locktests

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

const latchKey = "lock:{orders}:latch"

// latch returns a latch that begins there.
func latch(t *testing.T, c *lock.Client, count int) *lock.CountDownLatch {
	t.Helper()
	l := c.CountDownLatch("orders")
	set, err := l.TrySetCount(t.Context(), count)
	require.NoError(t, err)
	require.True(t, set)
	return l
}

// reached is what a wait in the background came to.
type reached struct {
	zero bool
	err  error
}

func awaits(ctx context.Context, l *lock.CountDownLatch, wait time.Duration) <-chan reached {
	done := make(chan reached, 1)
	go func() {
		zero, err := l.Await(ctx, wait)
		done <- reached{zero, err}
	}()
	return done
}

// Only the first of several waiters was told (redisson #5349), and some were
// blocked (redisson #2304).
func TestLatchLetsAllGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	c, other := open(t, server, lock.Config{}), open(t, server, lock.Config{})
	l := latch(t, c, 3)
	var all []<-chan reached
	for i := range 20 {
		from := []*lock.Client{c, other}[i%2]
		all = append(all, awaits(t.Context(), from.CountDownLatch("orders"), lock.Forever))
	}
	redistest.Await(t, "subscriptions", func() bool {
		return rdb.PubSubNumSub(t.Context(), latchKey+":released").Val()[latchKey+":released"] == 2
	})
	for range 3 {
		for _, done := range all {
			select {
			case r := <-done:
				t.Fatalf("a waiter went on too soon: %v", r)
			default:
			}
		}
		_, err := l.CountDown(t.Context())
		require.NoError(t, err)
	}
	for _, done := range all {
		require.Equal(t, reached{zero: true}, <-done)
	}
	parked(t, rdb, 0)
}

// Redisson's await looks again only when a message arrives, so a lost one hangs
// it.
func TestLatchWithoutAnyMessage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	l := latch(t, open(t, server, lock.Config{}), 1)
	forever, short := awaits(ctx, l, lock.Forever), awaits(ctx, l, 2*time.Second) // shorter than the poll
	parked(t, rdb, 1)
	require.NoError(t, rdb.HSet(ctx, latchKey, "count", 0).Err()) // publishes nothing
	require.Equal(t, reached{zero: true}, <-short)
	require.Equal(t, reached{zero: true}, <-forever)

	require.NoError(t, rdb.HSet(ctx, latchKey, "count", 1).Err())
	broken := awaits(ctx, l, lock.Forever)
	parked(t, rdb, 1)
	require.NoError(t, rdb.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	_, err := l.CountDown(ctx)
	require.NoError(t, err)
	require.Equal(t, reached{zero: true}, <-broken)
}

func TestLatchRefusesWhatMakesNoSense(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	c := open(t, server, lock.Config{})
	require.NoError(t, rdb.Set(ctx, "lock:{text}:latch", "my data", 0).Err())
	l, unnamed, wrong := c.CountDownLatch("orders"), c.CountDownLatch(""), c.CountDownLatch("text")
	for _, tt := range []struct {
		name, want string
		err        error
	}{
		{"no count", "give at least 1", errOf(l.TrySetCount(ctx, 0))},
		{"negative count", "give at least 1", errOf(l.TrySetCount(ctx, -1))},
		{"enormous count", "at most", errOf(l.TrySetCount(ctx, math.MaxInt))},
		{"negative wait", "give 0 for one try", errOf(l.Await(ctx, -1))},
		{"no name", "give the lock a name", errOf(unnamed.TrySetCount(ctx, 1))},
		{"no name: await", "give the lock a name", errOf(unnamed.Await(ctx, 0))},
		{"no name: count down", "give the lock a name", errOf(unnamed.CountDown(ctx))},
		{"wrong type: set", "use another name", errOf(wrong.TrySetCount(ctx, 1))},
		{"wrong type: await", "use another name", errOf(wrong.Await(ctx, lock.Forever))},
		{"wrong type: count down", "use another name", errOf(wrong.CountDown(ctx))},
		{"wrong type: delete", "use another name", errOf(wrong.Delete(ctx))},
	} {
		require.ErrorContains(t, tt.err, tt.want, tt.name)
	}
	require.Equal(t, []string{"lock:{text}:latch"}, rdb.Keys(ctx, "*").Val())
	require.Equal(t, "my data", rdb.Get(ctx, "lock:{text}:latch").Val())
}

// A client that is at a replica, as after a failover behind a name, learns so: what a replica
// has is late, so that its waiter would be told that a latch is not set, or wait for ever.
func TestLatchOfAReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica, detach := server.Replica(t)
	defer detach()
	latch(t, open(t, server, lock.Config{}), 1)
	stale := newClient(t, replica.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }), lock.Config{})
	for _, name := range []string{"orders", "set a moment ago"} {
		_, err := stale.CountDownLatch(name).Await(t.Context(), 0)
		require.ErrorContains(t, err, "the server is a replica", name)
	}
}

// TestLatchIsLikeItsModel drives the scripts with random requests, each also more
// than once.
func TestLatchIsLikeItsModel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	scripts := map[string]*redis.Script{}
	for _, step := range []string{"set", "down", "count", "delete"} {
		scripts[step] = script(t, "latch_"+step)
	}
	pubsub := rdb.Subscribe(ctx, "c")
	defer func() { require.NoError(t, pubsub.Close()) }()
	_, err := pubsub.Receive(ctx)
	require.NoError(t, err)

	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		count, round := -1, ""
		marks := map[string]int{}
		var messages []string
		run := func(step, request string, args ...any) any {
			v, err := scripts[step].Run(ctx, rdb, []string{"l", "mark:" + request}, args...).Result()
			if err != nil {
				code, _, _ := strings.Cut(err.Error(), " ")
				return code
			}
			return v
		}
		request := func(t *rapid.T, name string) string {
			return name + strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "request"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				r, n := request(t, "s"), rapid.IntRange(1, 3).Draw(t, "n")
				got := run("set", r, n, r, 60000)
				want := 0
				if _, ok := marks[r]; ok {
					want = 1
				} else if count < 0 {
					want, count, round, marks[r] = 1, n, r, 1
				}
				require.EqualValues(t, want, got)
			},
			"down": func(t *rapid.T) {
				r := request(t, "d")
				got := run("down", r, 60000, 60000, "c")
				if left, ok := marks[r]; ok {
					require.EqualValues(t, left, got)
					return
				}
				if count < 0 {
					require.Equal(t, "NOTSET", got)
					return
				}
				if count > 0 {
					count--
					marks[r] = count
					if count == 0 {
						messages = append(messages, "all")
					}
				}
				require.EqualValues(t, count, got)
			},
			"delete": func(t *rapid.T) {
				r := request(t, "x")
				got := run("delete", r, 60000, "c")
				want := 0
				if _, ok := marks[r]; ok {
					want = 1
				} else if count >= 0 {
					want, count, marks[r] = 1, -1, 1
					messages = append(messages, "all")
				}
				require.EqualValues(t, want, got)
			},
			"": func(t *rapid.T) {
				want := any("NOTSET")
				if count >= 0 {
					want = []any{int64(count), round}
				}
				require.Equal(t, want, run("count", ""))
				require.Equal(t, messages, published(ctx, t, pubsub))
				messages = nil
				require.Equal(t, count > 0, rdb.PTTL(ctx, "l").Val() == -1, "what was counted down goes by itself")
			},
		})
	})
}
