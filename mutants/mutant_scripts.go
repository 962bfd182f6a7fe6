package mutants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/mutants/broken"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// These are the scripts of the mutants. Each is played with the bug and with its
// twin, and says nothing of what either is to answer: the history does. The last
// request of most is there for the twin, whose history shows nothing unless
// another client contended.

// renewals is the lease of the watchdogs whose renewal is late. What is renewed
// at a third of it must end well after another client was granted the lock.
const renewals = 4500 * time.Millisecond

// outlived is that of the watchdog whose holder is gone: the release must be lost
// within it.
const outlived = 2400 * time.Millisecond

// toA is the link from a's zone to the only server.
const toA = "zone-a>redis-1"

// toReplicas is what the replicas get from the first master.
const toReplicas = "redis>redis-1"

// stuckFor is how long a client asks for a lock that must be free after the lease.
func stuckFor(lease time.Duration) time.Duration { return lease + mutantBound + time.Second }

// twoAsk: a holds, and b asks.
func twoAsk(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := a.get(ctx, long); err != nil {
		return err
	}
	b.ask(ctx, long)
	return nil
}

// lateRelease: a releases after its lease, when b holds, and c asks.
func lateRelease(ctx context.Context, t *mutantRun) error {
	a, b, c := t.three()
	if err := errors.Join(a.get(ctx, 200*time.Millisecond), b.get(ctx, long)); err != nil {
		return err
	}
	a.Release(ctx)
	c.ask(ctx, long)
	return nil
}

// slowRelease: a begins to release within its lease, and ends when b holds; then
// c asks.
func slowRelease(ctx context.Context, t *mutantRun) error {
	a, b, c := t.three()
	if err := a.get(ctx, 2*time.Second); err != nil {
		return err
	}
	release := func() history.Type { return a.Release(ctx) }
	if _, err := a.stopped(ctx, release, func(bool) error { return b.get(ctx, long) }); err != nil {
		return err
	}
	c.ask(ctx, long)
	return nil
}

// lostAnswer: the answer to a's request is lost with its connection. Whatever a
// is told, it gives back what it holds, and b asks.
func lostAnswer(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := t.fault(ctx, "drop-reply", toA, map[string]string{"command": "EVAL"}); err != nil {
		return err
	}
	asked := t.behind(func() history.Type { return a.ask(ctx, long) })
	if err := t.AwaitFault(ctx, "drop-reply", ""); err != nil {
		return err
	}
	got, err := outcome(ctx, asked)
	if err != nil {
		return err
	}
	if got == history.Info {
		return fmt.Errorf("a was left without any answer: %w", errNotShown)
	}
	if got == history.OK {
		if err := a.giveBack(ctx); err != nil {
			return err
		}
	}
	b.tryFor(ctx, stuckFor(0), long)
	a.ask(ctx, long)
	return nil
}

// lateRetry: the answer to a's request is lost with its connection, and a is slow
// to ask again, as far as it asks again. b asks until it is granted the lock.
func lateRetry(ctx context.Context, t *mutantRun) error {
	const lease, delay = 3 * time.Second, 1400 * time.Millisecond
	a, b := t.two()
	if err := t.fault(ctx, "drop-reply", toA, map[string]string{"command": "EVAL"}); err != nil {
		return err
	}
	got, err := a.stopped(ctx, func() history.Type { return a.ask(ctx, lease) }, func(bool) error {
		err := t.AwaitFault(ctx, "drop-reply", "")
		workload.Pause(ctx, delay)
		return err
	})
	if err := must(got, err, "a was refused a lock within its lease"); err != nil {
		return err
	}
	return b.get(ctx, long)
}

// longWait: b waits for the lock for longer than it asked for. If it is granted the
// lock, it goes to work.
func longWait(ctx context.Context, t *mutantRun) error {
	var stock workload.Register
	a, b := t.two()
	if err := a.get(ctx, 1500*time.Millisecond); err != nil {
		return err
	}
	if b.Acquire(ctx, theLock, 200*time.Millisecond, requestTimeout) != history.OK {
		return nil
	}
	return b.use(ctx, &stock)
}

