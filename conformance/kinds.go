package conformance

import (
	"errors"
	"fmt"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/lock"
)

// askIn has a client ask for a lock in a way.
func (p *play) askIn(client, name string, w driver.Way) (*lock.Hold, error) {
	return p.of(client).Ask(p.ctx, name, w, lock.Options{Owner: "zone-" + client + "#1", Lease: long})
}

// grantIn has a client be granted a lock in a way.
func (p *play) grantIn(client, name string, w driver.Way) *lock.Hold {
	h, err := p.askIn(client, name, w)
	p.must(err)
	return h
}

// refusedIn has a client be refused a lock in a way, since something is in its way.
func (p *play) refusedIn(client, name string, w driver.Way, who, because string) {
	_, err := p.askIn(client, name, w)
	switch {
	case err == nil:
		p.fail("%s was granted the lock, although %s", who, because)
	case !errors.Is(err, lock.ErrNotAcquired):
		p.fail("the answer to %s must be fail, and is: %w", who, err)
	}
}

// sharesReads has clients of both processes read, and others ask to write.
func sharesReads(p *play) {
	read, write := driver.Way{Mode: "read"}, driver.Way{Mode: "write"}
	first, second := p.grantIn("a.1", p.name, read), p.grantIn("b.1", p.name, read)
	p.refusedIn("b.2", p.name, write, "a writer", "two clients read")
	p.release(first)
	p.refusedIn("a.2", p.name, write, "a writer", "a client of another process reads")
	p.release(second)
	writer := p.grantIn("a.3", p.name, write)
	p.refusedIn("b.3", p.name, read, "a reader", "a client of another process writes")
	p.refusedIn("a.4", p.name, read, "a reader", "another client of the process writes")
	p.release(writer)
	p.release(p.grantIn("b.4", p.name, read))
}

// goesOnReading has a writer go on as a reader.
func goesOnReading(p *play) {
	read, write := driver.Way{Mode: "read"}, driver.Way{Mode: "write"}
	writes := p.grantIn("a.1", p.name, write)
	reads := p.grantIn("a.1", p.name, read)
	p.release(writes)
	p.release(p.grantIn("b.1", p.name, read))
	p.refusedIn("b.2", p.name, write, "a writer", "the client that wrote before reads")
	p.release(reads)
	p.release(p.grantIn("b.3", p.name, write))
}

// permitsThere is how many permits the semaphores of the checks have.
const permitsThere = 3

// grantsPermits has clients of both processes ask for permits, one each.
func grantsPermits(p *play) {
	one, full := driver.Way{Permits: 1, Capacity: permitsThere}, fmt.Sprintf("%d of %d permits are held", permitsThere, permitsThere)
	var holds []*lock.Hold
	for i := range permitsThere {
		holds = append(holds, p.grantIn(fmt.Sprintf("%c.%d", "ab"[i%2], i), p.name, one))
	}
	p.refusedIn("b.8", p.name, one, "a client", full)
	p.release(holds[0])
	holds[0] = p.grantIn("b.8", p.name, one)
	p.refusedIn("a.9", p.name, one, "a client", full)
	for _, h := range holds {
		p.release(h)
	}
}

// grantsSeveral has a client ask for several permits, and for one more.
func grantsSeveral(p *play) {
	of := func(n int) driver.Way { return driver.Way{Permits: n, Capacity: permitsThere} }
	two := p.grantIn("a.1", p.name, of(permitsThere-1))
	p.refusedIn("b.1", p.name, of(permitsThere-1), "a client", "a single permit is left")
	last := p.grantIn("a.1", p.name, of(1))
	p.refusedIn("b.1", p.name, of(1), "a client", "no permit is left")
	p.release(two)
	p.release(p.grantIn("b.1", p.name, of(permitsThere-1)))
	p.release(last)
	p.release(p.grantIn("b.2", p.name, of(permitsThere)))
}
