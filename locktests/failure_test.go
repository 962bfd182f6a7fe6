package locktests

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// overLink returns a client, with go-redis' default retries, on a link that can
// be disturbed.
func overLink(t *testing.T, s *redistest.Server, c lock.Config) (*lock.Client, *redistest.Link) {
	t.Helper()
	link := &redistest.Link{}
	return newClient(t, s.Client(t, link.Use), c), link
}

// attentive is how long an attentive replica needs at most, also on a busy machine.
const attentive = 1500 * time.Millisecond

// happened requires that a fault took effect, without which a test proves
// nothing.
func happened(t *testing.T, fault <-chan struct{}) {
	t.Helper()
	select {
	case <-fault:
	case <-time.After(time.Minute):
		t.Fatal("the fault never struck")
	}
}

func TestLostReplyToAcquire(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, link := overLink(t, s, lock.Config{})
	warm := acquire(t, c, "warm", long) // so that the digest is known
	require.NoError(t, warm.Release(t.Context()))
	dropped := link.DropReply(digest(t, "acquire"))
	h := acquire(t, c, "a", long) // go-redis asked twice
	happened(t, dropped)
	require.Equal(t, 1, h.Lease().Holds, "not counted twice")
	n, err := c.Mutex("orders").HoldCount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, h.Release(t.Context()))
	require.Empty(t, keysLeft(t, s.Client(t, nil)), "one release frees it")
}

// A release leaves a mark where a copy of the request may be on its way, which is
// refused so; and nothing where there can't be one.
func TestLateCopyOfAcquireAfterTheRelease(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, link := overLink(t, s, lock.Config{})
	warm := acquire(t, c, "warm", long)
	require.NoError(t, warm.Release(t.Context()))
	require.Empty(t, rdb.Keys(t.Context(), "*").Val())

	dropped := link.DropReply(digest(t, "acquire"))
	h := acquire(t, c, "a", long)
	happened(t, dropped)
	require.NoError(t, h.Release(t.Context()))
	l := h.Lease()
	copied := rdb.Eval(t.Context(), lock.Scripts()["acquire"], plainKeys("lock:{orders}", l.Request), held(l.Request, l.Owner), 1000, "", "")
	require.Equal(t, int64(0), copied.Val().([]any)[0])
	left := rdb.Keys(t.Context(), "*").Val()
	require.Equal(t, []string{"lock:{orders}:released:" + l.Request}, left)
	require.Positive(t, rdb.PTTL(t.Context(), left[0]).Val(), "what is left goes by itself")
}

// A release whose answer was lost when the lease was over doesn't make the next one
// believe in it.
func TestRepeatedReleaseAfterTheLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := &redistest.Link{}
	c := newClient(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1; link.Use(o) }), lock.Config{})
	warm := acquire(t, c, "warm", long)
	require.NoError(t, warm.Release(t.Context()))
	h := acquire(t, c, "a", soonOver)
	<-h.Lost()
	dropped := link.DropReply(digest(t, "release"))
	err := h.Release(t.Context())
	happened(t, dropped)
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrNotHeld)
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
}

// A copy of the request that was on its way while the grant was extended does
// not take the extension back.
func TestLateCopyOfAcquireLeavesTheExtension(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	h := acquire(t, c, "a", long/4)
	require.NoError(t, h.Extend(t.Context(), long))
	l := h.Lease()
	again := rdb.Eval(t.Context(), lock.Scripts()["acquire"], plainKeys("lock:{orders}", l.Request), held(l.Request, l.Owner), 1000, "", "")
	require.Equal(t, []any{int64(1), int64(1), int64(0)}, again.Val())
	require.Greater(t, rdb.PTTL(t.Context(), "lock:{orders}").Val(), long/2)
	require.NoError(t, h.Release(t.Context()))
}

// An older extension that was late does not take a newer one back.
func TestLateCopyOfExtendLeavesTheNewerOne(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	h := acquire(t, c, "a", long/4)
	require.NoError(t, h.Extend(t.Context(), long))
	source, err := os.ReadFile("../lock/scripts/extend.lua")
	require.NoError(t, err)
	late := rdb.Eval(t.Context(), string(source), []string{"lock:{orders}"}, h.Lease().Request, 1000)
	require.Equal(t, int64(1), late.Val())
	require.Greater(t, rdb.PTTL(t.Context(), "lock:{orders}").Val(), long/2)
	require.NoError(t, h.Release(t.Context()))
}

