package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/undertest"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// long is a lease that is not let run out.
const long = 5 * time.Minute

// A play is one check while it is made, with two processes of what is checked, each with a zone of its own,
// on servers whose links can be cut. A client is named by its process and a number: "a.1", "b.1", and "a.1#2" for
// another request of a.1.
//
// As in a test, what fails stops the play: its methods return only what is right. They are to be called by the
// goroutine of the play, but for ask.
type play struct {
	ctx     context.Context //nolint:containedctx // it is that of the check
	a, b    subject
	name    string          // of a lock that no other check uses
	lease   time.Duration   // of a lock that is let run out
	timeout time.Duration   // for how long a server is waited for
	logs    [2]bytes.Buffer // what the drivers logged
	d       topologies.Deployment

	wrong   error          // what the play was stopped by
	mends   []func()       // what is to be done at the end, the last one first
	running sync.WaitGroup // requests
}

// made makes a check, mends what it broke, and returns what was wrong.
func (p *play) made(check func(*play)) error {
	var playing sync.WaitGroup
	playing.Go(func() { check(p) })
	playing.Wait()
	for _, mend := range slices.Backward(p.mends) {
		mend()
	}
	p.running.Wait()
	return p.wrong
}

// must stops the play at an error.
func (p *play) must(err error) {
	if err != nil {
		p.wrong = err
		runtime.Goexit()
	}
}

// fail stops the play with what is wrong for certain, doubt with what a slow lock explains as well, and hopeless so that
// no other check is made.
func (p *play) fail(format string, args ...any) { p.must(fmt.Errorf(format, args...)) }

func (p *play) doubt(format string, args ...any) {
	p.must(finding{fmt.Errorf(format, args...), driver.ErrUnknown})
}

func (p *play) hopeless(format string, args ...any) {
	p.must(finding{fmt.Errorf(format, args...), ErrHopeless})
}

// ask has a client ask for a lock in a way. With an error the hold means nothing.
func (p *play) ask(ctx context.Context, client, name string, w driver.Way, lease time.Duration) (*undertest.Hold, error) {
	if !strings.Contains(client, "#") {
		client += "#1"
	}
	h, err := p.of(client).ask(ctx, name, w, lock.Options{Owner: "zone-" + client, Lease: lease})
	return undertest.Of(h), err
}

// outcome has a client ask, and forgets what it is granted.
func (p *play) outcome(ctx context.Context, client, name string, w driver.Way, lease time.Duration) error {
	_, err := p.ask(ctx, client, name, w, lease)
	return err
}

// of is the process of a client.
func (p *play) of(client string) subject {
	if client[0] == 'a' {
		return p.a
	}
	return p.b
}

func (p *play) promises() promises.Promises { return p.a.hello.Promises }

// answered makes a request of a process that no fault meets, and stops the play, and all others, where no answer comes.
func (p *play) answered(s subject, request func(context.Context) error) error {
	limit := 5 * p.timeout
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	err := request(ctx)
	if err == nil || ctx.Err() == nil || p.ctx.Err() != nil {
		return err
	}
	if s.driver == nil {
		p.hopeless("the lock gave no answer to a request within %v: %w", limit, err)
	}
	p.hopeless("no answer to a request came within %v. It was sent %s\nIs the output flushed after each line? A lock that is held is to be awaited for \"wait_ms\", and no longer", limit, s.driver.Unanswered())
	return nil
}

// free is why a client is granted most locks.
const free = "the lock is free"

// grant has a client be granted a lock in a way, since nothing is in its way.
func (p *play) grant(client, name string, w driver.Way, lease time.Duration, because string) (h *undertest.Hold) {
	err := p.answered(p.of(client), func(ctx context.Context) (err error) {
		h, err = p.ask(ctx, client, name, w, lease)
		return err
	})
	if errors.Is(err, lock.ErrNotAcquired) {
		p.fail("%s was refused the lock, although %s: %w", who(w), because, err)
	}
	p.must(err)
	return h
}

// refused has a client be refused a lock in a way, since something is in its way.
func (p *play) refused(client, name string, w driver.Way, lease time.Duration, because string) {
	err := p.answered(p.of(client), func(ctx context.Context) error { return p.outcome(ctx, client, name, w, lease) })
	if err == nil {
		p.fail("%s was granted the lock, although %s", who(w), because)
	}
	if !errors.Is(err, lock.ErrNotAcquired) {
		p.fail("the answer to %s must be fail, and is: %w", who(w), err)
	}
}

// who asks in a way.
func who(w driver.Way) string {
	if w.Mode == "" {
		return "a client"
	}
	return "a " + strings.TrimSuffix(w.Mode, "e") + "er"
}

// release has a hold be released where no fault meets that.
func (p *play) release(h *undertest.Hold) {
	p.must(p.answered(p.of(strings.TrimPrefix(h.Lease().Owner, "zone-")), h.Release))
}

// begin has something done side by side with the play. What it returns waits for what came of that.
func (p *play) begin(do func() error) (wait func() error) {
	done := make(chan error, 1)
	p.running.Go(func() { done <- do() })
	return func() error { return <-done }
}

// pause lets time pass.
func (p *play) pause(d time.Duration) { p.must(await.Pause(p.ctx, d)) }

// ErrNotFree is of a lock that another client was not granted, long after the end of a lease.
var ErrNotFree = errors.New("the lock is not free yet")

// patience is for how long a lock that must be free is asked for, and a certain answer awaited:
// about half a minute for a driver.
func (p *play) patience() time.Duration { return 10 * p.lease }

// within does something again and again until it succeeds, for so long at the most.
func (p *play) within(limit time.Duration, why error, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(p.ctx, limit, why)
	defer cancel()
	return await.Until(ctx, func() error { return do(ctx) })
}