// givenUp: b waits for the lock until it waits no longer. a releases it, and asks
// again.
func givenUp(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := a.get(ctx, long); err != nil {
		return err
	}
	if got := b.Acquire(ctx, theLock, long, 200*time.Millisecond); got != history.Fail {
		return fmt.Errorf("b was not refused: %w", errNotShown)
	}
	if err := a.giveBack(ctx); err != nil {
		return err
	}
	a.tryFor(ctx, stuckFor(0), long)
	return nil
}

// twoInLine: a holds, and c and d of the same process stand in line behind it. a
// releases.
func twoInLine(ctx context.Context, t *mutantRun) error {
	a := t.open("a", "zone-a")
	if err := a.get(ctx, long); err != nil {
		return err
	}
	var asked []chan history.Type
	for _, name := range []string{"c", "d"} {
		p := t.beside(a, name)
		asked = append(asked, t.behind(func() history.Type { return p.Acquire(ctx, theLock, long, 3*time.Second) }))
	}
	if err := a.lined(ctx, len(asked)); err != nil {
		return err
	}
	if err := a.giveBack(ctx); err != nil {
		return err
	}
	granted := 0
	for _, done := range asked {
		got, err := outcome(ctx, done)
		if err != nil {
			return err
		}
		if got == history.OK {
			granted++
		}
	}
	if granted == 0 {
		return fmt.Errorf("no client in the queue was granted the lock: %w", errNotShown)
	}
	return nil
}

// lateInLine: c of a's process stands in line behind it, and a releases when a
// quarter of its lease is over. b asks until it is granted the lock.
func lateInLine(ctx context.Context, t *mutantRun) error {
	const lease = 6 * time.Second
	a, b := t.two()
	c := t.beside(a, "c")
	if err := a.get(ctx, lease); err != nil {
		return err
	}
	asked := t.behind(func() history.Type { return c.Acquire(ctx, theLock, lease, requestTimeout) })
	if err := a.lined(ctx, 1); err != nil {
		return err
	}
	workload.Pause(ctx, lease/4)
	if err := a.giveBack(ctx); err != nil {
		return err
	}
	got, err := outcome(ctx, asked)
	if err := must(got, err, "c was refused a lock that was free"); err != nil {
		return err
	}
	return b.get(ctx, long)
}

// movedBehindAName: b waits behind a, and the role of the master moves, without a
// word to the clients. a releases on the new master, and c asks.
func movedBehindAName(ctx context.Context, t *mutantRun) error {
	const wait = 3 * time.Second
	a, b, c := t.three()
	if err := a.get(ctx, long); err != nil {
		return err
	}
	asked := t.behind(func() history.Type { return b.Acquire(ctx, theLock, long, wait) })
	for _, server := range t.Deployment().Topology().Of(topologies.Redis) {
		rdb := t.Deployment().Server(server).Observer()
		err := t.await(ctx, "b to wait, as "+server+" knows", func() bool { return rdb.ZCard(ctx, broken.WaitersKey(theLock)).Val() == 1 })
		if err != nil {
			return err
		}
	}
	if err := errors.Join(t.fault(ctx, "planned-failover", "", nil), a.writes(ctx), c.writes(ctx)); err != nil {
		return err
	}
	if err := a.giveBack(ctx); err != nil {
		return err
	}
	c.ask(ctx, long)
	_, err := outcome(ctx, asked)
	return err
}

// errNotShown says that a script did not come to its point.
var errNotShown = errors.New("the script shows nothing")