// A forced unlock whose reply was lost is repeated, and leaves the one who was
// granted the lock in between alone.
func TestLostReplyToForceUnlock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, link := overLink(t, s, lock.Config{})
	other := open(t, s, lock.Config{})
	_ = acquire(t, other, "a", long)
	_, err := c.Mutex("warm").ForceUnlock(t.Context()) // so that the server knows the script
	require.NoError(t, err)
	next := make(chan *lock.Hold, 1)
	go func() {
		h, err := other.Mutex("orders").Lock(t.Context(), lock.Options{Owner: "b", Lease: long})
		if err == nil {
			next <- h
		}
	}()
	parked(t, s.Client(t, nil), 1)
	lost := link.DropReply(digest(t, "force"))
	forced, err := c.Mutex("orders").ForceUnlock(t.Context())
	happened(t, lost)
	require.NoError(t, err)
	require.True(t, forced)
	require.NoError(t, (<-next).Release(t.Context()), "it still held the lock")
}

// A server without memory releases, and keeps the holds that are renewed.
func TestServerWithoutMemoryLetsGoAndKeeps(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	ways := map[string]func(name string) (*lock.Hold, error){
		"mutex": func(name string) (*lock.Hold, error) {
			return c.Mutex(name).TryLock(t.Context(), lock.Options{Lease: long})
		},
		"fair": func(name string) (*lock.Hold, error) {
			return c.FairMutex(name).TryLock(t.Context(), lock.Options{Lease: long})
		},
		"reading": func(name string) (*lock.Hold, error) {
			return c.RWMutex(name, lock.RWOptions{}).Read().TryLock(t.Context(), lock.Options{Lease: long})
		},
		"writing": func(name string) (*lock.Hold, error) {
			return c.RWMutex(name, lock.RWOptions{}).Write().TryLock(t.Context(), lock.Options{Lease: long})
		},
		"permit": func(name string) (*lock.Hold, error) {
			p := c.PermitSemaphore(name)
			if _, err := p.TrySetPermits(t.Context(), 1); err != nil {
				return nil, err
			}
			return p.Acquire(t.Context(), 1, lock.Options{Lease: long})
		},
	}
	for kind, lockIt := range ways {
		t.Run(kind, func(t *testing.T) {
			h, err := lockIt(kind)
			require.NoError(t, err)
			require.NoError(t, h.Extend(t.Context(), long))
			require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
			extended, released := h.Extend(t.Context(), 2*long), h.Release(t.Context())
			require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
			require.NoError(t, extended)
			require.NoError(t, released)
			h, err = lockIt(kind)
			require.NoError(t, err, "it is free")
			require.NoError(t, h.Release(t.Context()))
		})
	}
}

func TestLostReplyToRelease(t *testing.T) {
	s := redistest.Start(t)
	c, link := overLink(t, s, lock.Config{})
	warm := acquire(t, c, "warm", long)
	require.NoError(t, warm.Release(t.Context()))
	h := acquire(t, c, "a", long)
	dropped := link.DropReply(digest(t, "release"))
	require.NoError(t, h.Release(t.Context()))
	happened(t, dropped)
	require.Empty(t, keysLeft(t, s.Client(t, nil)))
}

// Between a release whose reply is lost and its repetition another client gets
// the lock.
func TestRepeatedReleaseLeavesTheNextHolderAlone(t *testing.T) {
	start := func(t *testing.T) (c, other *lock.Client, link *redistest.Link) {
		t.Helper()
		s := redistest.Start(t)
		link = &redistest.Link{}
		c = newClient(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1; link.Use(o) }), lock.Config{})
		return c, open(t, s, lock.Config{}), link
	}
	unanswered := func(t *testing.T, link *redistest.Link, h *lock.Hold) {
		t.Helper()
		dropped := link.DropReply("evalsha")
		err := h.Release(t.Context())
		happened(t, dropped)
		require.Error(t, err)
		require.NotErrorIs(t, err, lock.ErrNotHeld)
	}
	alone := func(t *testing.T, other *lock.Client, next *lock.Hold) {
		t.Helper()
		held, err := other.Mutex("orders").IsHeldBy(t.Context(), "b")
		require.NoError(t, err)
		require.True(t, held)
		require.NoError(t, next.Release(t.Context()))
	}
	t.Run("carried out", func(t *testing.T) {
		t.Parallel()
		c, other, link := start(t)
		require.NoError(t, acquire(t, other, "warm", long).Release(t.Context())) // so that the script is known
		h := acquire(t, c, "a", long)
		unanswered(t, link, h)
		next := acquire(t, other, "b", long)
		require.NoError(t, h.Release(t.Context()), "the first one was what released it")
		alone(t, other, next)
	})
	t.Run("not carried out", func(t *testing.T) {
		t.Parallel()
		c, other, link := start(t)
		h := acquire(t, c, "a", long)
		unanswered(t, link, h) // the server doesn't know the script
		_, err := other.Acquire(t.Context(), "orders", lock.Options{Owner: "b", Lease: long})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, h.Release(t.Context()))
		next := acquire(t, other, "b", long)
		require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
		alone(t, other, next)
	})
}

