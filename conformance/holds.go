package conformance

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

func extends(p *play) {
	h := p.grant("a.1", p.name, p.lease)
	first := time.Now().Add(p.lease)
	p.pause(p.lease / 2) // some extend by the first lease, and say so
	p.inTime(h, h.Extend(p.ctx, long))
	p.pause(time.Until(first))
	p.refused("b.1", p.name, long, otherProcess)
	if lost(h) {
		p.doubt("%s said that a hold is lost that was extended for %v: an extension sets the end of the hold anew", p.who(), long)
	}
}

// extensionEnds finds an extension that the server was told in another unit.
func extensionEnds(p *play) {
	h := p.grant("a.1", p.name, p.lease)
	asked := time.Now()
	p.inTime(h, h.Extend(p.ctx, p.lease))
	// Some extend from the end of the lease before.
	if _, err := p.nextWithin(4*p.lease, "b.1", p.name); err != nil && p.ctx.Err() == nil {
		p.doubt("the client of the other process was refused for %v after an extension for %v: "+
			"give the server the lease in its own unit (PEXPIRE: milliseconds, EXPIRE: seconds)", 4*p.lease, p.lease)
	}
	p.must(p.ctx.Err())
	if took := time.Since(asked); took < p.lease && !spent(h) {
		p.fail("the lock was free %v after a request for an extension for %v", took.Round(time.Millisecond), p.lease)
	}
}

// leavesAlone finds what goes on after a release, such as a watchdog that nothing stops.
func leavesAlone(p *play) {
	h := p.grant("a.1", p.name, p.lease)
	p.inTime(h, h.Release(p.ctx))
	next := p.grant("b.1", p.name, long)
	before := p.keys()
	p.pause(p.lease) // a watchdog acts several times in a lease
	after := p.keys()
	for key, left := range before {
		if now := after[key]; left > long/2 && now > 0 && now < long/2 {
			p.fail("the key %s of the next holder had %v left, and %v after a pause of %v: something goes on after the release; end the watchdog before the key is deleted", key, left, now, p.lease)
		}
	}
	p.refused("a.2", p.name, long, third)
	if err := next.Release(p.ctx); err != nil {
		p.fail("the release of the next holder, whose lease was %v, failed after a pause of %v: something goes on after the first release; end the watchdog before the key is deleted: %w", long, p.lease, err)
	}
}

func releasesTwice(p *play) {
	h := p.grant("a.1", p.name, long)
	p.release(h)
	next := p.grant("b.1", p.name, long)
	p.releaseAgain(h, "b.2", p.name, "second", "a client of another process")
	p.release(next)
}

func releasesLate(p *play) {
	p.outlived(func(late, _ *lock.Hold, name, next string) {
		p.releaseAgain(late, "a.3", name, "late", next) // also after it was told that the hold is lost
	})
}

// releaseAgain releases what another client holds by now, which must free nothing.
func (p *play) releaseAgain(h *lock.Hold, client, name, which, holder string) {
	if err := p.a.ReleaseAgain(p.ctx, h); err == nil && p.a.Hello().Promises.ReleaseTells {
		p.fail("the %s release was answered with ok, while %s held the lock", which, holder)
	}
	_, err := p.ask(p.ctx, client, name, long)
	if err == nil {
		p.fail("the %s release freed the lock, which %s held", which, holder)
	}
	p.must(notRefused(err, third))
}

func extendsLate(p *play) {
	p.outlived(func(late, hold *lock.Hold, _, next string) {
		if err := late.Extend(p.ctx, long); err == nil {
			p.fail("the late extension was answered with ok, while %s held the lock", next)
		}
		if err := hold.Release(p.ctx); err != nil {
			p.fail("after a late extension, the release of %s, which held the lock, failed: %w", next, err)
		}
	})
}

// outlived has the lease of a client run out, once with the next holder in another
// process and once in the same one, whose clients may take each other for the holder, and once
// with a later request of the client itself, which a re-entrant lock may take for the same. It tells
// what to do then the late hold, that of the next holder, the name of the lock, and who that is.
func (p *play) outlived(then func(late, hold *lock.Hold, name, next string)) {
	cases := []struct{ name, next, client string }{
		{p.name + "-other", "a client of another process", "b.1"},
		{p.name + "-same", "another client of the same process", "a.2"},
		{p.name + "-again", "a later request of the same client", "a.1#2"},
	}
	if p.a.Hello().Promises.Reentrant {
		cases = cases[:2]
	}
	var late []*lock.Hold
	for _, c := range cases {
		late = append(late, p.grant("a.1", c.name, p.lease))
	}
	for i, c := range cases {
		then(late[i], p.next(c.client, c.name), c.name, c.next)
	}
}

