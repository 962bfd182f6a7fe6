package locktests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

const ordersTickets = "lock:{orders}:tickets"

// queued waits until so many tickets were drawn.
func queued(t *testing.T, rdb *redis.Client, n int64) {
	t.Helper()
	redistest.Await(t, "tickets", func() bool { return drawn(t, rdb, ordersTickets) == n })
}

// drawn is how many tickets there are, without the one for requests that have none.
func drawn(t *testing.T, rdb *redis.Client, key string) int64 {
	t.Helper()
	n := int64(0)
	for _, ticket := range rdb.ZRange(t.Context(), key, 0, -1).Val() {
		if len(ticket) > 1 {
			n++
		}
	}
	return n
}

// scriptsRun is how many scripts the server has run.
func scriptsRun(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	stats := rdb.Info(t.Context(), "commandstats").Val()
	found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(stats)
	require.NotNil(t, found, stats)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// granting asks in the background, and hands over what it was granted.
func granting(ctx context.Context, t *testing.T, l lock.Locker, o lock.Options) <-chan *lock.Hold {
	t.Helper()
	holds := make(chan *lock.Hold, 1)
	go func() {
		defer close(holds)
		if h, err := l.Acquire(ctx, "orders", o); err == nil {
			holds <- h
		}
	}()
	return holds
}

// listening makes a client that messages reach.
func listening(t *testing.T, s *redistest.Server, holder *lock.Client, config lock.Config) *lock.Client {
	t.Helper()
	return listens(t, s, holder, open(t, s, config))
}

// listens makes messages reach a client.
func listens(t *testing.T, s *redistest.Server, holder, c *lock.Client) *lock.Client {
	t.Helper()
	rdb := s.Client(t, nil)
	h := acquire(t, holder, "a", long)
	w := waiting(t.Context(), t, c, lock.Options{Wait: lock.Forever})
	queued(t, rdb, 1)
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, <-w)
	return c
}

// handOver has c wait for the lock of holder, which hands it over.
func handOver(t *testing.T, s *redistest.Server, holder, c *lock.Client, o lock.Options) *lock.Hold {
	t.Helper()
	h := acquire(t, holder, "a", long)
	holds := granting(t.Context(), t, c, o)
	queued(t, s.Client(t, nil), 1)
	require.NoError(t, h.Release(t.Context()))
	next := <-holds
	require.NotNil(t, next)
	return next
}

// A lock that goes from one waiter to the next costs one request to draw a
// ticket and one to release, in the order of the tickets.
func TestHandOverCostsTwoRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	holder := open(t, s, lock.Config{})
	var clients []*lock.Client
	for range 2 {
		c := open(t, s, lock.Config{})
		clients = append(clients, listens(t, s, holder, c))
	}
	h := acquire(t, holder, "a", long)
	before, begin := scriptsRun(t, rdb), time.Now()
	var mu sync.Mutex
	var served []int
	var waiters []<-chan error
	const each = 10
	for i := range len(clients) * each {
		done := make(chan error, 1)
		waiters = append(waiters, done)
		go func() {
			h, err := clients[i%2].Acquire(t.Context(), "orders", lock.Options{Owner: fmt.Sprint(i), Wait: lock.Forever})
			if err == nil {
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				err = h.Release(t.Context())
			}
			done <- err
		}()
		queued(t, rdb, int64(i+1))
	}
	require.NoError(t, h.Release(t.Context()))
	for _, w := range waiters {
		require.NoError(t, <-w)
	}
	for i, who := range served {
		require.Equal(t, i, who, "%v", served)
	}
	polls := len(clients) * each * int(time.Since(begin)/(3*time.Second)) // on a busy machine
	require.LessOrEqual(t, scriptsRun(t, rdb)-before, 2*len(clients)*each+1+polls, "the first release is not theirs")
	require.Empty(t, keysLeft(t, rdb))
}

