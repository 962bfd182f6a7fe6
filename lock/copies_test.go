package lock

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// steps is a hook that takes the next of them before a pipeline with a script in it
// is sent. The error of a step comes instead.
type steps chan func() error

func (s steps) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s steps) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return single(s, next)
}

func (s steps) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "evalsha" || name == "eval" {
			select {
			case step := <-s:
				if err := step(); err != nil {
					for _, cmd := range cmds {
						cmd.SetErr(err)
					}
					return err
				}
			default:
			}
		}
		return next(ctx, cmds)
	}
}

// teach lets the server know the scripts.
func teach(t *testing.T, s *redistest.Server) {
	t.Helper()
	c, err := New(s.Client(t, nil), Config{})
	require.NoError(t, err)
	defer c.Close()
	h, err := c.Acquire(t.Context(), "warm", Options{Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
}

// acquireBy acquires the lock "orders", taking a step before each time that the
// request is sent. The server knows the scripts, and the client has no connection
// yet.
func acquireBy(t *testing.T, s *redistest.Server, change func(*redis.Options), config Config, all ...func(own *redis.Client)) *Hold {
	t.Helper()
	teach(t, s)
	own, taken := s.Client(t, change), make(steps, len(all))
	for _, step := range all {
		taken <- func() error {
			step(own)
			return nil
		}
	}
	own.AddHook(taken)
	c, err := New(own, config)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	require.Len(t, taken, 0, "it was sent so often")
	return h
}

// leaves releases the hold, and requires that it leaves a mark or nothing.
func leaves(t *testing.T, rdb *redis.Client, h *Hold, mark bool) {
	t.Helper()
	require.NoError(t, h.Release(t.Context()))
	left, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	if mark {
		require.Equal(t, []string{keysOf("lock", "orders").mark(h.Lease().Request)}, left)
	} else {
		require.Len(t, left, 0)
	}
}

// refuse makes the server refuse what would change something.
func refuse(t *testing.T, rdb *redis.Client, yes bool) {
	t.Helper()
	replicas := 0
	if yes {
		replicas = 9
	}
	if err := rdb.ConfigSet(t.Context(), "min-replicas-to-write", strconv.Itoa(replicas)).Err(); err != nil {
		t.Error(err)
	}
}

// nothing is a step.
func nothing(*redis.Client) {}

// door is a dialer that may find no server.
func door(t *testing.T, s *redistest.Server) (change func(*redis.Options), shut *atomic.Bool) {
	t.Helper()
	nowhere := filepath.Join(t.TempDir(), "s")
	shut = &atomic.Bool{}
	return func(o *redis.Options) {
		o.DialerRetries = 1
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if shut.Load() {
				return (&net.Dialer{}).DialContext(ctx, "unix", nowhere)
			}
			return s.Dial(ctx)
		}
	}, shut
}

// A request that found no server has left no copy, and so its release leaves no mark.
func TestRequestThatFoundNoServerLeavesNoMark(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	use, shut := door(t, s)
	shut.Store(true)
	h := acquireBy(t, s, use, Config{}, nothing, func(*redis.Client) { shut.Store(false) })
	leaves(t, s.Client(t, nil), h, false)
}

// Nor has one that found all connections taken.
func TestRequestThatFoundNoConnectionLeavesNoMark(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	other := s.Client(t, nil)
	popped := make(chan error, 1)
	use := func(o *redis.Options) {
		o.PoolSize, o.PipelinePoolSize, o.PoolTimeout = 1, -1, 20*time.Millisecond
	}
	h := acquireBy(t, s, use, Config{}, func(own *redis.Client) {
		go func() { popped <- own.BLPop(t.Context(), time.Minute, "queue").Err() }()
		redistest.Await(t, "the connection to be taken", func() bool {
			blocked, err := other.InfoMap(t.Context(), "clients").Result()
			return err == nil && blocked["Clients"]["blocked_clients"] == "1"
		})
	}, func(*redis.Client) {
		if err := other.LPush(t.Context(), "queue", "x").Err(); err != nil {
			t.Error(err)
		}
		if err := <-popped; err != nil {
			t.Error(err)
		}
	})
	leaves(t, other, h, false)
}

// A request whose answer didn't come may have arrived, whatever its repetitions come
// to: a copy of it may be on its way, and the release leaves a mark.
func TestRequestWithoutAnAnswerLeavesAMark(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		acks int
		late bool // and not lost with its connection
	}{
		{"lost", 0, false},
		{"late", 0, true},
		{"lost, with replicas", 1, false},
		{"late, with replicas", 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, link := redistest.Start(t), &redistest.Link{}
			if tt.acks > 0 {
				s.Replica(t)
			}
			rdb := s.Client(t, nil)
			use := func(o *redis.Options) {
				link.Use(o)
				if tt.late {
					o.ReadTimeout = 500 * time.Millisecond
				}
			}
			var struck <-chan struct{}
			h := acquireBy(t, s, use, Config{ReplicaAcks: tt.acks, AckTimeout: 400 * time.Millisecond}, func(*redis.Client) {
				if tt.late {
					var deliver func()
					struck, deliver = link.HoldReply("eval")
					t.Cleanup(deliver)
				} else {
					struck = link.DropReply("eval")
				}
			}, func(*redis.Client) {
				<-struck
				refuse(t, rdb, true)
			}, func(*redis.Client) {
				refuse(t, rdb, false)
			})
			leaves(t, rdb, h, true)
		})
	}
}

