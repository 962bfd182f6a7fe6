package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/undertest"
	"github.com/lockchaos/lockchaos/topologies"
)

// replies are the checks of what is said of a request whose reply did not come.
func replies() []Check {
	return []Check{
		{"nothing is granted while the links are cut", nil, overLinks, "answer ok only once the servers have confirmed the grant", func(p *play) {
			p.warm()
			mend := p.cut(func(topologies.Link) bool { return true })
			err := p.outcome(p.ctx, "a.1", p.name, mutex, long)
			mend()
			p.unconfirmed(err, "every link of "+p.who()+" was cut") // fail is right where the library knows that nothing was sent
			p.must(p.within(limit, errors.New(p.who()+" did not recover from a cut"), p.warmUp))
		}},
		{"a request whose reply is lost is unknown", nil, overLinks, "", func(p *play) {
			p.warm()
			err := p.unknown(lock.ErrNotAcquired, "ErrNotAcquired", "request", func(ctx context.Context) error {
				return p.outcome(ctx, "a.1", p.name, mutex, long)
			})
			p.unconfirmed(err, "no reply reached "+p.who())
		}},
		// The reply to a request for a free lock gets lost, in the ways in which networks and libraries lose one, and whatever is
		// sent again passes. An answer that the lock was refused says that nothing is left of the request; no other client has
		// asked, so that the lock is then free.
		{"a request that is answered with refused leaves nothing behind", nil, overLinks | onRedis, "", func(p *play) {
			p.trulyRefused(p.name+"-1", "its connection was reset before the first reply came", func() {
				p.pause(p.lease / 3) // so that the server has done it
				p.reset()
			})
			p.trulyRefused(p.name+"-2", "the first reply did not come within the time that it was to wait for a server", func() {
				p.pause(p.timeout + p.timeout/4)
			})
		}},
		// A request is given up, and its reply comes while a later one is under way on the same connection, if that is used
		// again. The later request asks for a lock that is held.
		{"a late reply is not taken for the answer to a later request", nil, overLinks, "", func(p *play) {
			held := p.name + "-held"
			p.grant("b.1", held, mutex, long, free)
			p.warm()
			mend := p.hold(p.own)
			ctx, cancel := context.WithTimeout(p.ctx, limit)
			defer cancel()
			_ = p.outcome(ctx, "a.1", p.name, mutex, long) // whatever it says: see the check of a lost reply
			later := p.begin(func() error { return p.outcome(ctx, "a.1#2", held, mutex, long) })
			p.pause(p.lease / 5) // so that it is on its way
			mend()
			if later() == nil {
				p.fail("a lock was granted that a client of another process held, after the reply to a request that had been given up: " +
					"close a connection on which a reply is outstanding")
			}
		}},
		// No reply to a release arrives, and not only the first one is lost: the clients of many libraries send a release again,
		// that of go-redis for a cluster whatever its options say, and what is told of a lock that was released harms nothing.
		{"a release whose reply is lost is unknown", nil, overLinks, "", func(p *play) {
			h := p.grant("a.1", p.name, mutex, long, free)
			err := p.unknown(lock.ErrNotHeld, "ErrNotHeld", "release", h.Release)
			if err == nil && p.promises().ReleaseTells {
				p.fail("the answer is ok, although no reply reached %s, which promises to tell whether the lock was held", p.who())
			}
		}},
		{"a lock stays held where the servers forget scripts and close connections", nil, overLinks | onRedis, "", survivesForgetting},
		{"an unknown operation is answered with unsupported", nil, 0, "", func(p *play) {
			result, err := p.a.driver.Do(p.ctx, "no-such-operation")
			p.must(err)
			if result != "unsupported" {
				p.fail("the answer is %q", result)
			}
		}},
	}
}

// unconfirmed fails where the answer is a grant that no server can have confirmed.
func (p *play) unconfirmed(err error, why string) {
	if err == nil {
		p.fail("the answer is ok, although %s: it answers from memory, or reaches the server past the proxies", why)
	}
}

// unknown makes a request of the first process whose reply is held back, and fails where its answer is definite, which
// can't be, since no reply came.
func (p *play) unknown(definite error, refusal, what string, request func(context.Context) error) error {
	defer p.hold(p.own)()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	err := request(ctx)
	if errors.Is(err, definite) {
		p.fail("the answer is %s, although no reply reached %s: it must be %s, since the %s may have been done", p.word("fail", refusal), p.who(), p.word("info", "another error"), what)
	}
	return err
}

