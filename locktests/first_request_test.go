package locktests

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A lock that no other client wants costs one command, and one script to give back, of a Redis client
// that heeds deadlines. A client that was refused asks by script, so that it isn't refused twice.
func TestFirstRequestIsOneCommand(t *testing.T) {
	s := redistest.Start(t)
	rdb, holder, c := s.Client(t, nil), open(t, s, lock.Config{}), open(t, s, lock.Config{})
	cycle := func() { require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) }
	refused := func() {
		_, err := c.Acquire(t.Context(), "orders", lock.Options{Owner: "a", Lease: long})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
	}
	for { // until the server answers all of it soon: else the client asks by script
		var sent []string
		soon := true
		step := func(does func()) {
			require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
			begin := time.Now()
			does()
			soon = soon && time.Since(begin) < 5*time.Millisecond
			stats := rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
			calls := func(command string) string {
				calls, _, _ := strings.Cut(strings.TrimPrefix(stats["cmdstat_"+command], "calls="), ",")
				return command + ":" + cmp.Or(calls, "0")
			}
			sent = append(sent, calls("set")+" "+calls("evalsha"))
		}
		step(cycle)
		step(cycle)
		h := acquire(t, holder, "b", long)
		step(refused)
		step(refused)
		require.NoError(t, h.Release(t.Context()))
		step(cycle) // by script, which sets it
		step(cycle)
		if soon {
			require.Equal(t, []string{"set:1 evalsha:1", "set:1 evalsha:1", "set:0 evalsha:1", "set:1 evalsha:2", "set:1 evalsha:1"}, sent[1:])
			return
		}
	}
}

// Callers that are cancelled while a server is silent return soon, and leave nothing behind once it answers.
func TestCancelledCallersOfASilentServer(t *testing.T) {
	s := redistest.Start(t)
	rdb, c := s.Client(t, nil), open(t, s, lock.Config{})
	require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) // the server is known to answer soon
	resume := s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	var mu sync.Mutex
	var latest time.Duration
	begin := time.Now()
	for range 16 {
		callers.Go(func() {
			_, err := c.Acquire(ctx, "orders", lock.Options{Lease: long})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				t.Error("granted")
			}
			latest = max(latest, time.Since(begin))
		})
	}
	callers.Wait()
	t.Logf("all are back after %v", latest)
	require.Less(t, latest, time.Second, "it is about 100ms, and 5s if requests are awaited")
	resume()
	c.Close() // which awaits what is taken back
	redistest.Await(t, "nothing to be left", func() bool { return len(keysLeft(t, rdb)) == 0 })
}

// The first request of a caller is granted by a server that stood still, and its answer comes too late. The
// caller asks again by itself and learns it, and does not wait behind another caller of its client, which
// is refused because of that grant.
func TestTwoCallersWhileAServerStandsStill(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Second
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	for range 3 { // the server is known to answer soon
		require.NoError(t, acquire(t, c, "", long).Release(t.Context()))
	}
	resume := s.Pause(t)
	var both sync.WaitGroup
	begin := time.Now()
	for range 2 {
		both.Go(func() {
			if h, err := c.Acquire(t.Context(), "orders", lock.Options{Wait: 2 * lease, Lease: lease}); err == nil {
				_ = h.Release(t.Context())
			}
		})
	}
	time.Sleep(60 * time.Millisecond) // longer than a caller waits for the answer to its first request
	resume()
	both.Wait()
	require.Less(t, time.Since(begin), lease/2, "they waited until the lease was over")
}

// seesPipelines is a hook that notes whether several first requests went in one pipeline.
type seesPipelines struct{ seen atomic.Bool }

func (h *seesPipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *seesPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *seesPipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		isOther := func(c redis.Cmder) bool { return c.Name() != "set" }
		h.seen.CompareAndSwap(false, len(slices.DeleteFunc(slices.Clone(cmds), isOther)) > 1)
		return next(ctx, cmds)
	}
}

