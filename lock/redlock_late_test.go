package lock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// endsAfter is a context that says that it has ended only when it was asked often
// enough.
type endsAfter struct {
	context.Context //nolint:containedctx // it is one

	left atomic.Int64
}

func (c *endsAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// is reports whether that is known of the request, once no call is under way.
func (s *seat) is(state seatState) bool {
	_ = s.turn.take(context.Background())
	defer s.turn.give()
	return s.state == state
}

// A context that ends just as the last server answers leaves nothing on those that
// granted the lock.
func TestRedlockWhoseContextEndsWithTheLastAnswer(t *testing.T) {
	t.Parallel()
	var servers []redis.UniversalClient
	var deliver []func()
	granting := redistest.Start(t).Client(t, nil)
	servers = append(servers, granting)
	for range 2 { // that refuse, once the first has granted it
		link := &redistest.Link{}
		rdb := redistest.Start(t).Client(t, link.Use)
		other, err := New(rdb, Config{})
		require.NoError(t, err)
		defer other.Close()
		_, err = other.Acquire(t.Context(), "orders", Options{Owner: "other", Lease: time.Minute})
		require.NoError(t, err)
		_, d := link.HoldReplies(acquireText())
		defer d()
		servers, deliver = append(servers, rdb), append(deliver, d)
	}
	r, err := NewRedlock(servers, RedlockConfig{NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	ctx := &endsAfter{Context: t.Context()}
	ctx.left.Store(1) // it is asked before the servers are
	orders := r.client.object("orders", r.kind)
	b := newRound(r, orders.grant(Options{Lease: time.Minute}))
	end := make(chan error, 1)
	go func() {
		_, _, err := b.request(ctx)
		end <- err
	}()
	redistest.Await(t, "the grant", func() bool { return b.seats[0].is(present) })
	require.True(t, len(redistest.Fields(t.Context(), t, granting, "lock:{orders}")) > 0)
	for _, d := range deliver {
		d()
	}
	require.ErrorIs(t, <-end, context.Canceled)
	r.Close()
	require.Len(t, redistest.Fields(t.Context(), t, granting, "lock:{orders}"), 0)
}

// A server that can't be reached, and so has got nothing, isn't asked to give it back.
func TestRedlockReleaseOfAServerThatGotNothing(t *testing.T) {
	t.Parallel()
	dead, tries := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1}), &counter{}
	defer dead.Close()
	dead.AddHook(tries)
	r, err := NewRedlock([]redis.UniversalClient{
		redistest.Start(t).Client(t, nil), redistest.Start(t).Client(t, nil), dead,
	}, RedlockConfig{NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	h, err := r.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	r.tasks.Wait() // for the error of the third
	require.NoError(t, h.Release(t.Context()))
	r.Close()
	require.Equal(t, 1, tries.count())
}

// A release that a majority refuses is refused for certain while the lease runs. A refusal
// after its end says nothing: the server may have had the grant when the release began, and
// another has ended it since.
func TestRedlockReleaseThatOutlastsTheLease(t *testing.T) {
	t.Parallel()
	for name, outlasts := range map[string]bool{"in time": false, "too late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := &redistest.Link{}
			servers := []redis.UniversalClient{
				redistest.Start(t).Client(t, nil), redistest.Start(t).Client(t, link.Use), redistest.Start(t).Client(t, nil),
			}
			r, err := NewRedlock(servers, RedlockConfig{NodeTimeout: 20 * time.Second})
			require.NoError(t, err)
			defer r.Close()
			lease := time.Minute
			if outlasts {
				lease = 2 * time.Second
			}
			h, err := r.Acquire(t.Context(), "orders", Options{Lease: lease})
			require.NoError(t, err)
			b := grantOf(t, h).round
			redistest.Await(t, "all grants", func() bool {
				return b.seats[0].is(present) && b.seats[1].is(present) && b.seats[2].is(present)
			})
			for _, s := range servers[1:] {
				require.NoError(t, s.Del(t.Context(), "lock:{orders}").Err())
			}
			held, deliver := link.HoldReply(scripts()["release"].Digest)
			ended := make(chan error, 1)
			go func() { ended <- h.Release(t.Context()) }()
			<-held
			if outlasts {
				redistest.Await(t, "the end of the lease", func() bool { return time.Now().After(h.Lease().Expires) })
			}
			deliver()
			if err = <-ended; outlasts {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrNotHeld)
			}
		})
	}
}