// A release that found no server was not carried out: the next one ends the hold, and
// doesn't believe in the first where the lock was lost in between.
func TestReleaseThatFoundNoServer(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		s := redistest.Start(t)
		rdb := s.Client(t, nil)
		use, shut := door(t, s)
		h := acquireBy(t, s, func(o *redis.Options) { use(o); o.MaxRetries = -1 }, Config{})
		require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
		shut.Store(true)
		err := h.Release(t.Context())
		require.True(t, transport.IsUnsent(err), "%v", err)
		shut.Store(false)
		if !lost {
			leaves(t, rdb, h, false)
			continue
		}
		require.NoError(t, rdb.Del(t.Context(), "lock:{orders}").Err())
		require.ErrorIs(t, h.Release(t.Context()), ErrNotHeld)
	}
}

// However often a release fails of a lock whose first request is late, that is withdrawn once at a time.
func TestFailedReleasesOfALateRequest(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	use, shut := door(t, s)
	// So large a pool dials after each failure.
	h := acquireBy(t, s, func(o *redis.Options) { use(o); o.MaxRetries, o.PoolSize = -1, 1000 }, Config{})
	g, _ := h.keeper.(*grant)
	g.copied, g.late = true, true
	require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	shut.Store(true)
	for range 10 {
		require.True(t, transport.IsUnsent(h.Release(t.Context())))
	}
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
	shut.Store(false)
	h.client.Close() // which awaits the withdrawals, and one more of each
	calls, _, _ := strings.Cut(rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"], ",")
	n, err := strconv.Atoi(strings.TrimPrefix(calls, "calls="))
	require.NoError(t, err)
	require.True(t, n <= 2, "%d withdrawals", n)
}

// A release says that the lock was lost also where the grant was withdrawn before: after a release that failed, or because a
// copy of its first request may come late.
func TestReleaseAfterAWithdrawal(t *testing.T) {
	t.Parallel()
	c, _, _ := linked(t)
	for i, k := range []*kind{kinds.mutex, kinds.fair, kinds.read, kinds.write} {
		for _, lost := range []bool{false, true} {
			o := c.object("orders "+strconv.Itoa(i), k)
			h, err := o.acquire(t.Context(), Options{Lease: time.Minute})
			require.NoError(t, err)
			g, _ := h.keeper.(*grant)
			g.copied = true
			if lost {
				_, err = o.forceUnlock(t.Context())
				require.NoError(t, err)
			}
			require.NoError(t, g.withdraw(t.Context()))
			if err = h.Release(t.Context()); lost {
				require.ErrorIs(t, err, ErrNotHeld)
			} else {
				require.NoError(t, err)
			}
		}
	}
}

// A release that was given up in the queue was never sent, so it can't be why the
// lock is gone.
func TestReleaseThatNobodyTook(t *testing.T) {
	t.Parallel()
	// One pipeline, which has all requests: one that a caller sends by itself frees its slot after 25 ms.
	c, link, rdb := linked(t, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 2, false })
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	held, deliver := link.HoldReplies(acquireText())
	defer deliver()
	var other sync.WaitGroup
	defer other.Wait()
	other.Go(func() { _, _ = c.Acquire(t.Context(), "other", Options{Lease: time.Minute}) })
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	released := make(chan error, 1)
	other.Go(func() { released <- h.Release(ctx) })
	redistest.Await(t, "the release in the queue", func() bool { _, queued := c.transport.Load(); return queued == 1 })
	cancel()
	require.ErrorIs(t, <-released, context.Canceled)
	require.Equal(t, int64(1), rdb.Del(t.Context(), "lock:{orders}").Val())
	deliver()
	require.ErrorIs(t, h.Release(t.Context()), ErrNotHeld)
}

