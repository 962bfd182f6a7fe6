package lock

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// One pipeline has a script that the server knows, one that it doesn't know, and
// one that fails.
func TestPipelineOfMixedFortune(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	ctx := t.Context()
	require.NoError(t, rdb.Set(ctx, "lock:{taken}", "my data", 0).Err())
	require.NoError(t, rdb.ScriptLoad(ctx, Scripts()["inspect"]).Err())
	calls := []transport.Call{
		requestFor(c.Mutex("a")), on("inspect", []string{"lock:{b}"}), requestFor(c.Mutex("taken")), requestFor(c.Mutex("c")),
	}
	replies := make([]transport.Reply, len(calls))
	var all sync.WaitGroup
	for i, s := range calls {
		all.Go(func() { replies[i] = c.transport.Run(ctx, s) })
	}
	all.Wait()
	for _, i := range []int{0, 1, 3} {
		require.NoError(t, replies[i].Err)
		require.True(t, replies[i].Value != nil)
	}
	require.ErrorContains(t, replies[2].Err, "use another name")
	for name, held := range map[string]bool{"a": true, "b": false, "c": true} {
		state, err := c.Mutex(name).State(ctx)
		require.NoError(t, err)
		require.Equal(t, held, state.Holds > 0, name)
	}
}

// linked is a client on a link that can be disturbed, to a server that knows the
// scripts.
func linked(t *testing.T, change ...func(*redis.Options)) (*Client, *redistest.Link, *redis.Client) {
	t.Helper()
	s, link := redistest.Start(t), &redistest.Link{}
	c, err := New(s.Client(t, func(o *redis.Options) {
		link.Use(o)
		o.ReadTimeout = time.Minute
		for _, f := range change {
			f(o)
		}
	}), Config{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for range 2 {
		h, err := c.Acquire(t.Context(), "warm", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
	}
	return c, link, s.Client(t, nil)
}

// The answers of one connection stay away. Callers that ask by another one get theirs.
// The one that waits is gone at once when it gives up, and its grant is withdrawn by another connection.
func TestConnectionThatIsSilent(t *testing.T) {
	t.Parallel()
	c, link, rdb := linked(t)
	byGoroutine(c)
	held, deliver := link.HoldReply(acquireText())
	t.Cleanup(deliver)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, "stuck", Options{Lease: time.Minute})
		stuck <- err
	}()
	<-held
	var others sync.WaitGroup
	for i := range 100 {
		others.Go(func() {
			h, err := c.Acquire(t.Context(), strconv.Itoa(i), Options{Lease: time.Minute})
			if err == nil {
				err = h.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	others.Wait()
	require.Len(t, stuck, 0)
	cancel()
	require.ErrorIs(t, <-stuck, context.Canceled, "without the reply")
	redistest.Await(t, "the grant to be withdrawn", func() bool {
		return rdb.Exists(t.Context(), "lock:{stuck}").Val() == 0
	})
}

func TestCloseWhileNothingComesBack(t *testing.T) {
	c, link, rdb := linked(t)
	held, deliver := link.HoldReplies(acquireText())
	t.Cleanup(deliver)
	const callers = 50
	errs := make(chan error, callers)
	for range callers {
		go func() {
			_, err := c.Mutex("orders").Acquire(t.Context(), within(Forever, Options{Lease: time.Minute, Owner: strconv.Itoa(callers)}))
			errs <- err
		}()
	}
	<-held
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	<-c.closing
	select {
	case <-closed:
		t.Fatal("Close did not wait for what is in flight")
	case <-time.After(20 * time.Millisecond): // nothing can be awaited that is not to happen
	}
	deliver()
	<-closed
	granted := 0
	for range callers {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, ErrClosed)
		} else {
			granted++
		}
	}
	taken := len(redistest.Fields(t.Context(), t, rdb, "lock:{orders}")) > 0
	require.Equal(t, granted > 0, taken, "what no caller was told of is withdrawn")
}