// mostCommands bounds the commands that are told of a request, and commandLength what is told of each.
const mostCommands, commandLength = 8, 160

func (p *play) trulyRefused(name, why string, lose func()) {
	var mu sync.Mutex
	var sent []string
	named := false // else the keys have other names
	come := make(chan struct{})
	mend := p.atEnd(func() { close(come) })
	// Only what names the lock is kept back: some libraries look first at what the server can do.
	p.judge(func(server string, m traffic.Message) traffic.Action {
		mu.Lock()
		defer mu.Unlock()
		line := strings.Trim(fmt.Sprintf("%q", m.Words), "[]")
		named = named || strings.Contains(line, p.name) // in the warm-up
		switch {
		case !strings.Contains(line, name):
		case m.Kind == traffic.Reply:
			return traffic.Action{Until: come}
		case len(sent) < mostCommands:
			sent = append(sent, say.Shorten("\n  "+server+": "+line, commandLength))
		}
		return traffic.Action{}
	})
	p.warm()
	mu.Lock()
	if !named {
		mend = p.hold(p.own)
	}
	mu.Unlock()
	wait := p.begin(func() error { return p.outcome(p.ctx, "a.1", name, mutex, long) })
	lose()
	mend()
	if !errors.Is(wait(), lock.ErrNotAcquired) {
		return // it may have been granted: that is said
	}
	// What withdraws a request may be under way for as long as a driver waits for a server.
	if _, notFree := p.nextWithin(2*p.timeout, "b.1", name, mutex); notFree != nil {
		mu.Lock()
		defer mu.Unlock()
		p.fail("the answer is %s, and %v later the lock is not free, though no other client had asked for it: %s. "+
			"A request without a reply may have been done: send the same token again and take your own key for a grant, or answer %s. The servers were sent:%s",
			p.word("fail", "ErrNotAcquired"), 2*p.timeout, why, p.word("info", "another error"), strings.Join(sent, ""))
	}
}

// survivesForgetting finds a connection that is not the same when it is opened again, and a script
// that the server does not know any more and whose failure is taken for success. A restart of
// the server does both.
func survivesForgetting(p *play) {
	for range 2 { // the second time after a release, which has its script loaded as well
		h := p.grant("a.1", p.name, mutex, long, free)
		for _, server := range p.d.Topology().Of(topologies.Redis) {
			rdb := p.d.Server(server).Observer()
			p.must(cmp.Or(rdb.ScriptFlush(p.ctx).Err(), rdb.ClientKillByFilter(p.ctx, "TYPE", "normal", "SKIPME", "yes").Err()))
		}
		if _, err := p.answer("a.2"); err == nil {
			p.fail("another client was granted the lock after the connections had been closed: set up each connection as the first one was (database, user)")
		}
		if lost(h) {
			return // it gave the hold up: what comes now is no release of it
		}
		// The first release may meet a connection that is closed, and its outcome is then open.
		released := h.Release(p.ctx)
		if errors.Is(released, lock.ErrNotHeld) {
			p.fail("the release was answered with fail, although the lock was held")
		}
		next, err := p.answer("a.2")
		if err != nil && released == nil {
			p.fail("the release was answered with ok, and the lock was still held: when the server answers NOSCRIPT, nothing was done; send it the script")
		}
		if err != nil || next.Release(p.ctx) != nil {
			return // a release may meet another connection that was closed: its outcome is open
		}
	}
}

// answer asks for the lock until the answer is certain, and fails where it is not for long.
func (p *play) answer(client string) (h *undertest.Hold, err error) {
	_ = p.within(p.patience(), nil, func(ctx context.Context) error {
		if h, err = p.ask(ctx, client, p.name, mutex, long); errors.Is(err, lock.ErrNotAcquired) {
			return nil
		}
		return err
	})
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) { // not wrapped: ErrUnknown would have the check made again, and again be told
		p.fail("%s gave no certain answer for %v after the servers had closed its connections and forgotten its scripts: "+
			"open a new connection, and send the script again when the server answers NOSCRIPT: %v", p.who(), p.patience(), err)
	}
	return h, err
}