// next awaits that the next client is granted the lock in a way, and nextWithin so for a while.
func (p *play) next(client, name string, w driver.Way) *undertest.Hold {
	h, err := p.nextWithin(p.patience(), client, name, w)
	p.must(err)
	return h
}

func (p *play) nextWithin(limit time.Duration, client, name string, w driver.Way) (h *undertest.Hold, err error) {
	err = p.within(limit, ErrNotFree, func(ctx context.Context) error {
		h, err = p.ask(ctx, client, name, w, long)
		return err
	})
	return h, err
}

// soonFree awaits that another process is granted the lock some leases after something, and doubts where it is not, with what to do then.
func (p *play) soonFree(after, then string) {
	if _, err := p.nextWithin(4*p.lease, "b.1", p.name, mutex); err != nil {
		p.doubt("the client of the other process was refused for %v %s %v: %s", 4*p.lease, after, p.lease, then)
	}
}

// warm has the first process connect, so that a check meets a connection that is open, and servers that know the scripts.
func (p *play) warm() { p.must(p.warmUp(p.ctx)) }

func (p *play) warmUp(ctx context.Context) error {
	h, err := p.ask(ctx, "a.1", p.name+"-warm", mutex, long)
	if err != nil {
		return err
	}
	return h.Release(p.ctx) //nolint:contextcheck // that of the play
}

// inTime stops the play at an error of what was asked of a hold, which says nothing once its lease is over.
func (p *play) inTime(h *undertest.Hold, err error) {
	if err != nil && spent(h) {
		p.doubt("the answer was too slow for the lease: %w", err)
	}
	p.must(err)
}

// spent reports whether the lease of a hold is over, and lost whether its client was told that it lost it.
func spent(h *undertest.Hold) bool {
	expires := h.Lease().Expires
	return !expires.IsZero() && time.Now().After(expires)
}

func lost(h *undertest.Hold) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

// keys are those on all servers, with the time that each has left; negative: no end. The copies on replicas of a cluster,
// which send a request for a key to its master, are left out.
func (p *play) keys() map[string]time.Duration {
	left := map[string]time.Duration{}
	for _, server := range p.d.Topology().Of(topologies.Redis) {
		rdb := p.d.Server(server).Observer()
		for keys := rdb.Scan(p.ctx, 0, "*", 0).Iterator(); keys.Next(p.ctx); {
			life, err := rdb.PTTL(p.ctx, keys.Val()).Result()
			if redis.HasErrorPrefix(err, "MOVED") {
				continue
			}
			p.must(err)
			left[server+" "+keys.Val()] = life
		}
	}
	p.must(context.Cause(p.ctx))
	return left
}

// end is for how long a lock that was asked for with a lease is held if it is not released: until
// the last of its keys ends, which may outlive the lease. before are the keys from before the request.
func (p *play) end(sent time.Time, before map[string]time.Duration) time.Duration {
	end, passed := p.lease, time.Since(sent)
	for key, left := range p.keys() {
		if left > before[key] {
			end = max(end, passed+left)
		}
	}
	return end
}

// atEnd has something done at the end of the play, unless what it returns did it before.
func (p *play) atEnd(do func()) func() {
	do = sync.OnceFunc(do)
	p.mends = append(p.mends, do)
	return do
}

// on does something to links of clients, and returns what mends that, which the play does at its end if it is not done before.
func (p *play) on(which func(topologies.Link) bool, do func(topologies.Link, topologies.Proxy) (mend func(), err error)) (mend func()) {
	var mends []func()
	mend = p.atEnd(func() {
		for _, mend := range mends {
			mend()
		}
	})
	for _, l := range p.d.Topology().Links {
		if l.Kind == topologies.Client && which(l) {
			one, err := do(l, p.d.Proxy(l.Name()))
			p.must(err)
			mends = append(mends, one)
		}
	}
	return mend
}

// own is of the links of the first process, and to of those to these servers.
func (p *play) own(l topologies.Link) bool { return l.From == p.d.Topology().Of(topologies.Zone)[0] }

func to(servers []string) func(topologies.Link) bool {
	return func(l topologies.Link) bool { return slices.Contains(servers, l.To) }
}

// cut cuts links.
func (p *play) cut(which func(topologies.Link) bool) (mend func()) {
	return p.on(which, func(_ topologies.Link, at topologies.Proxy) (func(), error) { return at.Cut(), nil })
}

// slow delays each request of the first process, or each reply to it, and hold holds all replies on links back.
func (p *play) slow(way topologies.Stream, by time.Duration) (mend func()) {
	return p.on(p.own, func(_ topologies.Link, at topologies.Proxy) (func(), error) {
		return at.Put(way, topologies.Latency(by, 0))
	})
}

func (p *play) hold(which func(topologies.Link) bool) (mend func()) {
	return p.on(which, func(_ topologies.Link, at topologies.Proxy) (func(), error) {
		return at.Put(topologies.Downstream, topologies.Hold())
	})
}

// reset closes the connections of the first process.
func (p *play) reset() {
	p.on(p.own, func(_ topologies.Link, at topologies.Proxy) (func(), error) {
		at.Reset()
		return func() {}, nil
	})
}

// judge decides of each message between the first process and servers of Redis.
func (p *play) judge(of func(server string, m traffic.Message) traffic.Action) {
	p.on(p.own, func(l topologies.Link, at topologies.Proxy) (func(), error) {
		read, _ := at.(topologies.Interceptor) // as all of those links are
		return read.Judge(func(m traffic.Message) traffic.Action { return of(l.To, m) })
	})
}

// word is one for a driver, and another for a lock in Go.
func (p *play) word(program, inGo string) string {
	if p.a.driver != nil {
		return program
	}
	return inGo
}

func (p *play) who() string { return p.word("the driver", "the lock") }
