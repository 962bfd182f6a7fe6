package locks

import (
	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/adapters/zookeeper"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/mutants/broken"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// planted are locks with a planted bug, and correct twins of some, beside those of
// the mutants.
func planted() harness.Locks {
	return harness.Locks{
		{
			Name: "broken-etcd-deaf", Promises: promises.Full(promises.Promises{Store: topologies.StoreEtcd, Token: true}),
			Foreign: true,
			About:   "planted bug: as etcd-mutex, but a holder does not heed that its session has ended",
			Open:    openEtcd(false, true),
		},
		{
			Name: "broken-first-member", Promises: promises.Full(promises.Promises{}),
			Together: true, Subscribes: true,
			About: "planted bug: of several locks that are requested together, only the first is acquired",
			Open:  serves(func(c *lock.Client, _ harness.LockOptions) service { return together(broken.FirstMember(c)) }),
		},
		{
			Name: "broken-one-more-permit", Promises: promises.Full(promises.Promises{Kind: history.KindSemaphore, Several: true}),
			Subscribes: true,
			About:      "planted bug: a semaphore that hands out one permit more than it has",
			Open: serves(func(c *lock.Client, o harness.LockOptions) service {
				return permitted(broken.OneMorePermit(c, capacity(o)))
			}),
		},
		{
			Name: "broken-queue-jumping", Promises: promises.Full(promises.Promises{Fair: true, Place: true}),
			About: "planted bug: requests are numbered in order of arrival, but granted in another order",
			Open: with(func(c *lock.Client, server redis.UniversalClient, _ harness.LockOptions) lock.Locker {
				return broken.QueueJumping(server, c)
			}),
		},
		{
			Name: "broken-uncounted-reentry", Promises: promises.Full(promises.Promises{Reentrant: true}),
			Subscribes: true,
			About:      "planted bug: the first release of a re-entrant lock ends all grants of its owner",
			Open:       ours(func(c *lock.Client) lock.Locker { return broken.UncountedReentry(c) }),
		},
		{
			Name: "broken-unseen-readers", Promises: promises.Full(promises.Promises{Kind: history.KindRW, Reentrant: true, Downgrades: true}),
			Subscribes: true,
			About:      "planted bug: a writer is granted the lock while other clients read",
			Open: serves(func(c *lock.Client, _ harness.LockOptions) service {
				return readWrite(broken.UnseenReaders(c))
			}),
		},
		{
			Name: "broken-zookeeper-hasty", Promises: promises.Full(promises.Promises{Store: topologies.StoreZooKeeper, Token: true}),
			Foreign: true,
			About:   "planted bug: as zookeeper-lock, but a waiter takes the lock when the node before its own is gone, though it may not be the lowest",
			Open:    openZooKeeper(zookeeper.Disconnected, zookeeper.OpenHasty),
		},
		{
			Name: "correct-hand-over", Promises: promises.Full(promises.Promises{}),
			HolderOn: broken.HolderOn, Commands: inFull(), Subscribes: true,
			About: "the correct twin of broken-granted-by-message: a release hands the lock to a waiter that is subscribed on the granting server",
			Open:  mutants.OpenBroken(broken.CorrectHandOver),
		},
		{
			Name: "correct-key", Promises: promises.Full(promises.Promises{ReplicaAcks: true}),
			HolderOn: broken.HolderOn, Commands: inFull(),
			About: "the correct twin of most planted bugs: one key with a lease and a watchdog, with waiters that poll; what a lock must at least do",
			Open:  mutants.OpenBroken(broken.Correct),
		},
		{
			Name: "correct-queue", Promises: promises.Full(promises.Promises{}),
			HolderOn: broken.HolderOn, Commands: inFull(),
			About: "the correct twin of broken-stale-waiter and broken-abandoned-wait: clients queue, and the lease of each begins when it joins the queue",
			Open:  mutants.OpenBroken(broken.CorrectQueue),
		},
	}
}

// inFull are the commands of a lock that sends the text of its scripts.
func inFull() []string { return []string{"EVAL"} }