func TestLostReplyToExtend(t *testing.T) {
	s := redistest.Start(t)
	c, link := overLink(t, s, lock.Config{})
	h := acquire(t, c, "a", long)
	require.NoError(t, h.Extend(t.Context(), long))
	dropped := link.DropReply(digest(t, "extend"))
	require.NoError(t, h.Extend(t.Context(), 2*long))
	happened(t, dropped)
	require.Greater(t, time.Until(h.Lease().Expires), long)
	require.NoError(t, h.Release(t.Context()))
}

func TestScriptsThatTheServerForgot(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	_, detach := s.Replica(t)
	defer detach()
	rdb := s.Client(t, nil)
	for _, acks := range []int{0, 1} {
		c := open(t, s, lock.Config{ReplicaAcks: acks})
		flush := func() { require.NoError(t, rdb.ScriptFlush(t.Context()).Err()) }
		flush()
		h := acquire(t, c, "a", long)
		flush()
		require.NoError(t, h.Extend(t.Context(), 2*long))
		flush()
		held, err := c.Mutex("orders").IsHeldBy(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, held)
		flush()
		require.NoError(t, h.Release(t.Context()))
	}
}

func TestWatchdogSurvivesAScriptFlush(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e := &events{}
	c := open(t, s, lock.Config{Watchdog: shortWatchdog, Observer: e})
	h := acquire(t, c, "a", 0)
	again := acquire(t, c, "a", 0) // two of them, for a pipeline
	e.await(t, lock.Renewed, 2)
	require.NoError(t, s.Client(t, nil).ScriptFlush(t.Context()).Err())
	e.await(t, lock.Renewed, e.count(lock.Renewed)+4)
	for _, ev := range e.list() {
		require.NoError(t, ev.Err)
	}
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, again.Release(t.Context()))
}

func TestWaiterSurvivesABrokenSubscription(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, holder := open(t, s, lock.Config{}), open(t, s, lock.Config{})
	h := acquire(t, holder, "a", long)
	waiter := waiting(t.Context(), t, c, lock.Options{Lease: long, Wait: lock.Forever})
	parked(t, rdb, 1)
	killed, err := rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, killed)
	require.NoError(t, h.Release(t.Context())) // its message may reach no client
	require.NoError(t, <-waiter)

	// The subscription works again: a waiter is woken by it, and not by a poll.
	h = acquire(t, holder, "a", long)
	waiter = waiting(t.Context(), t, c, lock.Options{Lease: long, Wait: lock.Forever})
	parked(t, rdb, 1)
	soonerThan(t, rdb, beforePoll, "a poll found the lock free", func() {
		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, <-waiter)
	})
}

func TestWaiterIsServedWithoutAnyMessage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	require.NoError(t, rdb.ACLSetUser(t.Context(), "mute", "on", "nopass", "~*", "resetchannels", "+@all").Err())
	mute := newClient(t, s.Client(t, func(o *redis.Options) { o.Username = "mute"; o.Password = "x" }), lock.Config{})
	h := acquire(t, open(t, s, lock.Config{}), "a", soonOver)
	next, err := mute.Acquire(t.Context(), "orders", lock.Options{Lease: soonOver, Wait: lock.Forever})
	require.NoError(t, err)
	require.False(t, time.Now().Before(h.Lease().Expires))
	<-next.Lost() // it can't be released by a user that may not publish
}

func TestServerRestartsDuringAHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := open(t, s, lock.Config{Watchdog: shortWatchdog})
	watched := acquire(t, c, "a", 0)
	leased := acquire(t, c, "a", long)
	s.Kill()
	s.Start(t)
	select {
	case <-watched.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the watchdog didn't notice")
	}
	require.ErrorIs(t, watched.Release(t.Context()), lock.ErrNotHeld)
	require.ErrorIs(t, leased.Release(t.Context()), lock.ErrNotHeld)
	select {
	case <-leased.Lost():
	default:
		t.Fatal("a refused release loses the hold")
	}
}

