package locks

import (
	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/mutants/broken"
	"github.com/lockchaos/lockchaos/promises"
)

// planted are locks with a planted bug, and correct twins of some, beside those of
// the mutants and of other stores.
func planted() harness.Locks {
	twin := func(name, about string, p promises.Promises, subscribes bool, of func(broken.Setup) *broken.Lock) harness.LockSpec {
		return harness.LockSpec{Name: name, About: about, Promises: promises.Full(p), HolderOn: broken.HolderOn, LooksLeft: !p.Place, Commands: []string{"EVAL"}, Subscribes: subscribes, Open: mutants.OpenBroken(of)}
	}
	all := harness.Locks{
		ours("broken-first-member", "planted bug: of several locks that are requested together, only the first is acquired", promises.Promises{},
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return together(broken.FirstMember(c)) })),
		ours("broken-one-more-permit", "planted bug: a semaphore that hands out one permit more than it has", promises.Promises{Kind: history.KindSemaphore, Several: true},
			locker(func(c *lock.Client, o harness.LockOptions) lock.Locker {
				return permitted(broken.OneMorePermit(c, capacity(o)))
			})),
		ours("broken-queue-jumping", "planted bug: requests are numbered in order of arrival, but granted in another order", promises.Promises{Fair: true, Place: true},
			func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
				return locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return broken.QueueJumping(servers[0], c) })(servers, o)
			}),
		ours("broken-uncounted-reentry", "planted bug: the first release of a re-entrant lock ends all grants of its owner", promises.Promises{Reentrant: true},
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return broken.UncountedReentry(c) })),
		ours("broken-unseen-readers", "planted bug: a writer is granted the lock while other clients read", promises.Promises{Kind: history.KindRW, Reentrant: true, Downgrades: true},
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return readWrite(broken.UnseenReaders(c)) })),
	}
	for i := range all {
		all[i].Together, all[i].Subscribes = all[i].Name == "broken-first-member", !all[i].Place
	}
	return append(all,
		twin("correct-hand-over", "the correct twin of broken-granted-by-message: a release hands the lock to a waiter that is subscribed on the granting server", promises.Promises{}, true, broken.CorrectHandOver),
		twin("correct-key", "the correct twin of most planted bugs: one key with a lease and a watchdog, with waiters that poll; what a lock must at least do", promises.Promises{ReplicaAcks: true}, false, broken.Correct),
		twin("correct-queue", "the correct twin of broken-stale-waiter and broken-abandoned-wait: clients queue, and the lease of each begins when it joins the queue", promises.Promises{}, false, broken.CorrectQueue),
	)
}
