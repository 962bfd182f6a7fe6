package lock

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock/internal/redistest"
)

// witness is a hook that notes the requests by digest, and tells the hooks behind
// it of itself by the context, as one that traces does.
type witness struct {
	mu   sync.Mutex
	seen []sight
}

type sight struct {
	digest  string
	hurried bool  // as the first hook can tell
	told    bool  // of a hook before
	err     error // of the pipeline
}

type told struct{}

func (w *witness) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (w *witness) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w *witness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_, hurried := ctx.(brief)
		err := next(context.WithValue(ctx, told{}, true), cmds)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range cmds {
			if c.Name() == "evalsha" {
				digest, _ := c.Args()[1].(string)
				w.seen = append(w.seen, sight{digest, hurried, ctx.Value(told{}) != nil, err})
			}
		}
		return err
	}
}

func (w *witness) all() []sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]sight(nil), w.seen...)
}

func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// The hooks of a Redis client see each request once, one behind the other, those in
// a hurry too.
func TestHooksSeeEachRequest(t *testing.T) {
	s := redistest.Start(t)
	rdb, other := s.Client(t, nil), s.Client(t, nil)
	first, second := &witness{}, &witness{}
	rdb.AddHook(first)
	rdb.AddHook(second)
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context()) // without one nobody hurries
	defer cancel()
	cycle := func() {
		h, err := c.Acquire(ctx, "orders", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, h.Extend(ctx, time.Minute))
		require.NoError(t, h.Release(ctx))
	}
	cycle() // so that the server knows the scripts
	first.forget()
	second.forget()
	require.NoError(t, other.ConfigResetStat(t.Context()).Err())
	redistest.Await(t, "each of the three in a hurry", func() bool {
		cycle()
		hurried := map[string]bool{}
		for _, seen := range first.all() {
			if seen.hurried {
				hurried[seen.digest] = true
			}
		}
		return len(hurried) == 3
	})
	stats, err := other.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	before, behind := first.all(), second.all()
	require.Contains(t, stats, "cmdstat_evalsha:calls="+strconv.Itoa(len(before))+",")
	require.Len(t, behind, len(before))
	for i := range before {
		require.Equal(t, before[i].digest, behind[i].digest)
		require.False(t, before[i].told)
		require.True(t, behind[i].told)
	}
}

// A hook sees the error of a request whose answer was late, and then its repetition.
func TestHooksSeeALateRequest(t *testing.T) {
	s, link, w := redistest.Start(t), &redistest.Link{}, &witness{}
	rdb := s.Client(t, link.Use)
	rdb.AddHook(w)
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	warm, err := c.Acquire(ctx, "warm", Options{Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, warm.Release(ctx))
	ready(t, c)
	w.forget()
	held, deliver := link.HoldReplies(acquireDigest(c))
	defer deliver()
	holds, errs := takes(ctx, c, Options{Lease: time.Minute})
	<-held
	redistest.Await(t, "the end of the hurry", func() bool { return len(w.all()) == 1 })
	deliver()
	h := <-holds
	require.NoError(t, <-errs)
	seen := w.all()
	require.Len(t, seen, 2)
	require.True(t, seen[0].hurried)
	require.True(t, isTimeout(seen[0].err), "%v", seen[0].err)
	require.False(t, seen[1].hurried)
	require.NoError(t, seen[1].err)
	require.NoError(t, h.Release(ctx))
}

// prefixer is a hook that gives the keys of scripts a prefix.
type prefixer struct{ prefix string }

func (p prefixer) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p prefixer) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p prefixer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			words := c.Args()
			if keys, ok := words[2].(int); ok {
				for i := range keys {
					words[firstKey+i] = p.prefix + fmt.Sprint(words[firstKey+i])
				}
			}
		}
		return next(ctx, cmds)
	}
}

// A hook that changes what is sent finds each request as it was, however often
// that is sent: first the server doesn't know the script.
func TestHooksMayChangeRequests(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	var clients []*Client
	for range 2 {
		prefixed := s.Client(t, nil)
		prefixed.AddHook(prefixer{"app:"})
		c, err := New(prefixed, Config{})
		require.NoError(t, err)
		defer c.Close()
		clients = append(clients, c)
	}
	h, err := clients[0].Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	_, err = clients[1].Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.ErrorIs(t, err, ErrNotAcquired)
	require.Equal(t, []string{"app:lock:{orders}"}, rdb.Keys(t.Context(), "*").Val())
	require.NoError(t, h.Release(t.Context()))
	require.Empty(t, rdb.Keys(t.Context(), "*").Val())
}