// lateReplica: the replicas fall behind while a holds. a releases, b is granted the
// lock, and a asks again.
func lateReplica(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := a.get(ctx, long); err != nil {
		return err
	}
	if err := errors.Join(t.arrived(ctx, "", "redis-2", "redis-3"), t.hold(ctx, topologies.Both, toReplicas)); err != nil {
		return err
	}
	if err := errors.Join(a.giveBack(ctx), b.get(ctx, long)); err != nil {
		return err
	}
	a.again(ctx, long)
	return nil
}

// diesAsking: a dies between two steps of its request, and b asks after the lease. The link is cut,
// so that the second step does not arrive. Of a lock that takes one step, a dies after it: no
// request is left that a cut could meet.
func diesAsking(ctx context.Context, t *mutantRun) error {
	const lease = 500 * time.Millisecond
	a, b := t.two()
	oneStep := false
	_, err := a.stopped(ctx, func() history.Type { return a.ask(ctx, lease) }, func(done bool) error {
		if oneStep = done; done {
			return nil
		}
		return t.cut(ctx, toA)
	})
	if err != nil {
		return err
	}
	a.Crash()
	if !oneStep {
		if err := t.Heal(ctx, "cut"); err != nil {
			return err
		}
	}
	b.tryFor(ctx, stuckFor(lease), long)
	a.ask(ctx, long)
	return nil
}

// diesHolding: a dies while it holds, and b asks after the lease.
func diesHolding(ctx context.Context, t *mutantRun) error {
	const lease = 500 * time.Millisecond
	a, b := t.two()
	if err := a.get(ctx, lease); err != nil {
		return err
	}
	a.Crash()
	b.tryFor(ctx, stuckFor(lease), long)
	a.ask(ctx, long)
	return nil
}

// overdue is a lease that is over before the answer to its request comes.
const overdue = 1500 * time.Millisecond

// heldUp has the answer to a's request held up, once it was granted, while something else happens, and returns
// what a was told.
func heldUp(ctx context.Context, t *mutantRun, a *testClient, lease time.Duration, meanwhile func() error) (history.Type, error) {
	if err := errors.Join(a.warm(ctx), t.hold(ctx, topologies.Downstream, toA)); err != nil {
		return "", err
	}
	asked := t.behind(func() history.Type { return a.ask(ctx, lease) })
	if err := t.arrived(ctx, "", "redis-1"); err != nil {
		return "", err
	}
	if err := errors.Join(meanwhile(), t.Heal(ctx, "stall")); err != nil {
		return "", err
	}
	return outcome(ctx, asked)
}

// lateAnswer: a hears of its grant when the lease is over and b holds. If it was
// granted the lock, it goes to work.
func lateAnswer(ctx context.Context, t *mutantRun) error {
	var stock workload.Register
	a, b := t.two()
	got, err := heldUp(ctx, t, a, overdue, func() error { return b.get(ctx, long) })
	if err != nil || got != history.OK {
		return err
	}
	return a.use(ctx, &stock)
}

// lateAnswerByASteppedClock: the same, and a's wall clock is set back by an hour
// in the meantime.
func lateAnswerByASteppedClock(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	_, err := heldUp(ctx, t, a, overdue, func() error {
		t.Disturb(ctx, faults.Step{Fault: clientClock, Target: a.Name}, "its wall clock was set back by 1h",
			func() { a.clock.Step(-time.Hour) }, func() { a.clock.Step(time.Hour) })
		return b.get(ctx, long)
	})
	return err
}

// clientClock is what the history calls a clock of a client that is wrong.
const clientClock = "client-clock"

// slowAnswer: half of a's lease is over when it hears of its grant, and b asks
// until it is granted the lock.
func slowAnswer(ctx context.Context, t *mutantRun) error {
	const lease, delay = 3 * time.Second, 1400 * time.Millisecond
	a, b := t.two()
	got, err := heldUp(ctx, t, a, lease, func() error {
		workload.Pause(ctx, delay)
		return nil
	})
	if err := must(got, err, "a was refused a lock within its lease"); err != nil {
		return err
	}
	return b.get(ctx, long)
}

