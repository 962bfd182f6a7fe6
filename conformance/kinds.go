package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
)

// grantIn has a client be granted a lock in a way, since nothing is in its way.
func (p *play) grantIn(client, name string, w driver.Way, who, because string) *lock.Hold {
	h, err := p.askInHere(client, name, w, long)
	if errors.Is(err, lock.ErrNotAcquired) {
		p.fail("%s was refused the lock, although %s: %w", who, because, err)
	}
	p.must(err)
	return h
}

// refusedIn has a client be refused a lock in a way, since something is in its way.
func (p *play) refusedIn(client, name string, w driver.Way, who, because string) {
	_, err := p.askInHere(client, name, w, long)
	if err == nil {
		p.fail("%s was granted the lock, although %s", who, because)
	}
	p.must(notRefused(err, who))
}

// raceIn is a race of many clients in which an answer that is open tells nothing where another client was granted the lock.
func (p *play) raceIn(name string, way func(i int) driver.Way) map[driver.Way]int {
	granted, open := p.race(name, manyClients, way)
	if len(granted) == 0 {
		p.must(open)
	}
	return granted
}

// The ways of a read-write lock.
var (
	read  = driver.Way{Mode: "read"}  //nolint:gochecknoglobals // a constant
	write = driver.Way{Mode: "write"} //nolint:gochecknoglobals // a constant
)

// races is how many times clients ask at once in the checks of locks that are no mutex.
const races = 3

// sharesReads has clients of both processes read, and others ask to write, one after the other and at once.
func sharesReads(p *play) {
	const reader, writer = "a reader", "a writer"
	first := p.grantIn("a.1", p.name, read, reader, "the lock is free")
	second := p.grantIn("b.1", p.name, read, reader, "the only other client reads")
	p.refusedIn("b.2", p.name, write, writer, "two clients read")
	p.release(first)
	p.refusedIn("a.2", p.name, write, writer, "a client of another process reads")
	p.release(second)
	writes := p.grantIn("a.3", p.name, write, writer, "the lock is free")
	p.refusedIn("b.3", p.name, read, reader, "a client of another process writes")
	p.refusedIn("a.4", p.name, read, reader, "another client of the process writes")
	p.release(writes)
	p.release(p.grantIn("b.4", p.name, read, reader, "the lock is free"))
	for i := range races {
		granted := p.raceIn(fmt.Sprintf("%s-%d", p.name, i+1), func(i int) driver.Way { return [...]driver.Way{read, write}[i/2%2] })
		if granted[write] > 1 || granted[write] == 1 && granted[read] > 0 {
			p.fail("of %d clients that asked at once, %d were granted the lock to write, and %d to read", manyClients, granted[write], granted[read])
		}
	}
}

// endsOneReader has a client read with a lease that ends before that of another one, and come late, when the next client writes.
func endsOneReader(p *play) {
	const reader, writer = "a reader", "a writer"
	stays := p.grantIn("a.1", p.name, read, reader, "the lock is free")
	late, err := p.askInHere("b.1", p.name, read, p.lease)
	p.must(err)
	p.pause(p.lease)
	p.refusedIn("b.2", p.name, write, writer, "a client reads whose lease is not over: that of another one is, who read as well")
	p.release(stays)
	var writes *lock.Hold
	ctx, cancel := context.WithTimeoutCause(p.ctx, p.patience(), ErrNotFree)
	defer cancel()
	p.must(await.Until(ctx, func() error { writes, err = p.askIn(ctx, "a.2", p.name, write, long); return err }))
	if p.b.Hello().Promises.Extend && late.Extend(p.ctx, long) == nil {
		p.fail("the late extension of a reader was answered with ok, while another client wrote")
	}
	_ = p.b.ReleaseAgain(p.ctx, late) // its answer is for other checks
	p.refusedIn("b.3", p.name, read, reader, "a client writes, and a reader extended and released late")
	if err := writes.Release(p.ctx); err != nil {
		p.fail("after a late extension and a late release of a reader, the release of a client that wrote failed: %w", err)
	}
}

// goesOnReading has a writer go on as a reader.
func goesOnReading(p *play) {
	writes := p.grantIn("a.1", p.name, write, "a writer", "the lock is free")
	reads := p.grantIn("a.1", p.name, read, "a client", "it writes itself")
	p.release(writes)
	p.release(p.grantIn("b.1", p.name, read, "a reader", "the client that wrote before reads"))
	p.refusedIn("b.2", p.name, write, "a writer", "the client that wrote before reads")
	p.release(reads)
	p.release(p.grantIn("b.3", p.name, write, "a writer", "the lock is free"))
}

// permitsThere is how many permits the semaphores of the checks have.
const permitsThere = 3

// grantsPermits has clients of both processes ask for permits, one each, one after the other and at once.
func grantsPermits(p *play) {
	one, full := driver.Way{Permits: 1, Capacity: permitsThere}, fmt.Sprintf("%d of %d permits are held", permitsThere, permitsThere)
	var holds []*lock.Hold
	for i := range permitsThere {
		holds = append(holds, p.grantIn(fmt.Sprintf("%c.%d", "ab"[i%2], i), p.name, one, "a client", fmt.Sprintf("%d of %d permits are held", i, permitsThere)))
	}
	p.refusedIn("b.8", p.name, one, "a client", full)
	p.release(holds[0])
	holds[0] = p.grantIn("b.8", p.name, one, "a client", "one permit was given back")
	p.refusedIn("a.9", p.name, one, "a client", full)
	for _, h := range holds {
		p.release(h)
	}
	for i := range races {
		if granted := p.raceIn(fmt.Sprintf("%s-%d", p.name, i+1), func(int) driver.Way { return one })[one]; granted > permitsThere {
			p.fail("of %d clients that asked at once, %d were granted one of %d permits", manyClients, granted, permitsThere)
		}
	}
}

// grantsSeveral has a client ask for several permits, and for one more.
func grantsSeveral(p *play) {
	of := func(n int) driver.Way { return driver.Way{Permits: n, Capacity: permitsThere} }
	const free = "as many permits are free"
	two := p.grantIn("a.1", p.name, of(permitsThere-1), "a client", free)
	p.refusedIn("b.1", p.name, of(permitsThere-1), "a client", "a single permit is left")
	last := p.grantIn("a.1", p.name, of(1), "a client that has others", free)
	p.refusedIn("b.1", p.name, of(1), "a client", "no permit is left")
	p.release(two)
	p.release(p.grantIn("b.1", p.name, of(permitsThere-1), "a client", free))
	p.release(last)
	p.release(p.grantIn("b.2", p.name, of(permitsThere), "a client", free))
}
