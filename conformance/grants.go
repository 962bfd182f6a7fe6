package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/undertest"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// slowest is the share of a lease that an answer may take: several are awaited within one.
const slowest = 3

// A refusal is told with who holds the lock.
const (
	otherProcess = "a client of another process holds it"
	sameProcess  = "another client of the process holds it"
)

// grants are the checks of a lock that is free, or held.
func grants() []Check {
	return []Check{
		// Also a driver that is too slow for what the others look at is found.
		{"a free lock is granted, and given back", nil, 0, "", func(p *play) {
			quickest := limit
			for range 3 {
				sent := time.Now()
				p.release(p.grant("a.1", p.name, mutex, long, free))
				quickest = min(quickest, time.Since(sent)/2)
			}
			if quickest > p.lease/slowest {
				p.fail("each answer took %v or longer, on servers without faults: the leases of the checks are of %v", quickest.Round(time.Millisecond), p.lease)
			}
		}},
		{"the driver exits at the end of its input", nil, 0, "", func(p *play) {
			d := p.a.driver
			_, err := d.Do(p.ctx, "ping")
			p.must(err)
			p.must(d.Close())
			if d.Killed() {
				p.hopeless("it went on, and was killed: exit when the input ends")
			}
		}},
		{"a grant asks the servers", func(p promises.Promises) bool { return !p.HandsOver && !p.Reentrant }, overLinks, "ask the servers for each grant; a process that hands a lock over within itself promises hands_over", func(p *play) {
			h := p.grant("a.1", p.name, mutex, long, free)
			p.refused("a.2", p.name, mutex, long, sameProcess)
			p.release(h)
			before, counted := harness.Requests(p.d)
			p.grant("a.2", p.name, mutex, long, free)
			if after, _ := harness.Requests(p.d); counted && maps.Equal(before, after) {
				p.fail("no request reached the servers over the links: %s answers from memory, or reaches the servers past the proxies. "+
					"If the library hands a lock over within its process, %s", p.who(), p.word(`promise "hands_over"`, "set HandsOver"))
			}
		}},
		{"the commands that hello names are sent", nil, overLinks | onRedis, "", func(p *play) {
			each := func(do func(*redis.Client)) {
				for _, server := range p.d.Topology().Of(topologies.Redis) {
					do(p.d.Server(server).Observer())
				}
			}
			each(func(rdb *redis.Client) { p.must(rdb.ConfigResetStat(p.ctx).Err()) })
			p.release(p.grant("a.1", p.name, mutex, long, free))
			sent := ""
			each(func(rdb *redis.Client) { sent += rdb.Info(p.ctx, "commandstats").Val() })
			p.must(context.Cause(p.ctx))
			for _, word := range []string{"acquire", "release"} {
				if command := p.a.hello.Commands[word]; command != "" && !strings.Contains(sent, "cmdstat_"+strings.ToLower(command)+":") {
					p.fail("its hello says that it sends %q for %q, which it did not: name the commands of the lock in \"commands\"", command, word)
				}
			}
		}},
		{"a grant needs a majority of the servers", func(p promises.Promises) bool { return p.Quorum }, overLinks, "grant only what more than half of the servers have confirmed", func(p *play) {
			p.warm()
			if !p.d.Topology().Apart() {
				return // one of them has the lock
			}
			servers := p.d.Topology().Of(topologies.Redis)
			minority := (len(servers) - 1) / 2
			mend := p.cut(to(servers[minority:]))
			err := p.outcome(p.ctx, "a.1", p.name, mutex, long)
			mend()
			if err == nil {
				p.fail("the lock was granted with %d of %d servers", minority, len(servers))
			}
			p.cut(to(servers[len(servers)-minority : len(servers)-1]))
			p.hold(to(servers[len(servers)-1:])) // it is silent, as one that stands still is, and not gone
			why := fmt.Errorf("the lock is not granted with %d of %d servers, where one of the others is silent", len(servers)-minority, len(servers))
			p.must(p.within(limit, why, p.warmUp))
		}},
		{"an owner is granted again what it holds, and gives it back as often", func(p promises.Promises) bool { return p.Reentrant }, 0, "count the grants of an owner, and free the lock with the last release; or do not promise reentrant", func(p *play) {
			first, second := p.grant("a.1", p.name, mutex, long, free), p.grant("a.1", p.name, mutex, long, "it holds it")
			p.release(second)
			p.refused("b.1", p.name, mutex, long, otherProcess)
			p.release(first)
			p.grant("b.1", p.name, mutex, long, free)
		}},
	}
}