// slowClock: a's clock loses five minutes an hour, and b asks until it is granted
// the lock.
func slowClock(ctx context.Context, t *mutantRun) error {
	const lease, part = 6 * time.Second, 0.09
	a, b := t.two()
	t.Disturb(ctx, faults.Step{Fault: clientClock, Target: a.Name}, "it loses 9 of 100 seconds", func() { a.clock.Slow(part) }, func() { a.clock.Slow(0) })
	return errors.Join(a.get(ctx, lease), b.get(ctx, long))
}

// lateRenewal: a renewal by a's watchdog arrives when the lease is over and b
// holds.
func lateRenewal(ctx context.Context, t *mutantRun) error {
	return renewLate(ctx, t, func(*testClient) error { return nil })
}

// lateRenewalOfAFreeLock: it arrives when b has held the lock, and has given it
// back.
func lateRenewalOfAFreeLock(ctx context.Context, t *mutantRun) error {
	return renewLate(ctx, t, func(b *testClient) error { return b.giveBack(ctx) })
}

func renewLate(ctx context.Context, t *mutantRun, meanwhile func(b *testClient) error) error {
	a, b := t.two()
	if err := errors.Join(a.get(ctx, 0), t.hold(ctx, topologies.Upstream, toA)); err != nil {
		return err
	}
	if err := b.get(ctx, long); err != nil {
		return err
	}
	answered := a.renewed.Load()
	if err := errors.Join(meanwhile(b), t.Heal(ctx, "stall")); err != nil {
		return err
	}
	return t.await(ctx, "the renewal to be answered", func() bool { return a.renewed.Load() > answered })
}

// lostRelease: a gives back a hold that a watchdog keeps, and the request is lost.
// b asks after the lease.
func lostRelease(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := errors.Join(a.get(ctx, 0), t.cut(ctx, toA)); err != nil {
		return err
	}
	if a.Release(ctx) != history.Info {
		return fmt.Errorf("the release got an answer: %w", errNotShown)
	}
	if err := t.Heal(ctx, "cut"); err != nil {
		return err
	}
	if t.Deployment().Server("redis-1").Observer().Exists(ctx, broken.Key(theLock)).Val() == 0 {
		return fmt.Errorf("the lease ended before the release was lost: %w", errNotShown)
	}
	b.tryFor(ctx, stuckFor(outlived), long)
	a.ask(ctx, long)
	return nil
}

// fewServers: a reaches one server of three, and asks for a while; b reaches all of
// them.
func fewServers(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := errors.Join(a.warm(ctx), t.cut(ctx, "zone-a>redis-2", "zone-a>redis-3")); err != nil {
		return err
	}
	a.tryFor(ctx, time.Second, long)
	if err := b.get(ctx, long); err != nil {
		return err
	}
	a.ask(ctx, long)
	return nil
}

// twoMinorities: a reaches one server of three and b another, and once the network
// is whole c asks.
func twoMinorities(ctx context.Context, t *mutantRun) error {
	a, b, c := t.three()
	if err := t.cut(ctx, "zone-a>redis-2", "zone-a>redis-3", "zone-b>redis-1", "zone-b>redis-3"); err != nil {
		return err
	}
	a.ask(ctx, long)
	b.ask(ctx, long)
	if err := t.HealAll(ctx); err != nil {
		return err
	}
	c.tryFor(ctx, stuckFor(0), long)
	b.ask(ctx, long)
	return nil
}

// lostVotes: two of three servers grant a the lock, and their answers are lost. Once
// the network is whole a takes its request back, and b asks.
func lostVotes(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := errors.Join(a.warm(ctx), t.hold(ctx, topologies.Downstream, "zone-a>redis-1", "zone-a>redis-2")); err != nil {
		return err
	}
	_, err := a.stopped(ctx, func() history.Type { return a.ask(ctx, long) }, func(bool) error {
		return errors.Join(t.arrived(ctx, "", "redis-1", "redis-2"), t.HealAll(ctx))
	})
	if err != nil {
		return err
	}
	b.tryFor(ctx, stuckFor(0), long)
	a.ask(ctx, long)
	return nil
}