// A release whose answer was lost was most likely carried out: the next one, which
// finds nothing, counts as its success.
func TestReleaseWithoutAnAnswer(t *testing.T) {
	s, link := redistest.Start(t), &redistest.Link{}
	h := acquireBy(t, s, func(o *redis.Options) { link.Use(o); o.MaxRetries = -1 }, Config{})
	dropped := link.DropReply("evalsha")
	require.Error(t, h.Release(t.Context()))
	<-dropped
	leaves(t, s.Client(t, nil), h, false)
}

// A hold is lost while its extension is under way: what is taken back then shares nothing with the extension, which the
// race detector would say.
func TestHoldThatIsLostDuringAnExtension(t *testing.T) {
	t.Parallel()
	c, link, rdb := linked(t)
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	grantOf(t, h).copied = true
	held, deliver := link.HoldReplies(scripts()["extend"].Digest)
	defer deliver()
	extended := make(chan error, 1)
	go func() { extended <- h.Extend(t.Context(), time.Minute) }()
	<-held
	<-h.Lost()
	mark := keysOf(defaultPrefix, "orders").mark(h.Lease().Request)
	redistest.Await(t, "the mark of the withdrawal", func() bool { return rdb.Exists(t.Context(), mark).Val() == 1 })
	deliver()
	require.Error(t, <-extended)
}

// moved is what a server of a cluster says that doesn't have the key any more.
type moved struct{}

func (moved) Error() string { return "MOVED 0 b:1" }
func (moved) RedisError()   {}

// A request that may have arrived at the server that had the lock, and is granted by
// the one to which that has moved, may have a copy on its way all the same.
func TestRequestThatMovedLeavesAMark(t *testing.T) {
	t.Parallel()
	s, link := redistest.Start(t), &redistest.Link{}
	s.Replica(t)
	teach(t, s)
	rdb := s.Client(t, nil)
	behind := redis.Options{Network: "unix", Addr: rdb.Options().Addr}
	link.Use(&behind)
	var away atomic.Bool
	taken := make(steps, 3)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"a:1"}, MaxRetries: 1, Dialer: behind.Dialer,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			addr := "a:1"
			if away.Load() {
				addr = "b:1"
			}
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
	})
	t.Cleanup(func() { _ = cluster.Close() })
	cluster.OnNewNode(func(node *redis.Client) { node.AddHook(taken) })
	c, err := New(cluster, Config{ReplicaAcks: 1})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var dropped <-chan struct{}
	taken <- func() error {
		dropped = link.DropReply("eval")
		return nil
	}
	taken <- func() error {
		<-dropped
		away.Store(true)
		return moved{}
	}
	taken <- func() error { return nil }
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	require.Len(t, taken, 0)
	leaves(t, rdb, h, true)
}
