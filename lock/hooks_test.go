package lock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// single has the hook for pipelines see a script that is sent without one.
func single(h redis.Hook, next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "evalsha" && name != "eval" && name != "set" { // as the greeting of a server
			return next(ctx, cmd)
		}
		return h.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error {
			return next(ctx, cmds[0])
		})(ctx, []redis.Cmder{cmd})
	}
}

// bothWays are the settings with which a request is sent by a goroutine, and by its caller.
func bothWays(t *testing.T, test func(t *testing.T, set func(*redis.Options))) {
	t.Helper()
	for name, heeds := range map[string]bool{"deadlines not heeded": false, "deadlines heeded": true} {
		t.Run(name, func(t *testing.T) { test(t, func(o *redis.Options) { o.ContextTimeoutEnabled = heeds }) })
	}
}

// witness is a hook that notes the requests by digest, and tells the hooks behind
// it of itself by the context, as one that traces does.
type witness struct {
	mu   sync.Mutex
	seen []sight
}

type sight struct {
	digest string
	told   bool // of a hook before
}

type told struct{}

func (w *witness) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *witness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return single(w, next)
}

func (w *witness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(context.WithValue(ctx, told{}, true), cmds)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range cmds {
			if name := c.Name(); name == "evalsha" || name == "set" {
				digest, _ := c.Args()[1].(string)
				w.seen = append(w.seen, sight{digest, ctx.Value(told{}) != nil})
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

// The hooks of a Redis client see each request once, one behind the other, also those
// that are added after the lock client was made.
func TestHooksSeeEachRequest(t *testing.T) {
	bothWays(t, seesEachRequest)
}

func seesEachRequest(t *testing.T, set func(*redis.Options)) {
	t.Helper()
	s := redistest.Start(t)
	rdb, other := s.Client(t, set), s.Client(t, nil)
	first, second := &witness{}, &witness{}
	rdb.AddHook(first)
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cycle := func() {
		h, err := c.Acquire(ctx, "orders", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, h.Extend(ctx, time.Minute))
		require.NoError(t, h.Release(ctx))
	}
	cycle() // so that the server knows the scripts
	rdb.AddHook(second)
	first.forget()
	require.NoError(t, other.ConfigResetStat(t.Context()).Err())
	for range 20 {
		cycle()
	}
	stats, err := other.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	before, behind := first.all(), second.all()
	seen := map[bool]int{} // scripts, and first requests
	for _, request := range before {
		seen[request.digest != "lock:{orders}"]++
	}
	require.Equal(t, rdb.Options().ContextTimeoutEnabled, seen[false] > 0)
	require.True(t, strings.Contains(stats, fmt.Sprintf("cmdstat_evalsha:calls=%d,", seen[true])), stats)
	require.Len(t, behind, len(before))
	for i := range before {
		require.Equal(t, before[i].digest, behind[i].digest)
		require.False(t, before[i].told)
		require.True(t, behind[i].told)
	}
}

// prefixer is a hook that gives the keys of scripts a prefix.
type prefixer struct{ prefix string }

func (p prefixer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p prefixer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return single(p, next)
}

func (p prefixer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			words := c.Args()
			if c.Name() == "set" {
				words[1] = p.prefix + fmt.Sprint(words[1])
			} else if keys, ok := words[2].(int); ok {
				for i := range keys {
					words[3+i] = p.prefix + fmt.Sprint(words[3+i])
				}
			}
		}
		return next(ctx, cmds)
	}
}

// A hook that changes what is sent finds each request as it was, however often
// that is sent: first the server doesn't know the script.
func TestHooksMayChangeRequests(t *testing.T) {
	bothWays(t, mayChangeRequests)
}

func mayChangeRequests(t *testing.T, set func(*redis.Options)) {
	t.Helper()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	var clients []*Client
	for range 2 {
		prefixed := s.Client(t, set)
		c, err := New(prefixed, Config{})
		require.NoError(t, err)
		defer c.Close()
		h, err := c.Acquire(t.Context(), "before", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
		prefixed.AddHook(prefixer{"app:"}) // the client sees that there is one now
		clients = append(clients, c)
	}
	h, err := clients[0].Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	_, err = clients[1].Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.ErrorIs(t, err, ErrNotAcquired)
	keys := rdb.Keys(t.Context(), "*").Val()
	require.True(t, slices.Contains(keys, "app:lock:{orders}"))
	for _, key := range keys {
		require.True(t, strings.HasPrefix(key, "app:"), key)
	}
	require.NoError(t, h.Release(t.Context()))
	require.Len(t, rdb.Keys(t.Context(), "*").Val(), 0)
}

// The servers of a Redlock get one request each, which a hook changes on its own.
func TestHooksMayChangeRequestsOfARedlock(t *testing.T) {
	t.Parallel()
	var servers []redis.UniversalClient
	var plain []*redis.Client
	for range 3 {
		s := redistest.Start(t)
		prefixed := s.Client(t, nil)
		prefixed.AddHook(prefixer{"app:"})
		servers, plain = append(servers, prefixed), append(plain, s.Client(t, nil))
	}
	r, err := NewRedlock(servers, RedlockConfig{NodeTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	h, err := r.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	for _, rdb := range plain {
		redistest.Await(t, "the lock", func() bool { return rdb.Exists(t.Context(), "app:lock:{orders}").Val() == 1 })
	}
	require.NoError(t, h.Release(t.Context()))
	for _, rdb := range plain {
		redistest.Await(t, "the release", func() bool { return rdb.Exists(t.Context(), "app:lock:{orders}").Val() == 0 })
	}
}

// A hook sees what one caller sends with the values of that caller, so that it may trace it, and
// what several callers send together with those of none.
func TestHooksSeeTheContextOfTheCaller(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	var foreign, own atomic.Int64
	rdb.AddHook(contexts(func(ctx context.Context, cmds []redis.Cmder) {
		switch name := ctx.Value(told{}); {
		case cmds[0].Name() != "evalsha" && cmds[0].Name() != "set": // the greeting of a server
		case name == nil && len(cmds) > 1:
		case name != nil && len(cmds) == 1 && strings.Contains(fmt.Sprint(cmds[0].Args()...), fmt.Sprintf("{%v}", name)):
			own.Add(1)
		default:
			foreign.Add(1)
		}
	}))
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	cycles := func(i, n int) {
		ctx := context.WithValue(t.Context(), told{}, i)
		for range n {
			h, err := c.Acquire(ctx, strconv.Itoa(i), Options{Lease: time.Minute})
			if err == nil {
				err = h.Release(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	cycles(16, 5)
	require.True(t, own.Load() >= 10)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() { cycles(i, 20) })
	}
	all.Wait()
	require.Zero(t, foreign.Load())
}

// contexts is a hook that is told of the context of each.
type contexts func(ctx context.Context, cmds []redis.Cmder)

func (p contexts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p contexts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return single(p, next)
}

func (p contexts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p(ctx, cmds)
		return next(ctx, cmds)
	}
}