// A lock that changes hands has the lease that its new holder asked for when Acquire returns, and
// keeps it where the server stops at once. A lease of the watchdog, which no caller asked for, may
// be shorter at first, and says so.
func TestLeaseOfALockThatWasHandedOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		owner  string
		lease  time.Duration
		length time.Duration
	}{
		{"long", "b", long, long},
		{"long, without an owner", "", long, long},
		{"short", "b", 3 * time.Second, 3 * time.Second},
		{"watched", "b", 0, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			rdb := s.Client(t, nil)
			holder := open(t, s, lock.Config{})
			e := &events{}
			c := listening(t, s, holder, lock.Config{Observer: e})
			next := handOver(t, s, holder, c, lock.Options{Owner: tt.owner, Lease: tt.lease, Wait: lock.Forever})
			l := next.Lease()
			require.Equal(t, tt.length, l.Length)
			require.Greater(t, time.Until(l.Expires), l.Length/2)
			require.Greater(t, rdb.PTTL(t.Context(), "lock:{orders}").Val(), l.Length/2)
			if tt.lease == 0 {
				redistest.Await(t, "the watchdog's lease", func() bool { return next.Lease().Length == 30*time.Second })
				require.Greater(t, time.Until(next.Lease().Expires), 15*time.Second)
				require.Greater(t, rdb.PTTL(t.Context(), "lock:{orders}").Val(), 15*time.Second)
				e.await(t, lock.Renewed, 1)
				require.Equal(t, 1, e.count(lock.Renewing))
			}
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A message doesn't make a holder of a client that the server refused since, whatever
// the clock says of the server that sent it: it may have been under way for long, or
// come from a former master.
func TestStaleHandOver(t *testing.T) {
	t.Parallel()
	for name, apart := range map[string]time.Duration{"sent before": -time.Minute, "by a clock that is ahead": time.Minute} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			rdb := s.Client(t, nil)
			holder := open(t, s, lock.Config{})
			c := listening(t, s, holder, lock.Config{})
			h := acquire(t, holder, "a", long)
			holds := granting(t.Context(), t, c, lock.Options{Owner: "b", Lease: 3 * time.Second, Wait: lock.Forever})
			queued(t, rdb, 1)
			request, _, _ := strings.Cut(rdb.ZRange(t.Context(), ordersTickets, 0, -1).Val()[0], " ")
			inbox := rdb.PubSubChannels(t.Context(), "*inbox*").Val()
			require.Len(t, inbox, 1)
			at := rdb.Time(t.Context()).Val().Add(apart).UnixMilli()
			heard := rdb.Publish(t.Context(), inbox[0], fmt.Sprintf("=%s %d %d 0 lock:{orders}", request, at, at+3000))
			require.Equal(t, int64(1), heard.Val())
			select {
			case <-holds:
				t.Fatal("it believes that it holds what a holds")
			case <-time.After(300 * time.Millisecond):
			}
			require.NoError(t, h.Release(t.Context()))
			next := <-holds
			require.NotNil(t, next)
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A holder that was handed the lock, and can't extend it, believes in it no
// longer than the server.
func TestHandedLockThatCannotBeExtended(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := open(t, s, lock.Config{})
	c := listening(t, s, holder, lock.Config{Watchdog: 6 * time.Second})
	next := handOver(t, s, holder, c, lock.Options{Owner: "b", Wait: lock.Forever})
	until := next.Lease().Expires
	s.Kill()
	<-next.Lost()
	require.False(t, time.Now().Before(until))
	require.Error(t, next.Release(t.Context()))
}

// Waiters whom no message reaches are passed by at once. A client behind whose connection no client listens
// any more costs the others one short lease, however many of its requests wait.
func TestHandOverPassesTheDeadBy(t *testing.T) {
	t.Parallel()
	for inbox, limit := range map[string]time.Duration{"gone": beforePoll, "deaf": 9 * time.Second} { // two leases take 10s
		t.Run(inbox, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			rdb := s.Client(t, nil)
			holder := open(t, s, lock.Config{})
			c := listening(t, s, holder, lock.Config{})
			h := acquire(t, holder, "a", long)
			deaf := rdb.Subscribe(t.Context(), "deaf")
			defer deaf.Close()
			_, err := deaf.Receive(t.Context())
			require.NoError(t, err)
			for i := range 5 { // of processes that were killed
				draw(t, rdb, ticket(fmt.Sprint("gone", i), inbox, "x", 5_000, 0), true)
			}
			holds := granting(t.Context(), t, c, lock.Options{Owner: "b", Wait: lock.Forever})
			queued(t, rdb, 6)
			var next *lock.Hold
			soonerThan(t, rdb, limit, "the dead cost too much", func() {
				require.NoError(t, h.Release(t.Context()))
				if inbox == "deaf" {
					_, err = c.Mutex("orders").Acquire(t.Context(), lock.Options{})
					require.ErrorIs(t, err, lock.ErrNotAcquired)
				}
				next = <-holds
				require.NotNil(t, next)
			})
			require.NoError(t, next.Release(t.Context()))
			require.Empty(t, keysLeft(t, rdb))
		})
	}
}

// draw puts a ticket in the queue, as acquire.lua does; counted says that the
// server is to count who hears.
func draw(t *testing.T, rdb *redis.Client, ticket string, counted bool) {
	t.Helper()
	if counted {
		fields := strings.SplitN(ticket, " ", 5)
		fields[3] = "1"
		ticket = strings.Join(fields, " ")
	}
	now := rdb.Time(t.Context()).Val()
	require.NoError(t, rdb.ZAdd(t.Context(), ordersTickets, redis.Z{Score: float64(now.UnixMicro()), Member: ticket}).Err())
}

// A message that never arrives costs no more than a poll: the waiter then learns
// that it has held the lock all along.
func TestHandOverWhoseMessageIsLost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	holder := open(t, s, lock.Config{})
	c := listening(t, s, holder, lock.Config{})
	h := acquire(t, holder, "a", long)
	holds := granting(t.Context(), t, c, lock.Options{Owner: "b", Lease: long, Wait: lock.Forever})
	queued(t, rdb, 1)
	// What release.lua does, but for the message.
	drawn := rdb.ZPopMin(t.Context(), ordersTickets).Val()[0].Member.(string)
	request, _, _ := strings.Cut(drawn, " ")
	ends := rdb.Time(t.Context()).Val().Add(5 * time.Second).UnixMilli()
	require.NoError(t, rdb.Del(t.Context(), "lock:{orders}").Err())
	require.NoError(t, rdb.HSet(t.Context(), "lock:{orders}", "owner", "b", request, ends).Err())
	next := <-holds
	require.NotNil(t, next)
	require.Equal(t, request, next.Lease().Request)
	require.Greater(t, time.Until(next.Lease().Expires), long/2, "it was asked for anew")
	require.NoError(t, next.Release(t.Context()))
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
}

// Who gives up at the very moment at which it is handed the lock leaves it free.
func TestGivingUpCrossesAHandOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	holder := open(t, s, lock.Config{})
	c := listening(t, s, holder, lock.Config{})
	granted, refused := 0, 0
	patience := 2 * time.Millisecond // of the waiter, at most: as long as makes it as likely served as not
	for i := range 200 {
		// A ticket that is taken back in the background may be served first.
		h, err := holder.Mutex("orders").Acquire(t.Context(), within(3*time.Second, lock.Options{Owner: "a", Lease: long}))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		o := lock.Options{Owner: "b", Wait: lock.Forever}
		if i%2 == 0 {
			o.Wait = 1 + rand.N(patience)
		}
		holds := granting(ctx, t, c, o)
		var both sync.WaitGroup
		both.Go(func() {
			if i%2 == 1 {
				<-time.After(rand.N(patience)) // so that they cross in every way
				cancel()
			}
		})
		<-time.After(rand.N(2 * time.Millisecond))
		require.NoError(t, h.Release(t.Context()))
		both.Wait()
		if next := <-holds; next != nil {
			granted++
			patience = max(patience*2/3, 10*time.Microsecond)
			require.NoError(t, next.Release(t.Context()))
		} else {
			refused++
			patience = min(patience*3/2, 10*time.Second)
		}
		cancel()
		// What is given back in the background may take a moment, but no lease.
		again, err := holder.Mutex("orders").Acquire(t.Context(), within(3*time.Second, lock.Options{Owner: "a"}))
		require.NoError(t, err)
		require.NoError(t, again.Release(t.Context()))
	}
	t.Logf("%d granted, %d refused", granted, refused)
	require.Positive(t, granted)
	require.Positive(t, refused)
	redistest.Await(t, "tidy server", func() bool { return len(keysLeft(t, rdb)) == 0 })
}

