package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/undertest"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// holds are the checks of extensions and releases, and of the order of waiters and tokens.
func holds() []Check {
	const ownerInOneStep = "compare the owner and delete in one step on the server, with a token that each grant has for itself"
	extend := func(p promises.Promises) bool { return p.Extend }
	return []Check{
		{"an extended hold outlives its first lease", extend, 0, "prolong the key on the server by the lease of the extension; or do not promise extend", func(p *play) {
			h := p.grant("a.1", p.name, mutex, p.lease, free)
			first := time.Now().Add(p.lease)
			p.pause(p.lease / 2) // some extend by the first lease, and say so
			p.inTime(h, h.Extend(p.ctx, long))
			p.pause(time.Until(first))
			p.refused("b.1", p.name, mutex, long, otherProcess)
			if spent(h) || lost(h) {
				p.doubt("%s said that a hold is lost that was extended for %v: an extension sets the end of the hold anew", p.who(), long)
			}
		}},
		// An extension that the server was told in another unit is found. Some extend from the end of the lease before.
		{"an extended hold ends with the lease of its extension", extend, overLinks, "", func(p *play) {
			h := p.grant("a.1", p.name, mutex, p.lease, free)
			asked := time.Now()
			p.inTime(h, h.Extend(p.ctx, p.lease))
			p.soonFree("after an extension for", "give the server the lease in its own unit (PEXPIRE: milliseconds, EXPIRE: seconds)")
			if took := time.Since(asked); took < p.lease && !spent(h) {
				p.fail("the lock was free %v after a request for an extension for %v", took.Round(time.Millisecond), p.lease)
			}
		}},
		// What goes on after a release is found, such as a watchdog that nothing stops.
		{"a lock that was released is left alone", nil, overLinks, "", func(p *play) {
			h := p.grant("a.1", p.name, mutex, p.lease, free)
			p.inTime(h, h.Release(p.ctx))
			next := p.grant("b.1", p.name, mutex, long, free)
			before := p.keys()
			p.pause(p.lease) // a watchdog acts several times in a lease
			after := p.keys()
			for key, left := range before {
				if now := after[key]; left > long/2 && now > 0 && now < long/2 {
					p.fail("the key %s of the next holder had %v left, and %v after a pause of %v: something goes on after the release; end the watchdog before the key is deleted", key, left, now, p.lease)
				}
			}
			p.refused("a.2", p.name, mutex, long, otherProcess)
			if err := next.Release(p.ctx); err != nil {
				p.fail("the release of the next holder, whose lease was %v, failed after a pause of %v: something goes on after the first release; end the watchdog before the key is deleted: %w", long, p.lease, err)
			}
		}},
		{"a second release leaves the next holder alone", nil, 0, ownerInOneStep, func(p *play) {
			h := p.grant("a.1", p.name, mutex, long, free)
			p.release(h)
			next := p.grant("b.1", p.name, mutex, long, free)
			p.releaseAgain(h, "b.2", p.name, "second", "a client of another process")
			p.release(next)
		}},
		{"a late release leaves the next holder alone", nil, 0, ownerInOneStep, func(p *play) {
			p.outlived(func(late, _ *undertest.Hold, name, next string) {
				p.releaseAgain(late, "a.3", name, "late", next) // also after it was told that the hold is lost
			})
		}},
		// Each request of a release takes so much of the lease, or of the life of the keys, that the second one comes after its
		// end, or the third one. Of a release that looks at the owner first and deletes then, the second request deletes another
		// client's lock; one that does not look at what came of its transaction is confirmed although it freed nothing.
		{"a release whose requests are slow leaves the next holder alone", nil, overLinks | onRedis, "", func(p *play) {
			p.warm()
			p.inFifths(func(p *play, held slowHold) {
				wait := p.begin(func() error { return held.Release(p.ctx) })
				p.next("b.1", p.name, mutex)
				freed := time.Since(held.sent)
				released := wait()
				p.refused("b.2", p.name, mutex, long, "a client of another process held it by then, and the release freed it: compare the owner and delete in one step on the server")
				if freed < held.end {
					return
				}
				held.inTime()
				if released == nil && p.promises().ReleaseTells && !p.promises().Quorum {
					p.doubt("the release was answered with ok, although the lock was not free before the end of its lease, %v after the request for it: "+
						"look at what came of the transaction, or compare the owner and delete in one step on the server", freed.Round(time.Millisecond))
				}
			})
		}},
		// The first request of a grant reaches its server, and the links are cut before a second one does. Whatever the first
		// left there must end with the lease.
		{"a grant that is cut off half way is over with its lease", nil, overLinks | onRedis, "", func(p *play) {
			p.warm()
			before := p.keys()
			p.slow(topologies.Upstream, p.lease*3/5)
			p.begin(func() error { return p.outcome(p.ctx, "a.1", p.name, mutex, p.lease) }) // its outcome is open
			_ = p.within(2*p.lease, nil, func(context.Context) error {                       // some begin with what leaves no key
				for key := range p.keys() {
					if _, old := before[key]; !old {
						return nil
					}
				}
				return errors.New("there is no new key")
			})
			p.cut(p.own)
			p.soonFree("for a lease of", "acquire the lock and set its lease in one step on the server")
		}},
		{"waiters are granted the lock in the order of their requests", func(p promises.Promises) bool { return p.Fair }, overLinks, "grant in the order of the queue; or do not promise fair", servesInOrder},
		{"a late extension is refused, and leaves the next holder alone", extend, 0, "compare the owner and prolong in one step on the server, and answer fail where the key is gone", func(p *play) {
			p.outlived(func(late, hold *undertest.Hold, _, next string) {
				if err := late.Extend(p.ctx, long); err == nil || errors.Is(err, lock.ErrLost) { // or confirmed, and the hold ended meanwhile
					p.fail("the late extension was answered with ok, while %s held the lock", next)
				}
				p.release(hold)
			})
		}},
		// Each request of an extension takes so much of the lease that the second one comes after its end, or the third one. An
		// extension that looks at the owner first, and does not look at what came of the request that prolongs, is then believed
		// although another client has the lock.
		{"an extension whose requests are slow is believed only while the lock is held", extend, overLinks | onRedis, "", func(p *play) {
			p.inFifths(func(p *play, held slowHold) {
				asked := time.Now()
				end := asked.Add(2 * p.lease)
				extend := func() error { return held.Extend(p.ctx, 2*p.lease) }
				// A hold that is over by then forgets what the answer told of its end.
				undertest.Guard(held.Hold.Hold, func(k lock.Keeper) lock.Keeper {
					extend = func() error {
						told, err := k.Extend(p.ctx, held.Lease(), 2*p.lease)
						if !told.IsZero() && told.Before(end) { // some extend by the first lease, whatever they are asked for
							end = told
						}
						return err
					}
					return k
				})
				wait := p.begin(extend)
				p.next("b.1", p.name, mutex)
				granted := time.Now()
				extended := wait()
				confirmed := extended == nil || errors.Is(extended, lock.ErrLost) // the hold was over by then, and believes no answer
				if left := end.Sub(granted); confirmed && left > 0 {
					p.fail("the extension for %v was answered with ok, although a client of another process was granted the lock %v before the end of it: "+
						"prolong by the lease that the extension is given, and compare the owner and prolong in one step on the server, or look at what came of the transaction",
						2*p.lease, left.Round(time.Millisecond))
				}
				if extended != nil {
					held.inTime()
				}
			})
		}},
		// Clients of both processes ask by turns: one that counts by itself is found.
		{"tokens grow from grant to grant", func(p promises.Promises) bool { return p.Token }, 0, "take the token from one counter on the servers, in the step that grants (INCR in the script); or do not promise token", func(p *play) {
			before := int64(0)
			for _, client := range []string{"a.1", "b.1", "a.1", "b.1"} {
				h := p.grant(client, p.name, mutex, long, free)
				token := h.Lease().Token
				if token <= before {
					p.fail("the token %d follows %d", token, before)
				}
				before = token
				p.release(h)
			}
		}},
	}
}