// leases are the checks of who is granted a lock, and for how long.
func leases() []Check {
	return []Check{
		{"a lock that is held is refused to another process", nil, 0, "write the key only where it is not there (SET NX), with one key for a name in all processes", func(p *play) {
			h := p.grant("a.1", p.name, mutex, long, free)
			p.refused("b.1", p.name, mutex, long, otherProcess)
			p.refused("b.1", p.name, mutex, p.lease, otherProcess) // a lease that ends before that of the holder is no better
			p.pause(p.lease + p.lease/10)
			p.refused("b.1", p.name, mutex, p.lease, otherProcess) // nor one that is shorter than the holder has held it
			p.release(h)
			p.grant("b.1", p.name, mutex, long, free)
		}},
		{"a request that is cancelled is answered, and is not granted later", func(p promises.Promises) bool { return p.Cancel }, 0, "end what waits for the lock before the answer, and answer info where it is not certain that nothing was left; or do not promise cancel", func(p *play) {
			h := p.grant("a.1", p.name, mutex, long, free)
			ctx, cancel := context.WithCancel(p.ctx)
			time.AfterFunc(p.lease/3, cancel) // when it waits
			_, err := p.b.ask(ctx, p.name, mutex, lock.Options{Owner: "zone-b.1#1", Lease: long, Wait: limit})
			if err == nil {
				p.fail("the client was granted the lock, although %s", otherProcess)
			}
			if p.b.driver != nil && errors.Is(err, context.Canceled) {
				p.doubt("no answer came to a request that was cancelled")
			}
			p.release(h)
			p.pause(p.lease / 3) // so that what was left of it would be granted the lock
			if errors.Is(err, lock.ErrNotAcquired) {
				p.grant("a.1", p.name, mutex, long, "the only request that waited for it was cancelled, and answered with fail")
			}
		}},
		// Fewer ask at once where none was granted the lock: their votes may be split, and some locks refuse all that meet
		// each other.
		{"of many clients that ask at once, one is granted the lock", nil, 0, "look and write in one step on the server (SET NX, or a script), and ask the master", func(p *play) {
			begin := time.Now()
			for n := manyClients; ; n = max(n/2, 1) {
				granted, open := p.race(p.name, n, func(int) driver.Way { return mutex })
				winners := granted[mutex]
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
		}},
		// A lock in Go is asked for less than a second, of which one that cuts leases to whole seconds has nothing left. A
		// driver may be too slow for that. That a key lives until the next whole second is no defect.
		{"a lease that runs out frees the lock, and not before", nil, overLinks, "give the server the lease that was asked for, in milliseconds (PX, not EX of whole seconds)", func(p *play) {
			patience := p.patience()
			if p.a.driver == nil {
				p.lease = p.lease * 2 / 5
			}
			sent := time.Now()
			h := p.grant("a.1", p.name, mutex, p.lease, free)
			if _, err := p.nextWithin(patience, "b.1", p.name, mutex); errors.Is(err, ErrNotFree) {
				p.hopeless("%w, %v after a grant for %v that was not given back: give the key its lease, in milliseconds, in the step that sets it (SET NX PX)", ErrNotFree, patience, p.lease)
			} else {
				p.must(err)
			}
			// Some keep a lock for as long as its holder believes in it, which is less than the lease that was asked for.
			if took := time.Since(sent); took < p.lease && !spent(h) {
				p.fail("the lock was free %v after a request for a lease of %v", took.Round(time.Millisecond), p.lease)
			}
		}},
		// A lease is found that is counted from the reply, or whose end does not heed how long it took to ask all servers.
		{"a grant over slow links is believed for no longer than the servers keep it", nil, overLinks, "", func(p *play) {
			p.warm()
			for try := range 3 { // the next client may ask too late to see what a grant of a short lease was wrong by
				for i, part := range []time.Duration{10, 30, 90} { // some wait for a server only for a small part of the lease
					name := fmt.Sprintf("%s-%d-%d", p.name, try+1, i+1)
					mend := p.slow(topologies.Downstream, p.lease/part)
					h, err := p.ask(p.ctx, "a.1", name, mutex, p.lease)
					mend()
					if err == nil { // what is not granted is not believed
						p.believed(h, name, "")
						break
					}
				}
			}
			p.must(p.ctx.Err())
		}},
		// The connections are closed while the reply is under way. A driver that asks again finds its own key, whose lease
		// began with the first request.
		{"a grant whose first reply is lost is believed for no longer than the servers keep it", nil, overLinks, "", func(p *play) {
			p.warm()
			mend := p.hold(p.own)
			var h *undertest.Hold
			wait := p.begin(func() (err error) {
				h, err = p.ask(p.ctx, "a.1", p.name, mutex, p.lease)
				return err
			})
			p.pause(p.lease / 3) // so that the server has granted it, a while ago
			p.reset()
			mend()
			if wait() == nil { // else it does not ask again, or does not know: see the check of a lost reply
				p.believed(h, p.name, ", which had been asked for twice since the first reply was lost")
			}
		}},
		// The hold has to last for longer than its keys would without a watchdog.
		{"a hold without a lease is kept", func(p promises.Promises) bool { return p.Watchdog }, overLinks, "extend the key until the release, at least three times a lease; or do not promise watchdog", func(p *play) {
			before, sent := p.keys(), time.Now()
			h := p.grant("a.1", p.name, mutex, 0, free)
			if p.promises().Quorum && p.d.Topology().Name == topologies.Independent {
				p.hold(to(p.d.Topology().Of(topologies.Redis)[:1]))
			}
			end, says := p.end(sent, before), time.Duration(p.a.hello.WatchdogMS)*time.Millisecond
			if says > 0 && end > p.lease && (end > 2*says || says > 2*end) { // else the keys tell no more than the lease of the check
				p.fail("its hello says that the watchdog keeps a lease of %v alive, and the key of a hold without a lease lives for %v: give in \"watchdog_ms\" what the key is given", says, end.Round(time.Millisecond))
			}
			p.pause(min(end+time.Second, checkLimit-5*time.Second))
			p.refused("b.1", p.name, mutex, long, otherProcess)
			p.release(h)
		}},
	}
}

// manyClients ask at once in the check that one of them is granted the lock.
const manyClients = 16

// race has n clients of both processes ask for a lock at once, counts for each way how many were granted it, and joins the
// answers that are no refusal.
func (p *play) race(name string, n int, way func(i int) driver.Way) (granted map[driver.Way]int, open error) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	var answers []func() error
	for i := range n {
		client := fmt.Sprintf("%c.%d", "ab"[i%2], i)
		answers = append(answers, p.begin(func() error { return p.outcome(ctx, client, name, way(i), long) }))
	}
	granted = map[driver.Way]int{}
	for i, answer := range answers {
		switch err := answer(); {
		case err == nil:
			granted[way(i)]++
		case !errors.Is(err, lock.ErrNotAcquired):
			open = errors.Join(open, err)
		}
	}
	return granted, open
}

// believed fails where the next client is granted a lock before the end of a grant.
func (p *play) believed(h *undertest.Hold, name, which string) {
	p.next("b.1", name, mutex)
	if left := time.Until(h.Lease().Expires); left > 0 {
		p.fail("a client of another process was granted the lock %v before the end of the grant%s: count the lease from before the first request", left.Round(time.Millisecond), which)
	}
}