// A request that reaches a server only after the round was lost, and the server was started again, is released when it is
// answered. Nothing is sent without a limit, which Close would wait for.
func TestRedlockRequestThatOutlastsARestart(t *testing.T) {
	t.Parallel()
	var servers []redis.UniversalClient
	for range 2 {
		rdb := redistest.Start(t).Client(t, nil)
		require.NoError(t, rdb.Set(t.Context(), "lock:{orders}", "held other other", time.Minute).Err())
		servers = append(servers, rdb)
	}
	third, late, begun, restarted := redistest.Start(t), make(steps, 1), make(chan struct{}), make(chan struct{})
	rdb := third.Client(t, nil)
	rdb.AddHook(late)
	var endless atomic.Int64
	rdb.AddHook(contexts(func(ctx context.Context, cmds []redis.Cmder) {
		if _, limited := ctx.Deadline(); !limited && strings.HasPrefix(cmds[0].Name(), "eval") {
			endless.Add(1)
		}
	}))
	late <- func() error {
		close(begun)
		<-restarted
		return nil
	}
	r, err := NewRedlock(append(servers, rdb), RedlockConfig{NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	orders := r.client.object("orders", r.kind)
	b := newRound(r, orders.grant(Options{Lease: time.Minute}))
	end := make(chan error, 1)
	go func() {
		_, _, err := b.request(t.Context())
		end <- err
	}()
	<-begun
	redistest.Await(t, "the end of the round", func() bool { return b.seats[0].is(ended) && b.seats[1].is(ended) })
	third.Kill()
	third.Start(t)
	close(restarted)
	require.ErrorIs(t, <-end, ErrNotAcquired)
	r.Close()
	require.True(t, b.seats[2].is(ended))
	require.Zero(t, endless.Load())
	require.Len(t, redistest.Fields(t.Context(), t, rdb, "lock:{orders}"), 0)
}

// A waiter keeps the last of its rounds alone.
func TestRedlockWaiterForgetsItsRounds(t *testing.T) {
	t.Parallel()
	var servers []redis.UniversalClient
	for range 3 {
		servers = append(servers, redistest.Start(t).Client(t, nil))
	}
	rounds := &counter{}
	servers[0].AddHook(rounds)
	r, err := NewRedlock(servers, RedlockConfig{NodeTimeout: 20 * time.Second, RetryDelay: time.Millisecond})
	require.NoError(t, err)
	defer r.Close()
	before, err := r.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	end := make(chan *Hold, 1)
	go func() {
		h, _ := r.Acquire(t.Context(), "orders", within(Forever, Options{Lease: time.Minute}))
		end <- h
	}()
	redistest.Await(t, "some rounds", func() bool { return rounds.count() > 5 })
	require.NoError(t, before.Release(t.Context()))
	last := grantOf(t, <-end).round
	require.True(t, last != nil && last.grant.round == nil)
}

// A release leaves no mark where no copy of the request can be on its way. So one whose answers were lost finds nothing
// when it is repeated, and has released the lock.
func TestRedlockReleaseWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	var servers []redis.UniversalClient
	var dropped []<-chan struct{}
	for range 3 {
		link := &redistest.Link{}
		servers = append(servers, redistest.Start(t).Client(t, link.Use))
		require.NoError(t, servers[len(servers)-1].ScriptLoad(t.Context(), Scripts()["release"]).Err())
		dropped = append(dropped, link.DropReply(scripts()["release"].Digest))
	}
	r, err := NewRedlock(servers, RedlockConfig{NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	h, err := r.Acquire(t.Context(), "orders", Options{Lease: time.Hour})
	require.NoError(t, err)
	r.tasks.Wait() // for the last server's grant
	require.NoError(t, h.Release(t.Context()))
	r.tasks.Wait()
	for i, rdb := range servers {
		<-dropped[i]
		require.Equal(t, int64(0), rdb.DBSize(t.Context()).Val())
	}
	require.ErrorIs(t, h.Release(t.Context()), ErrReleased)
}

// A release that is asked for after the lease is no success because its first answer was lost.
func TestRedlockLateReleaseWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	var servers []redis.UniversalClient
	var dropped []<-chan struct{}
	for range 3 {
		link := &redistest.Link{}
		servers = append(servers, redistest.Start(t).Client(t, link.Use))
		require.NoError(t, servers[len(servers)-1].ScriptLoad(t.Context(), Scripts()["release"]).Err())
		dropped = append(dropped, link.DropReply(scripts()["release"].Digest))
	}
	r, err := NewRedlock(servers, RedlockConfig{NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	h, err := r.Acquire(t.Context(), "orders", Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	r.tasks.Wait() // for the last server's grant
	for _, rdb := range servers {
		redistest.Await(t, "the end of the lease", func() bool { return rdb.DBSize(t.Context()).Val() == 0 })
	}
	<-h.Lost()
	require.ErrorIs(t, h.Release(t.Context()), ErrNotHeld)
	for _, d := range dropped {
		<-d
	}
}

// stranger makes replies strange that say yes, as a hook or a proxy may.
type stranger struct{}

func (stranger) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (stranger) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (stranger) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if c, ok := cmd.(interface {
				Val() any
				SetVal(v any)
			}); ok && c.Val() == int64(1) {
				c.SetVal("strange")
			}
		}
		return err
	}
}

// A reply that says neither yes nor no may be that of a server which granted the lock: it is taken back there.
func TestRedlockTakesBackWhatAStrangeReplyMayHide(t *testing.T) {
	t.Parallel()
	var servers []redis.UniversalClient
	for range 2 {
		rdb := redistest.Start(t).Client(t, nil)
		require.NoError(t, rdb.Set(t.Context(), "lock:{orders}", "held other other", time.Minute).Err())
		servers = append(servers, rdb)
	}
	third := redistest.Start(t)
	rdb := third.Client(t, nil)
	rdb.AddHook(stranger{})
	r, err := NewRedlock(append(servers, rdb), RedlockConfig{NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.ErrorIs(t, err, ErrNotAcquired)
	r.Close()
	require.Len(t, redistest.Fields(t.Context(), t, third.Client(t, nil), "lock:{orders}"), 0)
}