// silentReplicas: the replicas are connected, and get nothing. a asks, the master
// dies, and b asks the next one.
func silentReplicas(ctx context.Context, t *mutantRun) error {
	return dies(ctx, t, func() error { return t.hold(ctx, topologies.Both, toReplicas) })
}

// lostReplicas: the same, and the replicas are cut off.
func lostReplicas(ctx context.Context, t *mutantRun) error {
	return dies(ctx, t, func() error { return t.cut(ctx, toReplicas) })
}

func dies(ctx context.Context, t *mutantRun, before func() error) error {
	a, b := t.two()
	if err := errors.Join(a.warm(ctx), before()); err != nil {
		return err
	}
	a.ask(ctx, long)
	if err := errors.Join(t.fault(ctx, "crash-failover", "", nil), b.get(ctx, long)); err != nil {
		return err
	}
	a.ask(ctx, long)
	return nil
}

// replicasComeBack: a asks while the replicas are cut off, and b once they are
// back.
func replicasComeBack(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := t.cut(ctx, toReplicas); err != nil {
		return err
	}
	if got := a.ask(ctx, long); got != history.Fail {
		return fmt.Errorf("a was not refused: %w", errNotShown)
	}
	if err := errors.Join(t.Heal(ctx, "cut"), t.Deployment().AwaitReady(ctx)); err != nil {
		return err
	}
	b.tryFor(ctx, stuckFor(0), long)
	a.ask(ctx, long)
	return nil
}

// lostCount: the replicas are cut off as soon as they have a's second grant. a
// gives it back, the master dies, and b is granted the lock by the next one.
func lostCount(ctx context.Context, t *mutantRun) error {
	const lease = 2 * time.Second
	a, b := t.two()
	if err := errors.Join(a.warm(ctx), t.arrived(ctx, "1", "redis-2", "redis-3")); err != nil {
		return err
	}
	got, err := a.stopped(ctx, func() history.Type { return a.ask(ctx, lease) }, func(bool) error {
		return errors.Join(t.arrived(ctx, "", "redis-2", "redis-3"), t.cut(ctx, toReplicas))
	})
	if err := must(got, err, "a was refused what replicas had"); err != nil {
		return err
	}
	a.Release(ctx)
	if err := errors.Join(t.fault(ctx, "crash-failover", "", nil), b.get(ctx, long)); err != nil {
		return err
	}
	a.ask(ctx, long)
	return nil
}

// fastClock: a's wall clock is an hour ahead. It holds the lock, and then b does.
func fastClock(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	t.Disturb(ctx, faults.Step{Fault: clientClock, Target: a.Name}, "its wall clock was set forward by 1h",
		func() { a.clock.Step(time.Hour) }, func() { a.clock.Step(-time.Hour) })
	if err := errors.Join(a.warm(ctx), b.get(ctx, long)); err != nil {
		return err
	}
	a.ask(ctx, long)
	return nil
}

// lostReentry: a, which replicas know to hold the lock, is granted it again when
// they are cut off. The master dies, a gives the inner grant back, and b asks.
func lostReentry(ctx context.Context, t *mutantRun) error {
	a, b := t.two()
	if err := errors.Join(a.get(ctx, long), t.arrived(ctx, "", "redis-2", "redis-3"), t.cut(ctx, toReplicas)); err != nil {
		return err
	}
	inner := a.again(ctx, long)
	if err := errors.Join(t.fault(ctx, "crash-failover", "", nil), a.follows(ctx)); err != nil {
		return err
	}
	if inner == history.OK && a.Release(ctx) == history.Info {
		return fmt.Errorf("the release got no answer: %w", errNotShown)
	}
	b.tryFor(ctx, mutantBound, long)
	return nil
}
