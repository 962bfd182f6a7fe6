package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// slowest is the share of a lease that an answer may take: several are awaited within one.
const slowest = 3

// grantsFree also finds a driver that is too slow for what the others look at.
func grantsFree(p *play) {
	quickest := limit
	for range 3 {
		sent := time.Now()
		h := p.grant("a.1", p.name, long)
		p.must(p.answered(p.a, h.Release))
		quickest = min(quickest, time.Since(sent)/2)
	}
	if quickest > p.lease/slowest {
		p.fail("each answer took %v or longer, on servers without faults: the leases of the checks are of %v", quickest.Round(time.Millisecond), p.lease)
	}
}

// asksServers has a client of the same process ask for a lock that is held, and again after its release.
func asksServers(p *play) {
	h := p.grant("a.1", p.name, long)
	p.refused("a.2", p.name, long, "another client of the process")
	p.release(h)
	before, counted := harness.Requests(p.d)
	p.grant("a.2", p.name, long)
	if after, _ := harness.Requests(p.d); counted && maps.Equal(before, after) {
		p.fail("no request reached the servers over the links: %s answers from memory, or reaches the servers past the proxies. "+
			"If the library hands a lock over within its process, %s", p.who(), p.word(`promise "hands_over"`, "set HandsOver"))
	}
}

// needsMajority has a majority of the servers be out of reach, and then a minority.
func needsMajority(p *play) {
	p.warm()
	if p.d.Topology().Name != topologies.Independent {
		return // one of them has the lock
	}
	servers := p.d.Topology().Of(topologies.Redis)
	minority := (len(servers) - 1) / 2
	mend := p.cut(servers[minority:]...)
	_, err := p.ask(p.ctx, "a.1", p.name, long)
	mend()
	if err == nil {
		p.fail("the lock was granted with %d of %d servers", minority, len(servers))
	}
	p.cut(servers[len(servers)-minority:]...)
	p.recovers(fmt.Sprintf("the lock is not granted with %d of %d servers", len(servers)-minority, len(servers)))
}

func countsReentry(p *play) {
	first, second := p.grant("a.1", p.name, long), p.grant("a.1", p.name, long)
	p.release(second)
	p.refused("b.1", p.name, long, otherProcess)
	p.release(first)
	p.grant("b.1", p.name, long)
}

func refusesOther(p *play) {
	h := p.grant("a.1", p.name, long)
	p.refused("b.1", p.name, long, otherProcess)
	p.refused("b.1", p.name, p.lease, otherProcess) // a lease that ends before that of the holder is no better
	p.pause(p.lease + p.lease/10)
	p.refused("b.1", p.name, p.lease, otherProcess) // nor one that is shorter than the holder has held it
	p.release(h)
	p.grant("b.1", p.name, long)
}

// manyClients ask at once in the check that one of them is granted the lock.
const manyClients = 16

// grantsOne has fewer ask at once where none was granted the lock: their votes may be split, and some
// locks refuse all that meet each other.
func grantsOne(p *play) {
	begin := time.Now()
	for n := manyClients; ; n = max(n/2, 1) {
		granted, open := p.race(p.name, n, func(int) driver.Way { return driver.Way{} })
		winners := granted[driver.Way{}]
		if winners > 1 {
			open = errors.Join(fmt.Errorf("%d of %d clients were granted the lock", winners, n), open)
		}
		if p.must(open); winners == 1 {
			return
		}
		if time.Since(begin) > limit {
			p.fail("none of %d clients was granted the lock, nor one that asked alone, in %v: give back what a request left that was refused, such as votes", manyClients, limit)
		}
		p.pause(p.lease / 100)
	}
}

// race has n clients of both processes ask for a lock at once, counts for each way how many were granted it, and joins the
// answers that are no refusal.
func (p *play) race(name string, n int, way func(i int) driver.Way) (granted map[driver.Way]int, open error) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	answers := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, answers[i] = p.askIn(ctx, fmt.Sprintf("%c.%d", "ab"[i%2], i), name, way(i), long) })
	}
	all.Wait()
	granted = map[driver.Way]int{}
	for i, err := range answers {
		switch {
		case err == nil:
			granted[way(i)]++
		case !errors.Is(err, lock.ErrNotAcquired):
			open = errors.Join(open, err)
		}
	}
	return granted, open
}