// Where a lease ran out, who was refused before does not go before those who wait: its request hands the lock
// over. A first request looks at no tickets, so it may overtake them, and its release hands the lock over.
func TestNewcomerLeavesTheLockToTheQueue(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"refused before": true, "first request": false} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			rdb := s.Client(t, nil)
			holder, other := open(t, s, lock.Config{}), open(t, s, lock.Config{})
			c := listening(t, s, holder, lock.Config{})
			h := acquire(t, holder, "a", long)
			holds := granting(t.Context(), t, c, lock.Options{Owner: "b", Wait: lock.Forever})
			queued(t, rdb, 1)
			asks := lock.Options{Owner: "c", Lease: long}
			redistest.Await(t, "the server to be known to answer soon", func() bool { // else it is asked by a script at once
				begin := time.Now()
				h, err := other.Mutex("elsewhere").Acquire(t.Context(), asks)
				require.NoError(t, err)
				require.NoError(t, h.Release(t.Context()))
				return time.Since(begin) < 5*time.Millisecond
			})
			if before {
				_, err := other.Acquire(t.Context(), "orders", asks)
				require.ErrorIs(t, err, lock.ErrNotAcquired)
			}
			require.NoError(t, rdb.Del(t.Context(), "lock:{orders}").Err()) // as if it had run out
			var next *lock.Hold
			soonerThan(t, rdb, beforePoll, "the newcomer did not hand it over", func() {
				newcomer, err := other.Acquire(t.Context(), "orders", asks)
				if before {
					require.ErrorIs(t, err, lock.ErrNotAcquired)
				} else {
					require.NoError(t, err)
					queued(t, rdb, 1)
					require.NoError(t, newcomer.Release(t.Context()))
				}
				next = <-holds
				require.NotNil(t, next)
			})
			require.NoError(t, next.Release(t.Context()))
			require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
		})
	}
}

// plainKeys are the keys of a plain lock.
func plainKeys(key, request string) []string {
	return []string{key, key + ":tickets", key + ":token", key + ":released:" + request}
}

// held is how a request and its owner are told to the scripts of a plain lock.
func held(request, owner string) string { return "held " + request + " " + owner }

// ticket is what a request draws. No client counts who hears of it.
func ticket(request, inbox, owner string, lease, tokenLife int) string {
	return fmt.Sprintf("%s %d %d 0 %d %s%s", request, lease, tokenLife, len(inbox), inbox, owner)
}
