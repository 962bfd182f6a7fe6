package locktests

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

const electionKey = "lock:{orders}:election"

// soonDead is the watchdog's lease of a leader that dies in a test.
const soonDead = 3 * time.Second

// campaign wins the election.
func campaign(t *testing.T, c *lock.Client, candidate string) *lock.Leadership {
	t.Helper()
	l, err := c.Election("orders").Campaign(t.Context(), candidate)
	require.NoError(t, err)
	return l
}

// campaigning campaigns in the background.
func campaigning(ctx context.Context, t *testing.T, c *lock.Client, candidate string) <-chan *lock.Leadership {
	t.Helper()
	won := make(chan *lock.Leadership, 1)
	go func() {
		l, err := c.Election("orders").Campaign(ctx, candidate)
		if err == nil {
			won <- l
		}
		close(won)
	}()
	return won
}

// ended waits for the end of a leadership.
func ended(t *testing.T, l *lock.Leadership) {
	t.Helper()
	happened(t, l.Context().Done())
}

func TestElectionHasOneLeaderAtATime(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var mu sync.Mutex
	leading, tokens := 0, []int64(nil)
	var all sync.WaitGroup
	for i := range 4 {
		c := open(t, s, lock.Config{})
		all.Go(func() {
			for range 5 {
				l, err := c.Election("orders").Campaign(t.Context(), "node "+strconv.Itoa(i%2)) // the names needn't differ
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				leading++
				if leading > 1 {
					t.Error("two lead")
				}
				tokens = append(tokens, l.Token())
				mu.Unlock()
				if got, err := c.Election("orders").Leader(t.Context()); err != nil || got != "node "+strconv.Itoa(i%2) {
					t.Errorf("%q leads, %v", got, err)
				}
				mu.Lock()
				leading--
				mu.Unlock()
				if err := l.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, tokens, 20)
	require.True(t, slices.IsSorted(tokens))
	require.Len(t, slices.Compact(tokens), 20, "tokens grow")
}

// A leader that is cut off stops to believe before the next one leads.
func TestElectionTakesOverFromADeadLeader(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	network := &redistest.Link{}
	c := newClient(t, s.Client(t, network.Use), lock.Config{Watchdog: soonDead})
	first := campaign(t, c, "a")
	next := campaigning(t.Context(), t, open(t, s, lock.Config{}), "b")
	defer network.Cut()()
	second := <-next
	require.NotNil(t, second)
	require.ErrorIs(t, context.Cause(first.Context()), lock.ErrLost)
	require.Greater(t, second.Token(), first.Token())
	require.NoError(t, second.Resign(t.Context()))
}

func TestLostLeadershipEndsItsContext(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := campaign(t, open(t, s, lock.Config{Watchdog: soonDead}), "a")
	require.NoError(t, s.Client(t, nil).Del(t.Context(), electionKey).Err())
	ended(t, l)
	require.ErrorIs(t, context.Cause(l.Context()), lock.ErrLost)
	require.ErrorIs(t, l.Resign(t.Context()), lock.ErrNotHeld)
}