// Callers of many locks share pipelines for their first requests. Those that a server granted while it stood still are
// granted once, and nothing stays behind of what was sent twice.
func TestManyCallersWhileAServerStandsStill(t *testing.T) {
	t.Parallel()
	const callers, lease = 16, 20 * time.Second
	s := redistest.Start(t)
	rdb, hook := s.Client(t, nil), &seesPipelines{}
	rdb.AddHook(hook)
	c, err := lock.New(rdb, lock.Config{})
	require.NoError(t, err)
	all := func() {
		var each errgroup.Group
		for i := range callers {
			each.Go(func() error {
				h, err := c.Acquire(t.Context(), strconv.Itoa(i), lock.Options{Wait: 2 * lease, Lease: lease})
				if err != nil {
					return err
				}
				return h.Release(t.Context())
			})
		}
		require.NoError(t, each.Wait())
	}
	redistest.Await(t, "first requests in one pipeline", func() bool {
		all()
		return hook.seen.Load()
	})
	resume := s.Pause(t)
	begin := time.Now()
	time.AfterFunc(60*time.Millisecond, resume) // longer than a caller waits for the answer to its first request
	all()
	require.Less(t, time.Since(begin), lease/2, "one waited until its own lease was over")
	c.Close() // which awaits what is taken back
	redistest.Await(t, "nothing to be left", func() bool { return len(keysLeft(t, s.Client(t, nil))) == 0 })
}

// A lateRequest is a hook that holds a pipeline of first requests back until goOn is closed.
type lateRequest struct {
	key        atomic.Value // of the first of them
	goOn, sent chan struct{}
}

func (l *lateRequest) send(ctx context.Context, cmds []redis.Cmder, next send) error {
	isOther := func(c redis.Cmder) bool { return c.Name() != "set" }
	if len(cmds) == 1 || slices.ContainsFunc(cmds, isOther) || !l.key.CompareAndSwap(nil, cmds[0].Args()[1]) {
		return next(ctx, cmds)
	}
	defer close(l.sent)
	<-l.goOn
	return next(ctx, cmds)
}

// askLate has callers ask for a lock each, for so long at most, until the first request of one is late. It returns the lock of
// that one, and its hold if it was granted the lock by a script.
func askLate(t *testing.T, s *redistest.Server, limit time.Duration) (c *lock.Client, l *lateRequest, name string, h *lock.Hold) {
	t.Helper()
	for {
		l = &lateRequest{goOn: make(chan struct{}), sent: make(chan struct{})}
		rdb := s.Client(t, nil)
		rdb.AddHook(hook(l.send))
		c = newClient(t, rdb, lock.Config{})
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				own := strconv.Itoa(i)
				for l.key.Load() == nil {
					ctx, cancel := context.WithCancel(t.Context())
					over := time.AfterFunc(limit, cancel) // and no deadline, after which nothing would be sent
					got, err := c.Acquire(ctx, own, lock.Options{Lease: long})
					over.Stop()
					cancel()
					switch {
					case l.key.Load() == "lock:{"+own+"}":
						name, h = own, got
					case err == nil:
						_ = got.Release(t.Context())
					}
				}
			})
		}
		callers.Wait()
		if name != "" {
			return c, l, name, h
		}
		close(l.goOn) // the caller had left before the pipeline came
	}
}

// The client is busy, and a pipeline with a first request is late. Its caller is granted the lock by a script, and releases it
// before that request is sent: the lock is free then, and stays so.
func TestReleaseOfALockWhoseFirstRequestIsLate(t *testing.T) {
	t.Parallel()
	c, late, name, h := askLate(t, redistest.Start(t), long)
	time.AfterFunc(10*time.Millisecond, func() { close(late.goOn) })
	require.NoError(t, h.Release(t.Context()))
	<-late.sent
	h, err := c.Acquire(t.Context(), name, lock.Options{Lease: long})
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
}

// A first request that the client itself sends late is taken back as soon as that is over: where its caller was cancelled, and
// where the lock was released and the client is closed meanwhile.
func TestLateFirstRequestIsTakenBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, late, name, h := askLate(t, s, 10*time.Millisecond)
	close(late.goOn)
	<-late.sent
	if h != nil { // it was cancelled too late
		require.NoError(t, h.Release(t.Context()))
	}
	soonerThan(t, rdb, 500*time.Millisecond, "a copy of it would be taken back after a second", func() {
		redistest.Await(t, "the lock to be free", func() bool {
			h, err := c.Acquire(t.Context(), name, lock.Options{Lease: long})
			return err == nil && h.Release(t.Context()) == nil
		})
	})
	c.Close()

	c, late, _, h = askLate(t, s, long)
	require.NoError(t, h.Release(t.Context()))
	time.AfterFunc(100*time.Millisecond, func() { close(late.goOn) })
	c.Close()
	require.Empty(t, keysLeft(t, rdb))
}
