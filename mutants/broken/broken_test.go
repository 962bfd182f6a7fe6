package broken_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
	"github.com/lockchaos/lockchaos/mutants/broken"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// watchdog and lease are leases in which a busy machine gets something done.
	watchdog, lease = 14 * time.Second, 8 * time.Second
	// patience is how long a lock has to grant what it must not, and a waiter to
	// stand in line.
	patience = time.Second
	// timeout is one that no healthy server exceeds.
	timeout = 20 * time.Second
	// databases are those of a server, and each those of one lock there.
	databases, each = 1024, 32
)

// A subject is a lock that is checked, and what is wrong with it.
type subject struct {
	name     string
	make     func(broken.Setup) *broken.Lock
	features locktest.Features
	servers  servers
	acks     int
	first    int // of its databases
	want     []string
	slow     []string // what it fails as well where the server answers slowly, as on a busy machine
}

// judge requires that each lock fails the checks of the contract that it should, and no
// other. All of them run at the same time, for they wait for leases, mostly: each in
// a database of its own.
func judge(t *testing.T, subjects []subject) {
	t.Helper()
	errs := make([][]error, len(subjects))
	var all sync.WaitGroup
	for i, s := range subjects {
		f := s.features
		f.Callers, f.Lease, f.Watchdog, f.Patience = cmp.Or(f.Callers, 12), lease, watchdog, patience
		checks := locktest.Checks(f)
		require.LessOrEqual(t, len(checks), each)
		errs[i] = make([]error, len(checks))
		for k, c := range checks {
			setup := broken.Setup{Acks: s.acks, Watchdog: watchdog, Timeout: timeout}
			for _, server := range s.servers {
				setup.Servers = append(setup.Servers, server.Client(t, func(o *redis.Options) {
					o.DB, o.PoolSize, o.ReadTimeout = s.first+k, 4, 2*timeout
				}))
			}
			all.Go(func() {
				l := s.make(setup)
				defer l.Close()
				if err := c.Run(t.Context(), l); err != nil {
					errs[i][k] = failure{c.Name, err}
				}
			})
		}
	}
	all.Wait()
	for i, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			var names []string
			for _, err := range errs[i] {
				if f, ok := errors.AsType[failure](err); ok && !slices.Contains(s.slow, f.check) {
					t.Log(err)
					names = append(names, f.check)
				}
			}
			require.Equal(t, s.want, names)
		})
	}
}

// A failure is what a check says.
type failure struct {
	check string
	error
}

func (f failure) Error() string { return f.check + ": " + f.error.Error() }

// servers are those of one lock.
type servers []*redistest.Server

func start(t *testing.T, n int) servers {
	t.Helper()
	var all servers
	for range n {
		all = append(all, redistest.Start(t, "--databases", strconv.Itoa(databases)))
	}
	return all
}

func TestTheCorrectLocksKeepTheContract(t *testing.T) {
	t.Parallel()
	replicated := start(t, 1)
	replicated[0].Replica(t)
	alone := start(t, 1)
	subjects := []subject{
		{name: "one key", make: broken.Correct, servers: alone},
		{name: "one key, replicated", make: broken.Correct, servers: replicated, acks: 1},
		{name: "fenced", make: broken.CorrectFenced, features: locktest.Features{Fenced: true}, servers: alone},
		{name: "fenced, replicated", make: broken.CorrectFenced, features: locktest.Features{Fenced: true}, servers: replicated, acks: 1},
		{name: "re-entrant", make: broken.CorrectReentrant, features: locktest.Features{Reentrant: true}, servers: alone},
		{name: "re-entrant, replicated", make: broken.CorrectReentrant, features: locktest.Features{Reentrant: true}, servers: replicated, acks: 1},
		{name: "quorum", make: broken.CorrectQuorum, features: locktest.Features{SplitVotes: true}, servers: start(t, 3)},
		{name: "queue", make: broken.CorrectQueue, servers: alone},
		{name: "local queue", make: broken.CorrectLocalQueue, servers: alone},
		{name: "hand-over", make: broken.CorrectHandOver, servers: alone},
	}
	for i := range subjects {
		subjects[i].first = i * each
	}
	judge(t, subjects)
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
	_, err := holder.Acquire(t.Context(), "orders", lock.Options{Lease: time.Hour})
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
	t.Parallel()
	s := start(t, 1)
	subjects := []subject{
		{name: "plain delete", make: broken.PlainDelete, want: []string{
			"a release after the lease is refused",
			"a late release leaves the next holder alone",
		}},
		{name: "constant token", make: broken.ConstantToken, want: []string{
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
		{name: "get then delete", make: broken.GetThenDelete},
		{name: "set then expire", make: broken.SetThenExpire},
		{name: "retry refused", make: broken.RetryRefused},
		{name: "read replica", make: broken.ReadReplica, features: locktest.Features{Reentrant: true}},
		{name: "no elapsed check", make: broken.NoElapsedCheck},
		{name: "wall elapsed", make: broken.WallElapsed},
		{name: "full validity", make: broken.FullValidity, slow: []string{"a lease that ends lets the next one in"}}, // which is its bug
		{name: "renew any", make: broken.RenewAny},
		{name: "renew recreates", make: broken.RenewRecreates},
		{name: "renew unchecked", make: broken.RenewUnchecked},
		{name: "watchdog outlives", make: broken.WatchdogOutlives},
		{name: "retry recounted", make: broken.RetryRecounted},
		{name: "stale waiter", make: broken.StaleWaiter},
		{name: "passed to all", make: broken.PassedToAll, features: locktest.Features{Callers: 40}, want: []string{"many waiters take turns"}},
		{name: "passed recounted", make: broken.PassedRecounted},
		{name: "granted by message", make: broken.GrantedByMessage},
		{name: "wait ignored", make: broken.WaitIgnored},
		{name: "wait leftover", make: broken.WaitLeftover},
		{name: "wait elsewhere", make: broken.WaitElsewhere},
		{name: "fence unreplicated", make: broken.FenceUnreplicated, features: locktest.Features{Fenced: true}},
		{name: "re-entry unreplicated", make: broken.ReentryUnreplicated, features: locktest.Features{Reentrant: true}},
	}
	for i := range subjects {
		subjects[i].servers, subjects[i].first = s, i*each
	}
	judge(t, subjects)
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
