package conformance

import (
	"fmt"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/undertest"
	"github.com/lockchaos/lockchaos/promises"
)

// The ways of a mutex and of a read-write lock.
var (
	mutex = driver.Way{}              //nolint:gochecknoglobals // a constant
	read  = driver.Way{Mode: "read"}  //nolint:gochecknoglobals // a constant
	write = driver.Way{Mode: "write"} //nolint:gochecknoglobals // a constant
)

// permitsThere is how many permits the semaphores of the checks have.
const permitsThere = 3

func permits(n int) driver.Way { return driver.Way{Permits: n, Capacity: permitsThere} }

// kinds are the checks of locks that are no mutex.
func kinds() []Check {
	readWrite := func(p promises.Promises) bool { return p.Kind == history.KindRW }
	permitted := func(p promises.Promises) bool { return p.Kind == history.KindSemaphore }
	const several = "as many permits are free"
	return []Check{
		{"readers hold the lock together, and exclude writers", readWrite, 0, "grant a reader where no other client writes, and a writer where none reads or writes, in one step on the server", func(p *play) {
			first := p.grant("a.1", p.name, read, long, free)
			second := p.grant("b.1", p.name, read, long, "the only other client reads")
			p.refused("b.2", p.name, write, long, "two clients read")
			p.release(first)
			p.refused("a.2", p.name, write, long, "a client of another process reads")
			p.release(second)
			writes := p.grant("a.3", p.name, write, long, free)
			p.refused("b.3", p.name, read, long, "a client of another process writes")
			p.refused("a.4", p.name, read, long, "another client of the process writes")
			p.release(writes)
			p.release(p.grant("b.4", p.name, read, long, free))
			p.races(func(i int) driver.Way { return [...]driver.Way{read, write}[i/2%2] }, func(granted map[driver.Way]int) {
				if granted[write] > 1 || granted[write] == 1 && granted[read] > 0 {
					p.fail("of %d clients that asked at once, %d were granted the lock to write, and %d to read", manyClients, granted[write], granted[read])
				}
			})
		}},
		// One reads with a lease that ends before that of another one, and comes late, when the next client writes.
		{"a reader's lease ends its own hold alone", readWrite, 0, "keep an end for each reader, such as a member of a sorted set, and look at it in each step", func(p *play) {
			stays := p.grant("a.1", p.name, read, long, free)
			late := p.grant("b.1", p.name, read, p.lease, "the only other client reads")
			p.pause(p.lease)
			p.refused("b.2", p.name, write, long, "a client reads whose lease is not over: that of another one is, who read as well")
			p.release(stays)
			writes := p.next("a.2", p.name, write)
			if p.b.hello.Promises.Extend && late.Extend(p.ctx, long) == nil {
				p.fail("the late extension of a reader was answered with ok, while another client wrote")
			}
			_ = late.Release(p.ctx) // its answer is for other checks
			p.refused("b.3", p.name, read, long, "a client writes, and a reader extended and released late")
			p.release(writes)
		}},
		{"a writer goes on as a reader, and readers join it", func(p promises.Promises) bool { return readWrite(p) && p.Downgrades }, 0, "grant an owner that writes to read as well, and give back each by its own release; or do not promise downgrades", func(p *play) {
			writes := p.grant("a.1", p.name, write, long, free)
			reads := p.grant("a.1", p.name, read, long, "it writes itself")
			p.release(writes)
			p.release(p.grant("b.1", p.name, read, long, "the client that wrote before reads"))
			p.refused("b.2", p.name, write, long, "the client that wrote before reads")
			p.release(reads)
			p.release(p.grant("b.3", p.name, write, long, free))
		}},
		{"as many permits are granted as there are", permitted, 0, "count the permits that are held and grant one in one step on the server; a permit that is given back is one that is held", func(p *play) {
			held := func(n int) string { return fmt.Sprintf("%d of %d permits are held", n, permitsThere) }
			var holds []*undertest.Hold
			for i := range permitsThere {
				holds = append(holds, p.grant(fmt.Sprintf("%c.%d", "ab"[i%2], i), p.name, permits(1), long, held(i)))
			}
			p.refused("b.8", p.name, permits(1), long, held(permitsThere))
			p.release(holds[0])
			holds[0] = p.grant("b.8", p.name, permits(1), long, "one permit was given back")
			p.refused("a.9", p.name, permits(1), long, held(permitsThere))
			for _, h := range holds {
				p.release(h)
			}
			p.races(func(int) driver.Way { return permits(1) }, func(granted map[driver.Way]int) {
				if n := granted[permits(1)]; n > permitsThere {
					p.fail("of %d clients that asked at once, %d were granted one of %d permits", manyClients, n, permitsThere)
				}
			})
		}},
		{"an owner is granted several permits", func(p promises.Promises) bool { return permitted(p) && p.Several }, 0, "grant all permits of a request or none, in one step on the server; or do not promise several", func(p *play) {
			most := p.grant("a.1", p.name, permits(permitsThere-1), long, several)
			p.refused("b.1", p.name, permits(permitsThere-1), long, "a single permit is left")
			last := p.grant("a.1", p.name, permits(1), long, several)
			p.refused("b.1", p.name, permits(1), long, "no permit is left")
			p.release(most)
			p.release(p.grant("b.1", p.name, permits(permitsThere-1), long, several))
			p.release(last)
			p.release(p.grant("b.2", p.name, permits(permitsThere), long, several))
		}},
	}
}

// races has many clients ask at once, several times. An answer that is open tells nothing where another client was granted the lock.
func (p *play) races(way func(i int) driver.Way, judge func(granted map[driver.Way]int)) {
	for i := range 3 {
		granted, open := p.race(fmt.Sprintf("%s-%d", p.name, i+1), manyClients, way)
		if len(granted) == 0 {
			p.must(open)
		}
		judge(granted)
	}
}