// releaseAgain releases what another client holds by now, which must free nothing.
func (p *play) releaseAgain(h *undertest.Hold, client, name, which, holder string) {
	err := h.Release(p.ctx)
	if (err == nil || errors.Is(err, undertest.ErrConfirmedAgain)) && p.promises().ReleaseTells {
		p.fail("the %s release was answered with ok, while %s held the lock", which, holder)
	}
	p.refused(client, name, mutex, long, fmt.Sprintf("%s held it: the %s release freed it", holder, which))
}

// outlived has the lease of a client run out, once with the next holder in another
// process and once in the same one, whose clients may take each other for the holder, and once
// with a later request of the client itself, which a re-entrant lock may take for the same. It tells
// what to do then the late hold, that of the next holder, the name of the lock, and who that is.
func (p *play) outlived(then func(late, hold *undertest.Hold, name, next string)) {
	cases := []struct{ name, next, client string }{
		{p.name + "-other", "a client of another process", "b.1"},
		{p.name + "-same", "another client of the same process", "a.2"},
		{p.name + "-again", "a later request of the same client", "a.1#2"},
	}
	if p.promises().Reentrant {
		cases = cases[:2]
	}
	var late []*undertest.Hold
	for _, c := range cases {
		late = append(late, p.grant("a.1", c.name, mutex, p.lease, free))
	}
	for i, c := range cases {
		then(late[i], p.next(c.client, c.name, mutex), c.name, c.next)
	}
}