// endsWithLease asks a lock in Go for less than a second, of which one that cuts leases to whole seconds has nothing
// left. A driver may be too slow for that. That a key lives until the next whole second is no defect, and noted.
func endsWithLease(p *play) {
	patience, before := p.patience(), p.keys()
	if !p.isDriver() {
		p.lease = p.lease * 2 / 5
	}
	sent := time.Now()
	p.grant("a.1", p.name, p.lease)
	if end := p.end(time.Now(), before); end > p.lease*5/4 {
		fmt.Fprintf(p.log, "a key of a lock that was asked for %v lives for %v: if its holder crashes, others wait that long\n", p.lease, end.Round(time.Millisecond))
	}
	if _, err := p.nextWithin(patience, "b.1", p.name); errors.Is(err, ErrNotFree) {
		p.hopeless("%w, %v after a grant for %v that was not given back: give the key its lease, in milliseconds, in the step that sets it (SET NX PX)", ErrNotFree, patience, p.lease)
	} else {
		p.must(err)
	}
	if took := time.Since(sent); took < p.lease {
		p.fail("the lock was free %v after a request for a lease of %v", took.Round(time.Millisecond), p.lease)
	}
}

// validForLease finds a time in another unit, or one that is counted from elsewhere.
func validForLease(p *play) {
	before := time.Now()
	expires := p.grant("a.1", p.name, long).Lease().Expires
	if expires.Before(before.Add(long/2)) || expires.After(time.Now().Add(long+time.Second)) { // some round to seconds
		p.fail("a grant with a lease of %v may be believed for %v: give \"valid_ms\" in milliseconds from the request", long, expires.Sub(before).Round(time.Millisecond))
	}
}

// believed fails where the next client is granted a lock before the end of a grant.
func (p *play) believed(h *lock.Hold, name, which string) {
	p.next("b.1", name)
	if left := time.Until(h.Lease().Expires); left > 0 {
		p.fail("a client of another process was granted the lock %v before the end of the grant%s: count the lease from before the first request", left.Round(time.Millisecond), which)
	}
}

// slowGrant finds a lease that is counted from the reply, or whose end does not heed how
// long it took to ask all servers.
func slowGrant(p *play) {
	p.warm()
	for try := range 3 { // the next client may ask too late to see what a grant of a short lease was wrong by
		for i, part := range []time.Duration{10, 30, 90} { // some wait for a server only for a small part of the lease
			name := fmt.Sprintf("%s-%d-%d", p.name, try+1, i+1)
			mend := p.slow(topologies.Downstream, p.lease/part)
			h, err := p.ask(p.ctx, "a.1", name, p.lease)
			mend()
			if err == nil { // what is not granted is not believed
				p.believed(h, name, "")
				break
			}
		}
	}
	p.must(p.ctx.Err())
}

// retriedGrant closes the connections while the reply to a grant is under way. A driver that
// asks again finds its own key, whose lease began with the first request.
func retriedGrant(p *play) {
	p.warm()
	mend := p.hold()
	var h *lock.Hold
	var err error
	wait := p.begin(func() { h, err = p.ask(p.ctx, "a.1", p.name, p.lease) })
	p.pause(p.lease / 3) // so that the server has granted it, a while ago
	p.reset()
	mend()
	wait()
	if err == nil { // else it does not ask again, or does not know: see lostReply
		p.believed(h, p.name, ", which had been asked for twice since the first reply was lost")
	}
}

// halfGrant has the first request of a grant reach its server, and cuts the links before
// a second one does. Whatever the first left there must end with the lease.
func halfGrant(p *play) {
	p.warm()
	before := p.keys()
	p.slow(topologies.Upstream, p.lease*3/5)
	p.begin(func() { _, _ = p.ask(p.ctx, "a.1", p.name, p.lease) }) // its outcome is open
	limited, cancel := context.WithTimeout(p.ctx, 2*p.lease)        // some begin with what leaves no key
	defer cancel()
	_ = await.Until(limited, func() error {
		now := p.keys()
		maps.DeleteFunc(now, func(key string, _ time.Duration) bool { _, old := before[key]; return old })
		if len(now) == 0 {
			return errors.New("there is no new key")
		}
		return nil
	})
	for _, l := range p.links() {
		p.atEnd(p.d.Proxy(l.Name()).Cut())
	}
	if _, err := p.nextWithin(4*p.lease, "b.1", p.name); err != nil && p.ctx.Err() == nil {
		p.doubt("the client of the other process was refused for %v, for a lease of %v: "+
			"acquire the lock and set its lease in one step on the server", 4*p.lease, p.lease)
	}
	p.must(p.ctx.Err())
}

// fairWaiters is how many clients wait in the check of their order.
const fairWaiters = 4

