package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
)

// unconfirmed fails where the answer is a grant that no server can have confirmed.
func (p *play) unconfirmed(err error, why string) {
	if err == nil {
		p.fail("the answer is ok, although %s: it answers from memory, or reaches the server past the proxies", why)
	}
}

func grantsNothingCutOff(p *play) {
	p.warm()
	mend := p.cut()
	_, err := p.ask(p.ctx, "a.1", p.name, long)
	mend()
	p.unconfirmed(err, "every link of "+p.who()+" was cut") // fail is right where the library knows that nothing was sent
	p.recovers(p.who() + " did not recover from a cut")
}

// unknown fails where an answer is definite that can't be, since no reply came.
func (p *play) unknown(err, definite error, refusal, what string) {
	if errors.Is(err, definite) {
		p.fail("the answer is %s, although no reply reached %s: it must be %s, since the %s may have been done", p.word("fail", refusal), p.who(), p.word("info", "another error"), what)
	}
}

func lostReply(p *play) {
	p.warm()
	err := p.deaf(func(ctx context.Context) error {
		_, err := p.ask(ctx, "a.1", p.name, long)
		return err
	})
	p.unknown(err, lock.ErrNotAcquired, "ErrNotAcquired", "request")
	p.unconfirmed(err, "no reply reached "+p.who())
}

// lostRelease has no reply to a release arrive. It does not lose only the first one: the
// clients of many libraries send a release again, that of go-redis for a cluster whatever its
// options say, and what is told of a lock that was released harms nothing.
func lostRelease(p *play) {
	h := p.grant("a.1", p.name, long)
	err := p.deaf(func(ctx context.Context) error { return p.a.ReleaseAgain(ctx, h) })
	p.unknown(err, lock.ErrNotHeld, "ErrNotHeld", "release")
	if err == nil && p.a.Hello().Promises.ReleaseTells {
		p.fail("the answer is ok, although no reply reached %s, which promises to tell whether the lock was held", p.who())
	}
}

// lateReply has a request be given up, and its reply come while a later one is under way on
// the same connection, if that is used again. The later request asks for a lock that is held.
func lateReply(p *play) {
	held := p.name + "-held"
	p.grant("b.1", held, long)
	p.warm()
	mend := p.hold()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	_, _ = p.ask(ctx, "a.1", p.name, long) // whatever it says: see lostReply
	var later error
	wait := p.begin(func() { _, later = p.ask(ctx, "a.1#2", held, long) })
	p.pause(p.lease / 5) // so that it is on its way
	mend()
	wait()
	if later == nil {
		p.fail("a lock was granted that a client of another process held, after the reply to a request that had been given up: " +
			"close a connection on which a reply is outstanding")
	}
}

// trueRefusal has the reply to a request for a free lock get lost, in the ways in which networks and libraries
// lose one, and lets whatever is sent again through. An answer that the lock was refused says that nothing is left of
// the request; no other client has asked, so that the lock is then free.
func trueRefusal(p *play) {
	p.trulyRefused(p.name+"-1", "its connection was reset before the first reply came", func(mend func()) {
		p.pause(p.lease / 3) // so that the server has done it
		p.reset()
		mend()
	})
	p.trulyRefused(p.name+"-2", "the first reply did not come within the time that it was to wait for a server", func(mend func()) {
		p.pause(p.timeout + p.timeout/4)
		mend()
	})
}

// mostCommands bounds the commands that are told of a request, and commandLength what is told of each.
const mostCommands, commandLength = 8, 160

func (p *play) trulyRefused(name, why string, lose func(mend func())) {
	var mu sync.Mutex
	var sent []string
	named := false // else the keys have other names
	come := make(chan struct{})
	mend := p.atEnd(func() { close(come) })
	// Only what names the lock is kept back: some libraries look first at what the server can do.
	read := p.judge(func(server string, m traffic.Message) traffic.Action {
		mu.Lock()
		defer mu.Unlock()
		line := strings.Trim(fmt.Sprintf("%q", m.Words), "[]")
		named = named || strings.Contains(line, p.name) // in the warm-up
		switch {
		case !strings.Contains(line, name):
		case m.Kind == traffic.Reply:
			return traffic.Action{Until: come}
		case len(sent) < mostCommands:
			if line = "\n  " + server + ": " + line; len(line) > commandLength {
				line = line[:commandLength] + "…"
			}
			sent = append(sent, line)
		}
		return traffic.Action{}
	})
	p.warm()
	mu.Lock()
	if !read || !named {
		mend = p.hold()
	}
	mu.Unlock()
	var h *lock.Hold
	var answer error
	wait := p.begin(func() { h, answer = p.ask(p.ctx, "a.1", name, long) })
	lose(mend)
	wait()
	if answer == nil {
		_ = h.Release(p.ctx) // its outcome is for other checks
	}
	if !errors.Is(answer, lock.ErrNotAcquired) {
		return // it may have been granted: that is said
	}
	// What withdraws a request may be under way for as long as a driver waits for a server.
	limited, cancel := context.WithTimeout(p.ctx, 2*p.timeout)
	defer cancel()
	notFree := await.Until(limited, func() error {
		next, err := p.ask(limited, "b.1", name, long)
		if err == nil {
			_ = next.Release(limited)
		}
		return err
	})
	p.must(context.Cause(p.ctx))
	if notFree != nil {
		mu.Lock()
		defer mu.Unlock()
		p.fail("the answer is %s, and %v later the lock is not free, though no other client had asked for it: %s. "+
			"A request without a reply may have been done: send the same token again and take your own key for a grant, or answer %s. The servers were sent:%s",
			p.word("fail", "ErrNotAcquired"), 2*p.timeout, why, p.word("info", "another error"), strings.Join(sent, ""))
	}
}

func answersUnsupported(p *play) {
	result, err := driverOf(p.a).Do(p.ctx, "no-such-operation")
	p.must(err)
	if result != "unsupported" {
		p.fail("the answer is %q", result)
	}
}

func exitsAtEnd(p *play) {
	d := driverOf(p.a)
	_, err := d.Do(p.ctx, "ping")
	p.must(err)
	p.must(d.Close())
	if d.Killed() {
		p.hopeless("it went on, and was killed: exit when the input ends")
	}
}

// driverOf is the driver that is checked. Checks of the protocol are made of drivers alone.
func driverOf(s subject) *driver.Driver { return s.(*driver.Driver) } //nolint:forcetypeassert // see Check.links
