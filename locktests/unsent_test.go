package locktests

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// sentRequests is a hook that counts what is sent for each mark, which every request for a lock names.
type sentRequests struct {
	mu     sync.Mutex
	counts map[string]map[string]int // by the first word, and the mark
}

func (s *sentRequests) send(ctx context.Context, cmds []redis.Cmder, next send) error {
	s.mu.Lock()
	for _, c := range cmds {
		if c.Name() != "evalsha" && c.Name() != "eval" {
			continue
		}
		script, _ := c.Args()[1].(string)
		mark, _ := c.Args()[4].(string)
		if s.counts[script] == nil {
			s.counts[script] = map[string]int{}
		}
		s.counts[script][mark]++
	}
	s.mu.Unlock()
	return next(ctx, cmds)
}

// of is how many different requests were sent with one of the scripts.
func (s *sentRequests) of(scripts ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	different := map[string]bool{}
	for _, script := range scripts {
		for mark := range s.counts[script] {
			different[mark] = true
		}
	}
	return len(different)
}

// A request that was never sent needs no withdrawal: a server that struggles is not given more to
// do by calls that have given up.
func TestRequestThatWasNeverSentIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	sent := &sentRequests{counts: map[string]map[string]int{}}
	rdb := s.Client(t, func(o *redis.Options) {
		o.ContextTimeoutEnabled = false // so that a request keeps its connection
		o.PoolSize = 10                 // of which half are used, for pipelines of 64 calls at the most
	})
	rdb.AddHook(hook(sent.send))
	c := newClient(t, rdb, lock.Config{})
	require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) // the server knows the scripts

	resume := s.Pause(t)
	const calls = 500 // more than can be on their way
	var done sync.WaitGroup
	for range calls {
		done.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := c.Acquire(ctx, "orders", lock.Options{Lease: long})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	done.Wait()
	resume()
	c.Close() // what goes on in the background has ended
	asked := sent.of(digest(t, "acquire"), lock.Scripts()["acquire"])
	withdrawn := sent.of(digest(t, "release"), lock.Scripts()["release"])
	require.Less(t, asked, calls, "most calls had no turn")
	require.LessOrEqual(t, withdrawn, asked)
	other := open(t, s, lock.Config{})
	require.NoError(t, acquire(t, other, "b", long).Release(t.Context()), "nothing is left behind")
}

// An error names the end of a context once.
func TestErrorOfAContextThatEndsIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder, c := open(t, s, lock.Config{}), open(t, s, lock.Config{})
	h := acquire(t, holder, "a", long)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Acquire(ctx, "orders", lock.Options{Lease: long, Wait: lock.Forever})
	require.EqualError(t, err, `acquire lock "orders": context deadline exceeded`)
	require.NoError(t, h.Release(t.Context()))
}