// servesInOrder has clients of both processes wait, one after the other, and releases the lock.
func servesInOrder(p *play) {
	hello := p.a.Hello()
	if !hello.Promises.Wait {
		p.fail(`it promises "fair" without "wait": a request that does not wait has no place in an order`)
	}
	parallel := max(hello.Parallel, 1)
	hold := p.grant("a.1", p.name, long)
	var mu sync.Mutex
	var order []int
	var wrong []error
	var waits []func()
	for i := range min(fairWaiters, parallel) {
		s, client := p.b, fmt.Sprintf("zone-b.%d#1", i+2)
		if i%2 == 1 && parallel > fairWaiters { // the holder needs room for its release
			s, client = p.a, fmt.Sprintf("zone-a.%d#1", i+2)
		}
		waits = append(waits, p.begin(func() {
			h, err := s.Ask(p.ctx, p.name, driver.Way{}, lock.Options{Owner: client, Lease: long, Wait: limit})
			mu.Lock()
			if err == nil {
				order = append(order, i+1)
			}
			mu.Unlock()
			if err == nil {
				err = h.Release(p.ctx)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, fmt.Errorf("waiter %d: %w", i+1, err))
			}
		}))
		p.pause(p.lease / 3) // so that it is in the queue
	}
	err := hold.Release(p.ctx)
	for _, wait := range waits {
		wait()
	}
	p.must(errors.Join(append(wrong, err)...))
	if !slices.IsSorted(order) {
		p.doubt("waiters that asked %v apart were granted the lock in the order %v", (p.lease / 3).Round(time.Millisecond), order)
	}
}

// tokensGrow has clients of both processes ask by turns: one that counts by itself is found.
func tokensGrow(p *play) {
	before := int64(0)
	for _, client := range []string{"a.1", "b.1", "a.1", "b.1"} {
		h := p.grant(client, p.name, long)
		token := h.Lease().Token
		if token <= before {
			p.fail("the token %d follows %d", token, before)
		}
		before = token
		p.release(h)
	}
}

// keepsWatched has a hold last that has no lease, for longer than its keys would last
// without a watchdog.
func keepsWatched(p *play) {
	before := p.keys()
	h := p.grant("a.1", p.name, 0)
	wait := p.lease
	for key, left := range p.keys() {
		if _, old := before[key]; !old {
			wait = max(wait, min(left+time.Second, checkLimit-5*time.Second))
		}
	}
	p.pause(wait)
	_, err := p.ask(p.ctx, "b.1", p.name, long)
	p.must(errors.Join(notRefused(err, otherProcess), h.Release(p.ctx)))
}

// surviveForgetting finds a connection that is not the same when it is opened again, and a script
// that the server does not know any more and whose failure is taken for success. A restart of
// the server does both.
func surviveForgetting(p *play) {
	for range 2 { // the second time after a release, which has its script loaded as well
		h := p.grant("a.1", p.name, long)
		for _, server := range p.d.Topology().Of(topologies.Redis) {
			rdb := p.d.Server(server).Observer()
			p.must(cmp.Or(rdb.ScriptFlush(p.ctx).Err(), rdb.ClientKillByFilter(p.ctx, "TYPE", "normal", "SKIPME", "yes").Err()))
		}
		second, err := p.answer("a.2")
		if err == nil {
			_ = second.Release(p.ctx)
			p.fail("another client was granted the lock after the connections had been closed: set up each connection as the first one was (database, user)")
		}
		p.recovered(err)
		if lost(h) {
			return // it gave the hold up: what comes now is no release of it
		}
		// The first release may meet a connection that is closed, and its outcome is then open.
		released := h.Release(p.ctx)
		if errors.Is(released, lock.ErrNotHeld) {
			p.fail("the release was answered with fail, although the lock was held")
		}
		next, err := p.answer("a.2")
		if errors.Is(err, lock.ErrNotAcquired) && released == nil {
			p.fail("the release was answered with ok, and the lock was still held: when the server answers NOSCRIPT, nothing was done; send it the script")
		}
		if p.recovered(err); err != nil || next.Release(p.ctx) != nil {
			return // a release may meet another connection that was closed: its outcome is open
		}
	}
}

// recovered fails where the answer after the connections had been closed is not certain.
func (p *play) recovered(err error) {
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) { // not wrapped: ErrUnknown would have the check made again, and again be told
		p.fail("%s gave no certain answer for %v after the servers had closed its connections and forgotten its scripts: "+
			"open a new connection, and send the script again when the server answers NOSCRIPT: %v", p.who(), p.patience(), err)
	}
}