// fairWaiters is how many clients wait in the check of their order.
const fairWaiters = 4

// servesInOrder has clients of both processes wait, one after the other, and releases the lock.
func servesInOrder(p *play) {
	if !p.promises().Wait {
		p.fail(`it promises "fair" without "wait": a request that does not wait has no place in an order`)
	}
	parallel := max(p.a.hello.Parallel, 1)
	hold := p.grant("a.1", p.name, mutex, long, free)
	granted := make(chan int, fairWaiters)
	var waits []func() error
	for i := range min(fairWaiters, parallel) {
		client := fmt.Sprintf("b.%d#1", i+2)
		if i%2 == 1 && parallel > fairWaiters { // the holder needs room for its release
			client = fmt.Sprintf("a.%d#1", i+2)
		}
		waits = append(waits, p.begin(func() error {
			h, err := p.of(client).ask(p.ctx, p.name, mutex, lock.Options{Owner: "zone-" + client, Lease: long, Wait: limit})
			if err != nil {
				return err
			}
			granted <- i + 1
			return h.Release(p.ctx)
		}))
		p.pause(p.lease / 3) // so that it is in the queue
	}
	p.must(hold.Release(p.ctx))
	var order []int
	for _, wait := range waits {
		p.must(wait())
		order = append(order, <-granted)
	}
	if !slices.IsSorted(order) {
		p.doubt("waiters that asked %v apart were granted the lock in the order %v", (p.lease / 3).Round(time.Millisecond), order)
	}
}

// inFifths plays with a hold whose second request comes after its end, and with one whose third does, and joins
// what was wrong.
func (p *play) inFifths(then func(p *play, held slowHold)) {
	part := func(name string, fifths int) error {
		p := &play{ctx: p.ctx, a: p.a, b: p.b, name: p.name + name, lease: p.lease, timeout: p.timeout, d: p.d}
		return p.made(func(p *play) { then(p, p.holdSlowly(fifths)) })
	}
	p.must(errors.Join(part("-second", 3), part("-third", 2)))
}

// A slowHold is held over links that delay each request of the first driver by so much that one of
// them arrives after the lock is free, and those before it do not, unless the driver is slow.
type slowHold struct {
	*undertest.Hold

	sent time.Time     // when it was asked for
	end  time.Duration // after which the lock is free
	// inTime stops the play where the driver sent its requests so late that none arrived as it should have.
	inTime func()
}

// holdSlowly has a client hold a lock over links on which a request takes so many fifths of the time
// for which it is held.
func (p *play) holdSlowly(fifths int) slowHold {
	before, sent := p.keys(), time.Now()
	s := slowHold{Hold: p.grant("a.1", p.name, mutex, p.lease, free), sent: sent, end: p.end(sent, before)}
	if s.end > p.lease*3/2 { // that of a key that is not of the hold, such as a counter; nor does a driver wait for longer
		s.end = p.lease
	}
	p.slow(topologies.Upstream, s.end*time.Duration(fifths)/5)
	early := (5 - 1) / fifths // how many requests are to arrive before the end
	var mu sync.Mutex
	came, late := map[string]int{}, map[bool]int{} // on the link to each server, and on how many links the last of them was late, or not
	// All commands count: a lock that begins with others than those that name it is not slow.
	p.judge(func(server string, m traffic.Message) traffic.Action {
		mu.Lock()
		defer mu.Unlock()
		if m.Kind == traffic.Command {
			if came[server]++; came[server] == early {
				late[time.Since(sent) >= s.end]++
			}
		}
		return traffic.Action{}
	})
	s.inTime = func() {
		mu.Lock()
		defer mu.Unlock()
		if late[true] > 0 && late[false] == 0 {
			p.doubt("request %d reached the server after the end of the lease, %v after the request for the lock: the answer was too slow for the lease", early, s.end.Round(time.Millisecond))
		}
	}
	return s
}
