package broken_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/broken"
	"github.com/lockchaos/lockchaos/lock/internal/redistest"
	"github.com/lockchaos/lockchaos/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchdog is a lease in which a busy machine gets something done.
const watchdog = 1500 * time.Millisecond

// failed are the checks of the contract that a lock does not pass. They run at the
// same time, each in a database of its own.
func failed(t *testing.T, locks func(broken.Setup) *broken.Lock, s servers, f locktest.Features, acks int) []string {
	t.Helper()
	f.Callers, f.Lease, f.Watchdog = 60, watchdog, watchdog
	checks := locktest.Checks(f)
	errs := make([]error, len(checks))
	var all sync.WaitGroup
	for i, c := range checks {
		setup := broken.Setup{Acks: acks, Watchdog: watchdog}
		for _, server := range s {
			setup.Servers = append(setup.Servers, server.Client(t, func(o *redis.Options) { o.DB = i }))
		}
		all.Go(func() {
			l := locks(setup)
			defer l.Close()
			errs[i] = c.Run(t.Context(), l)
		})
	}
	all.Wait()
	var names []string
	for i, err := range errs {
		if err != nil {
			t.Logf("%s: %v", checks[i].Name, err)
			names = append(names, checks[i].Name)
		}
	}
	return names
}

// servers are those of one lock.
type servers []*redistest.Server

func start(t *testing.T, n int) servers {
	t.Helper()
	var all servers
	for range n {
		all = append(all, redistest.Start(t, "--databases", "64"))
	}
	return all
}

func TestTheCorrectLocksKeepTheContract(t *testing.T) {
	tests := []struct {
		name     string
		make     func(broken.Setup) *broken.Lock
		features locktest.Features
		servers  int
		acks     int
	}{
		{"one key", broken.Correct, locktest.Features{}, 1, 0},
		{"one key, replicated", broken.Correct, locktest.Features{}, 1, 1},
		{"fenced", broken.CorrectFenced, locktest.Features{Fenced: true}, 1, 0},
		{"fenced, replicated", broken.CorrectFenced, locktest.Features{Fenced: true}, 1, 1},
		{"re-entrant", broken.CorrectReentrant, locktest.Features{Reentrant: true}, 1, 0},
		{"re-entrant, replicated", broken.CorrectReentrant, locktest.Features{Reentrant: true}, 1, 1},
		{"quorum", broken.CorrectQuorum, locktest.Features{SplitVotes: true}, 3, 0},
		{"queue", broken.CorrectQueue, locktest.Features{}, 1, 0},
		{"line", broken.CorrectLine, locktest.Features{}, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.servers)
			if tt.acks > 0 {
				s[0].Replica(t)
			}
			require.Empty(t, failed(t, tt.make, s, tt.features, tt.acks))
		})
	}
}

// lost lets the first commands pass, and answers none of those that follow.
type lost struct {
	redis.Hook
	first, seen atomic.Int64
}

func (*lost) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*lost) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *lost) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.seen.Add(1) > h.first.Load() {
			err := errors.New("lost")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// A request is made anew so often after answers of no as well, and no oftener.
func TestARequestWithoutAnAnswerIsGivenUp(t *testing.T) {
	s := redistest.Start(t)
	holder := broken.Correct(broken.Setup{Servers: []redis.UniversalClient{s.Client(t, nil)}})
	defer holder.Close()
	_, err := holder.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	hook, c := &lost{}, s.Client(t, nil)
	hook.first.Store(12)
	c.AddHook(hook)
	l := broken.RetryRecounted(broken.Setup{Servers: []redis.UniversalClient{c}})
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = l.Acquire(ctx, "orders", lock.Options{Lease: time.Minute, Wait: time.Minute})
	require.ErrorContains(t, err, "lost")
	require.Equal(t, int64(12+10), hook.seen.Load())
}

// As long as nothing fails and nobody is slow, most bugs don't show: that is why
// they are there. Those that do are blamed by the checks that they break and by no
// other.
func TestBugsWithoutFaults(t *testing.T) {
	tests := []struct {
		name     string
		make     func(broken.Setup) *broken.Lock
		features locktest.Features
		want     []string
	}{
		{"plain delete", broken.PlainDelete, locktest.Features{}, []string{
			"a release after the lease is refused",
			"a late release leaves the next holder alone",
		}},
		{"constant token", broken.ConstantToken, locktest.Features{}, []string{
			"a held lock is refused",
			"locks of different names are independent",
			"a waiter is handed the lock",
			"a wait ends with a refusal",
			"a cancelled wait leaves nothing behind",
			"a lease that ends lets the next one in",
			"a release after the lease is refused",
			"a late release leaves the next holder alone",
			"a second release is refused",
			"an extended lease lasts longer",
			"an extension after the lease is refused",
			"one of many callers gets the lock",
			"many waiters take turns",
			"an owner is refused its own lock",
			"a watchdog keeps a hold",
		}},
		{"get then delete", broken.GetThenDelete, locktest.Features{}, nil},
		{"set then expire", broken.SetThenExpire, locktest.Features{}, nil},
		{"retry refused", broken.RetryRefused, locktest.Features{}, nil},
		{"read replica", broken.ReadReplica, locktest.Features{Reentrant: true}, nil},
		{"no elapsed check", broken.NoElapsedCheck, locktest.Features{}, nil},
		{"wall elapsed", broken.WallElapsed, locktest.Features{}, nil},
		{"full validity", broken.FullValidity, locktest.Features{}, nil},
		{"renew any", broken.RenewAny, locktest.Features{}, nil},
		{"renew recreates", broken.RenewRecreates, locktest.Features{}, nil},
		{"renew unchecked", broken.RenewUnchecked, locktest.Features{}, nil},
		{"watchdog outlives", broken.WatchdogOutlives, locktest.Features{}, nil},
		{"retry recounted", broken.RetryRecounted, locktest.Features{}, nil},
		{"stale waiter", broken.StaleWaiter, locktest.Features{}, nil},
		{"passed to all", broken.PassedToAll, locktest.Features{}, []string{"many waiters take turns"}},
		{"passed recounted", broken.PassedRecounted, locktest.Features{}, nil},
		{"wait ignored", broken.WaitIgnored, locktest.Features{}, nil},
		{"wait leftover", broken.WaitLeftover, locktest.Features{}, nil},
		{"wait elsewhere", broken.WaitElsewhere, locktest.Features{}, nil},
		{"fence unreplicated", broken.FenceUnreplicated, locktest.Features{Fenced: true}, nil},
		{"re-entry unreplicated", broken.ReentryUnreplicated, locktest.Features{Reentrant: true}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, failed(t, tt.make, start(t, 1), tt.features, 0))
		})
	}
}

func Example() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks := broken.PlainDelete(broken.Setup{Servers: []redis.UniversalClient{rdb}})
	defer locks.Close()
	h, err := locks.Acquire(ctx, "orders", lock.Options{Lease: time.Second})
	if err != nil {
		return
	}
	_ = h.Release(ctx) // also when somebody else holds the lock by now
}
