package lock

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock/internal/redistest"
)

// standIn awaits that so many calls stand in the lines of a client.
func standIn(t *testing.T, c *Client, n int) {
	t.Helper()
	redistest.Await(t, "the line", func() bool { return c.lines.standing() == n })
}

func (s *lines) standing() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.of {
		n += len(l.waiting)
	}
	return n
}

// tickets awaits that so many were drawn for the lock "orders".
func tickets(t *testing.T, rdb *redis.Client, n int64) {
	t.Helper()
	redistest.Await(t, "the tickets", func() bool { return drawn(t, rdb) == n })
}

func drawn(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	n, err := rdb.ZCard(t.Context(), keysOf("lock", "orders").tickets()).Result()
	require.NoError(t, err)
	return n
}

// grantOf is what a hold of a client is of.
func grantOf(t *testing.T, h *Hold) *grant {
	t.Helper()
	require.NotNil(t, h)
	g, ok := h.keeper.(*grant)
	require.True(t, ok)
	return g
}

// batchLasts makes a batch that has begun last as long as the test.
func (s *lines) batchLasts(since *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*since = time.Now().Add(time.Hour)
}

// A lock that is passed on right after it was handed over has the short lease of
// that still, however close to it the one is that was asked for. It becomes that.
func TestLockPassedOnAfterAHandOverGetsItsLease(t *testing.T) {
	c, _, rdb := linked(t)
	h, err := c.Acquire(t.Context(), "orders", Options{Owner: "a", Lease: time.Minute})
	require.NoError(t, err)
	o := Options{Lease: handedLease * 8 / 5, Wait: time.Minute}
	one, _ := takes(t.Context(), c, o)
	standIn(t, c, 1)
	two, _ := takes(t.Context(), c, o)
	standIn(t, c, 2)
	tickets(t, rdb, 1)
	require.NoError(t, h.Release(t.Context()))
	first := <-one
	c.lines.batchLasts(&grantOf(t, first).relay.since)
	require.NoError(t, first.Release(t.Context()))
	second := <-two
	require.Equal(t, 1, grantOf(t, second).turn, "it was passed on in memory")
	require.Less(t, time.Until(second.Lease().Expires), handedLease, "it has the lease of the hand-over")
	redistest.Await(t, "the lease that was asked for", func() bool {
		return time.Until(second.Lease().Expires) > handedLease
	})
	require.NoError(t, second.Release(t.Context()))
}

// What ran out between who passes a lock on and who gets it is no grant: that one
// asks anew, and the server learns that the lock is free.
func TestLockThatRanOutOnItsWayIsAskedForAnew(t *testing.T) {
	c, _, rdb := linked(t)
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	waits, errs := takes(t.Context(), c, Options{Lease: time.Minute, Wait: time.Minute})
	standIn(t, c, 1)
	tickets(t, rdb, 1)
	g := grantOf(t, h)
	c.lines.batchLasts(&g.since)
	p, sv, _ := c.lines.passNow(g, h.Lease().Expires, false)
	require.NotNil(t, p, "it is passed on")
	sv.answer.expires = time.Now()
	p.serve(sv)
	next := <-waits
	require.NoError(t, <-errs)
	require.NotEqual(t, g.request, grantOf(t, next).request)
	require.Greater(t, time.Until(next.Lease().Expires), time.Duration(0))
	held, err := c.Mutex("orders").IsHeldBy(t.Context(), next.Lease().Owner)
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, next.Release(t.Context()))
}

// A process that stands still in a release, for longer than the lease lasts, passes
// nothing on: the lock is another one's by then.
func TestReleaseThatStandsStillPassesNothingOn(t *testing.T) {
	c, _, rdb := linked(t)
	other, err := New(rdb, Config{})
	require.NoError(t, err)
	defer other.Close()
	o := Options{Lease: time.Second, Wait: time.Minute}
	h, err := c.Acquire(t.Context(), "orders", o)
	require.NoError(t, err)
	theirs, _ := takes(t.Context(), other, Options{Owner: "x", Lease: time.Minute, Wait: time.Minute})
	tickets(t, rdb, 1)
	ours, _ := takes(t.Context(), c, o)
	standIn(t, c, 1)
	c.lines.batchLasts(&grantOf(t, h).since)
	c.lines.mu.Lock()
	released := make(chan error, 1)
	go func() { released <- h.Release(t.Context()) }()
	x := <-theirs
	c.lines.mu.Unlock()
	require.ErrorIs(t, <-released, ErrNotHeld)
	require.Equal(t, 1, c.lines.standing(), "nobody was told that the lock is his")
	require.NoError(t, x.Release(t.Context()))
	require.NoError(t, (<-ours).Release(t.Context()))
}

// A hold that its owner re-entered, and whose release failed at first, is not
// passed on when that is repeated: the owner holds the lock still.
func TestLockThatWasReEnteredIsNotPassedOnByASecondRelease(t *testing.T) {
	c, _, rdb := linked(t)
	a, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	b, err := c.Acquire(t.Context(), "orders", Options{Owner: a.Lease().Owner, Lease: time.Minute})
	require.NoError(t, err)
	waits, _ := takes(t.Context(), c, Options{Lease: time.Minute, Wait: time.Minute})
	standIn(t, c, 1)
	tickets(t, rdb, 1)
	c.lines.batchLasts(&grantOf(t, a).since)
	a.turn <- struct{}{} // somebody else talks to the server about it
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Release(gone), context.Canceled)
	a.give()
	require.NoError(t, a.Release(t.Context()))
	require.Equal(t, 1, c.lines.standing(), "nobody else has it")
	require.NoError(t, b.Release(t.Context()))
	require.NoError(t, (<-waits).Release(t.Context()))
}