// releasesSlowly has each request of a release take so much of the lease, or of the life of the
// keys, that the second one comes after its end, or the third one. Of a release that looks at the owner first and deletes
// then, the second request deletes another client's lock; one that does not look at what came of
// its transaction is confirmed although it freed nothing.
func releasesSlowly(p *play) {
	p.warm()
	p.inFifths(func(p *play, held *slowHold) {
		var released error
		wait := p.begin(func() { released = p.a.ReleaseAgain(p.ctx, held.Hold) })
		p.next("b.1", p.name)
		freed := time.Since(held.sent)
		wait()
		_, err := p.ask(p.ctx, "b.2", p.name, long)
		if err == nil {
			p.fail("the release freed the lock, which a client of another process held by then: compare the owner and delete in one step on the server")
		}
		p.must(notRefused(err, third))
		if freed < held.end {
			return
		}
		held.inTime(p)
		if promises := p.a.Hello().Promises; released == nil && promises.ReleaseTells && !promises.Quorum {
			p.doubt("the release was answered with ok, although the lock was not free before the end of its lease, %v after the request for it: "+
				"look at what came of the transaction, or compare the owner and delete in one step on the server", freed.Round(time.Millisecond))
		}
	})
}

// extendsSlowly has each request of an extension take so much of the lease that the second one
// comes after its end, or the third one. An extension that looks at the owner first, and does not
// look at what came of the request that prolongs, is then believed although another client has the lock.
func extendsSlowly(p *play) {
	p.inFifths(func(p *play, held *slowHold) {
		asked := time.Now()
		var extended error
		wait := p.begin(func() { extended = held.Extend(p.ctx, 2*p.lease) })
		p.next("b.1", p.name)
		granted, end := time.Now(), asked.Add(2*p.lease)
		wait()
		if extended == nil {
			end = held.Lease().Expires // as the library says
		}
		left := end.Sub(granted)
		confirmed := extended == nil || errors.Is(extended, lock.ErrLost) // the hold was over by then, and believes no answer
		if confirmed && left > 0 {
			p.fail("the extension for %v was answered with ok, although a client of another process was granted the lock %v before the end of it: "+
				"prolong by the lease that the extension is given, and compare the owner and prolong in one step on the server, or look at what came of the transaction",
				2*p.lease, left.Round(time.Millisecond))
		}
		if extended != nil {
			held.inTime(p)
		}
	})
}

// inFifths plays with a hold whose second request comes after its end, and with one whose third does, and joins
// what was wrong.
func (p *play) inFifths(then func(p *play, held *slowHold)) {
	part := func(name string, fifths int) error {
		p := &play{ctx: p.ctx, a: p.a, b: p.b, name: p.name + name, lease: p.lease, timeout: p.timeout, d: p.d}
		return p.made(func(p *play) { then(p, p.holdSlowly(fifths)) })
	}
	p.must(errors.Join(part("-second", 3), part("-third", 2)))
}

// A slowHold is held over links that delay each request of the first driver by so much that one of
// them arrives after the lock is free, and those before it do not, unless the driver is slow.
type slowHold struct {
	*lock.Hold

	sent time.Time     // when it was asked for
	end  time.Duration // after which the lock is free

	early int // how many requests are to arrive before the end
	mu    sync.Mutex
	came  map[string]int  // on the link to each server
	late  map[string]bool // the last of them was late there
}

// holdSlowly has a client hold a lock over links on which a request takes so many fifths of the time
// for which it is held.
func (p *play) holdSlowly(fifths int) *slowHold {
	s := &slowHold{early: (5 - 1) / fifths, came: map[string]int{}, late: map[string]bool{}}
	before := p.keys()
	s.sent = time.Now()
	s.Hold = p.grant("a.1", p.name, p.lease)
	s.end = p.end(s.sent, before)
	if s.end > p.lease*3/2 { // that of a key that is not of the hold, such as a counter; nor does a driver wait for longer
		s.end = p.lease
	}
	p.slow(topologies.Upstream, s.end*time.Duration(fifths)/5)
	// All commands count: a lock that begins with others than those that name it is not slow.
	p.judge(func(server string, m traffic.Message) traffic.Action {
		s.mu.Lock()
		defer s.mu.Unlock()
		if m.Kind == traffic.Command {
			if s.came[server]++; s.came[server] == s.early {
				s.late[server] = time.Since(s.sent) >= s.end
			}
		}
		return traffic.Action{}
	})
	return s
}

// inTime stops the play where the driver sent its requests so late that none arrived as it should have.
func (s *slowHold) inTime(p *play) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, late := range s.late {
		if !late {
			return
		}
	}
	if len(s.late) > 0 {
		p.must(fmt.Errorf("request %d reached the server after the end of the lease, %v after the request for the lock: %w", s.early, s.end.Round(time.Millisecond), errSlow))
	}
}