func TestCancelInFlightLeavesNothing(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	e := &events{}
	c, link := overLink(t, s, lock.Config{Observer: e, Watchdog: shortWatchdog})
	warm := acquire(t, c, "warm", long)
	require.NoError(t, warm.Release(t.Context()))
	for _, lease := range []time.Duration{0, long} {
		held, deliver := link.HoldReplies(digest(t, "acquire"))
		ctx, cancel := context.WithCancel(t.Context())
		done := waiting(ctx, t, c, lock.Options{Lease: lease})
		happened(t, held)
		require.Len(t, keysLeft(t, rdb), 1, "the server has granted it")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled) // without waiting for the reply
		deliver()
		redistest.Await(t, "the grant to be taken back", func() bool { return len(keysLeft(t, rdb)) == 0 })
	}
	require.Equal(t, 1, e.count(lock.Acquired))
	require.Zero(t, e.count(lock.Renewing))
}

func TestCloseInFlightLeavesNothing(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, link := overLink(t, s, lock.Config{})
	warm := acquire(t, c, "warm", long)
	require.NoError(t, warm.Release(t.Context()))
	held, deliver := link.HoldReplies(digest(t, "acquire"))
	done := waiting(t.Context(), t, c, lock.Options{Lease: long})
	happened(t, held)
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	require.ErrorIs(t, <-done, lock.ErrClosed)
	deliver()
	<-closed
	require.Empty(t, keysLeft(t, rdb), "Close waited until the grant was taken back")
}

func TestReplicaAcks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	replica, detach := s.Replica(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{ReplicaAcks: 1, AckTimeout: attentive})
	h := acquire(t, c, "a", long)
	kept, err := replica.Client(t, nil).Get(t.Context(), "lock:{orders}").Result()
	require.NoError(t, err)
	require.Equal(t, rdb.Get(t.Context(), "lock:{orders}").Val(), kept)
	require.NoError(t, h.Extend(t.Context(), 2*long))
	end := h.Lease().Expires

	two := open(t, s, lock.Config{ReplicaAcks: 2, AckTimeout: 50 * time.Millisecond})
	_, err = two.Acquire(t.Context(), "other", lock.Options{Lease: long})
	require.ErrorIs(t, err, lock.ErrNotReplicated, "one replica is not two")
	require.NotErrorIs(t, err, lock.ErrNotAcquired)

	detach()
	err = h.Extend(t.Context(), 3*long)
	require.ErrorContains(t, err, "0 of 1 replicas")
	require.NotErrorIs(t, err, lock.ErrNotHeld)
	require.Equal(t, end, h.Lease().Expires, "what the replica doesn't have is not believed")
	require.NoError(t, h.Release(t.Context()))
	_, err = c.Acquire(t.Context(), "orders", lock.Options{Lease: long})
	require.ErrorIs(t, err, lock.ErrNotReplicated)
	require.Empty(t, keysLeft(t, rdb), "it was undone")
}

func TestWatchdogNeedsTheAcksToo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	_, detach := s.Replica(t)
	e := &events{}
	c := open(t, s, lock.Config{ReplicaAcks: 1, AckTimeout: attentive, Watchdog: 2 * shortWatchdog, Observer: e})
	h := acquire(t, c, "a", 0)
	first := h.Lease().Expires
	redistest.Await(t, "a renewal", func() bool { return h.Lease().Expires.After(first) })
	detach()
	select {
	case <-h.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the hold was believed in though no replica has its renewals")
	}
}

// Behind a client that may repeat requests unseen, a release of what is lost says
// so all the same.
func TestReleaseOfALostLockByAnyClient(t *testing.T) {
	s := redistest.Start(t)
	c := newClient(t, struct{ redis.UniversalClient }{s.Client(t, nil)}, lock.Config{})
	h := acquire(t, c, "a", long)
	forced, err := c.Mutex("orders").ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, forced)
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
}

// A server that stands still while it extends a lease, until that is over, leaves no key
// without an end.
func TestSlowExtensionLeavesAnEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	const key = "lock:{orders}"
	// So many grants that are over take the script longer than the lease lasts.
	const many = `for i = 1, 100000 do redis.call('HSET', KEYS[1], 'over' .. i, 1) end`
	extend := lock.Scripts()["extend"]
	require.NoError(t, rdb.ScriptLoad(ctx, extend).Err())
	redistest.Await(t, "an extension while the lease runs", func() bool {
		require.ErrorIs(t, rdb.Eval(ctx, many, []string{key}).Err(), redis.Nil)
		p := rdb.TxPipeline()
		p.HSet(ctx, key, "owner", "a", "r", time.Now().Add(10*time.Millisecond).UnixMilli())
		extended := p.EvalSha(ctx, digest(t, "extend"), []string{key}, "r", 1)
		_, err := p.Exec(ctx)
		require.NoError(t, err)
		if extended.Val() != int64(1) {
			return false // the lease was over before
		}
		require.NotEqual(t, time.Duration(-1), rdb.PTTL(ctx, key).Val())
		return true
	})
}