// listens has a client hear what is handed to it.
func listens(t *testing.T, c *Client) {
	t.Helper()
	w := c.wakeups.join(pending{channel: c.inbox})
	redistest.Await(t, "the subscription", func() bool { return c.wakeups.listens(c.inbox) })
	c.wakeups.leave(w, false)
}

// ridden is a line in which a hold is passed on, and which is about to ask whether
// that may go on. The ticket that it would draw is that of next.
type ridden struct {
	key   lineKey
	line  *line
	relay *relay
	next  *grant
}

func riddenBy(t *testing.T, h *Hold) ridden {
	t.Helper()
	g := grantOf(t, h)
	s := g.client.lines
	l := &line{stop: func() {}, poke: make(chan struct{}, 1)}
	s.add(l)
	_, r, next := s.advance(g.lineKey(), l, g, false)
	r.asked = make(chan struct{})
	l.tell()
	return ridden{g.lineKey(), l, r, next}
}

func (r ridden) ride(ctx context.Context) (answer, error) {
	return r.next.client.lines.ride(ctx, r.key, r.line, r.relay, r.next)
}

// A line that learns that its lock was lost listens for no ticket any more, whether
// somebody stands in it, who needs a new one, or nobody.
func TestLineThatLostItsLockListensNoLonger(t *testing.T) {
	for name, waiting := range map[string]int{"nobody waits": 0, "somebody waits": 1} {
		t.Run(name, func(t *testing.T) {
			c, _, rdb := linked(t)
			listens(t, c)
			h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
			require.NoError(t, err)
			require.NoError(t, rdb.Del(t.Context(), "lock:{orders}").Err())
			r := riddenBy(t, h)
			for range waiting {
				c.lines.add(r.line)
			}
			a, err := r.ride(t.Context())
			if waiting == 0 {
				require.ErrorIs(t, err, errNobody)
			} else {
				require.NoError(t, err)
				require.True(t, a.granted, "it was free")
			}
			c.wakeups.mu.Lock()
			defer c.wakeups.mu.Unlock()
			require.Empty(t, c.wakeups.topics[c.inbox].waiters)
		})
	}
}

// loser loses the reply to the first request with that digest in it, when it is
// told to. It is a hook.
type loser struct {
	digest  string
	carried chan struct{} // closed once the server has carried it out
	told    chan struct{}
	lose    func() // closes told
	first   sync.Once
}

func (l *loser) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *loser) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *loser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(l.digest)) }) {
			return err
		}
		l.first.Do(func() {
			close(l.carried)
			<-l.told
			for _, c := range cmds {
				c.SetErr(io.EOF)
			}
			err = io.EOF
		})
		return err
	}
}

// losing is a client that listens, and that loses the first reply to keep.lua; and
// another one.
func losing(t *testing.T) (c, other *Client, l *loser, rdb *redis.Client) {
	t.Helper()
	s := redistest.Start(t)
	rdb = s.Client(t, nil)
	digest, err := rdb.ScriptLoad(t.Context(), Scripts()["keep"]).Result()
	require.NoError(t, err)
	l = &loser{digest: digest, carried: make(chan struct{}), told: make(chan struct{})}
	l.lose = sync.OnceFunc(func() { close(l.told) })
	own := s.Client(t, nil)
	own.AddHook(l)
	c, err = New(own, Config{})
	require.NoError(t, err)
	c.hurry = nil // it is sent again by the same wire
	t.Cleanup(c.Close)
	other, err = New(s.Client(t, nil), Config{})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	t.Cleanup(l.lose) // before Close waits for who awaits it
	listens(t, c)
	return c, other, l, rdb
}

// The ticket that a line drew is granted before the line hears that it drew one,
// and the repetition says that all is over. Nobody waits: the lock is given back,
// and not left to its lease.
func TestLineTakesBackWhatACopyDrew(t *testing.T) {
	c, other, l, rdb := losing(t)
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	waits, _ := takes(t.Context(), other, Options{Lease: time.Minute, Wait: time.Minute})
	tickets(t, rdb, 1)
	r := riddenBy(t, h)
	end := make(chan error, 1)
	go func() {
		_, err := r.ride(t.Context())
		end <- err
	}()
	<-l.carried
	require.EqualValues(t, 2, drawn(t, rdb))
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, (<-waits).Release(t.Context()))
	require.Equal(t, r.next.owner, redistest.Fields(t.Context(), t, rdb, "lock:{orders}")["owner"])
	l.lose()
	require.ErrorIs(t, <-end, errNobody)
	require.Empty(t, redistest.Fields(t.Context(), t, rdb, "lock:{orders}"))
}

// A copy of the question whether a lock may be kept draws no ticket for a line that
// has ended.
func TestCopyDrawsNothingForALineThatEnded(t *testing.T) {
	c, other, l, rdb := losing(t)
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
	require.NoError(t, err)
	r := riddenBy(t, h)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked, end := r.relay.asked, make(chan error, 1)
	go func() {
		_, err := r.ride(ctx)
		end <- err
	}()
	<-l.carried
	l.lose()
	<-asked
	stop() // as the release does that finds nobody in the line
	require.ErrorIs(t, <-end, errNobody)
	waits, _ := takes(t.Context(), other, Options{Lease: time.Minute, Wait: time.Minute})
	tickets(t, rdb, 1)
	r.next.keeps = r.relay.request
	again := r.next.asking()
	require.Equal(t, r.next.text(), again.words[len(again.words)-1], "it would draw one")
	_, err = c.run(t.Context(), again)
	require.NoError(t, err)
	require.EqualValues(t, 1, drawn(t, rdb))
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, (<-waits).Release(t.Context()))
}
