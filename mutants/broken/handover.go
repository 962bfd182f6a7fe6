package broken

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
)

// The steps of a lock that is handed over. KEYS[1] is the lock, and KEYS[2] its
// waiters by the time at which they came, which is the ticket of each, as "mark lease
// channel". A message of a grant names the mark and the ticket. ARGV[1] is
// the mark of the caller, ARGV[2] its lease in milliseconds, and ARGV[3] the channel
// on which it hears of a grant, or "" if it does not wait.
const (
	askInLine = `
local holder = redis.call('GET', KEYS[1])
if not holder or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  redis.call('ZREM', KEYS[2], table.concat(ARGV, ' '))
  return {1, ''}
end
local ticket = ''
if ARGV[3] ~= '' then
  local time, waiter = redis.call('TIME'), table.concat(ARGV, ' ')
  redis.call('ZADD', KEYS[2], 'NX', time[1] * 1000000 + time[2], waiter)
  redis.call('PEXPIRE', KEYS[2], 60000)
  ticket = redis.call('ZSCORE', KEYS[2], waiter)
end
return {-redis.call('PTTL', KEYS[1]), ticket}`

	// handOn is a release. Its last line but one stands for [subscribed] or [heard].
	handOn = `
redis.call('ZREM', KEYS[2], table.concat(ARGV, ' '))
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
while true do
  local first = redis.call('ZPOPMIN', KEYS[2])
  local waiter, ticket = first[1], first[2]
  if not waiter then
    return 1
  end
  local mark, lease, channel = string.match(waiter, '^(%S+) (%d+) (%S+)$')
  -- hand it over
end`
	subscribed = `if redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
    redis.call('SET', KEYS[1], mark, 'PX', lease)
    redis.call('PUBLISH', channel, mark .. ' ' .. ticket)
    return 1
  end`
	heard = `if redis.call('PUBLISH', channel, mark .. ' ' .. ticket) > 0 then
    redis.call('SET', KEYS[1], mark, 'PX', lease)
    return 1
  end`
)

// handedPause is how long, at most, a waiter that hears of its grant waits before it
// asks again. It asks when the lease of the holder runs out.
const handedPause = 3 * time.Second

// WaitersKey is where the waiters for a lock of that name are that is handed over.
func WaitersKey(name string) string { return Key(name) + ":waiters" }

// CorrectHandOver returns the lock in one key that a release hands over to the
// first waiter: the server grants it and tells the waiter by a message, without
// being asked. It grants only to a waiter that is subscribed on this very server.
//
// It is a small copy of what [lock.Mutex] does.
func CorrectHandOver(s Setup) *Lock { return handOver(s, subscribed) }

// GrantedByMessage returns a lock that is handed over by a message, and granted if
// the server counts a receiver of it. A message is replicated: a waiter that is
// subscribed on a replica takes it for a grant that the master did not make, since
// it counted no receiver. After a planned failover of servers that are reached by
// a name, the subscriptions of all clients are such.
//
// It is what [lock.Mutex] did before its first release.
func GrantedByMessage(s Setup) *Lock { return handOver(s, heard) }

func handOver(s Setup, whether string) *Lock {
	l := newLock(s)
	l.inbox = &inbox{rdb: l.rdb(), channel: Key("inbox") + rand.Text(), subscribing: make(chan struct{}, 1), waiting: map[string]*waiter{}}
	release := strings.Replace(handOn, "-- hand it over", whether, 1)
	run := func(ctx context.Context, script string, lease lock.Lease) *redis.Cmd {
		return l.rdb().Eval(ctx, script, []string{Key(lease.Name), WaitersKey(lease.Name)},
			l.mark(lease), lease.Length.Milliseconds(), l.inbox.of(lease))
	}
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		return l.insist(ctx, lease, func() (int64, int, error) {
			answer, err := run(ctx, askInLine, lease).Slice()
			if err != nil {
				return 0, 0, err
			}
			said, known := answer[0].(int64)
			ticket, also := answer[1].(string)
			if !known || !also {
				return 0, 0, fmt.Errorf("unexpected reply %v", answer)
			}
			l.inbox.queued(lease, ticket)
			return said, 0, nil
		})
	}
	l.extend = l.extendWith(expireIfMine)
	l.release = func(ctx context.Context, lease lock.Lease) (bool, error) {
		n, err := run(ctx, release, lease).Int64()
		return n == 1, err
	}
	l.leave = func(ctx context.Context, lease lock.Lease) error {
		defer l.inbox.leave(lease)
		return l.leaveByRelease(ctx, lease)
	}
	return l
}

// An inbox is the channel on which a lock hears of grants to its callers.
type inbox struct {
	rdb     redis.UniversalClient
	channel string

	subscribing chan struct{} // has room for the caller that subscribes

	mu      sync.Mutex
	sub     *redis.PubSub // nil before the first caller waits
	heard   sync.WaitGroup
	waiting map[string]*waiter // by mark
}

// of is the channel on which a caller hears; empty for one that does not wait, or
// waits no longer.
func (i *inbox) of(lease lock.Lease) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.waiting[lease.Request] == nil {
		return ""
	}
	return i.channel
}

// enqueue subscribes, and notifies a caller of its grant.
func (i *inbox) enqueue(ctx context.Context, lease lock.Lease) (*waiter, error) {
	if err := i.subscribe(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	p := &waiter{lease: lease, passed: make(chan lock.Lease, 1)}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting[lease.Request] = p
	return p, nil
}

// subscribe subscribes once. Callers wait for one that is at it by a channel: a mutex that is
// held while a request is under way would have the time of a simulation stand still.
func (i *inbox) subscribe(ctx context.Context) error {
	select {
	case i.subscribing <- struct{}{}:
		defer func() { <-i.subscribing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	i.mu.Lock()
	done := i.sub != nil
	i.mu.Unlock()
	if done {
		return nil
	}
	sub := i.rdb.Subscribe(ctx, i.channel)
	if _, err := sub.Receive(ctx); err != nil {
		_ = sub.Close()
		return err
	}
	i.mu.Lock()
	i.sub = sub
	i.mu.Unlock()
	i.heard.Go(func() {
		for m := range sub.Channel() {
			mark, ticket, _ := strings.Cut(m.Payload, " ")
			i.hear(mark, ticket)
		}
	})
	return nil
}

// queued notes the ticket of a caller that was refused.
func (i *inbox) queued(lease lock.Lease, ticket string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.waiting[lease.Request]; p != nil {
		p.ticket = ticket
	}
}

// fresh reports whether a caller heard of a grant for the ticket that it had at the latest refusal.
// A message may arrive after that refusal and be of an earlier grant, which is over: the two have
// connections of their own.
func (i *inbox) fresh(p *waiter) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return p.ticket != "" && p.heard == p.ticket
}

// hear tells a caller of its grant.
func (i *inbox) hear(mark, ticket string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.waiting[mark]; p != nil {
		p.heard = ticket
		select {
		case p.passed <- p.lease:
		default: // it was told
		}
	}
}

// leave has a caller hear no more.
func (i *inbox) leave(lease lock.Lease) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiting, lease.Request)
}

// close ends the subscription.
func (i *inbox) close() {
	i.mu.Lock()
	sub := i.sub
	i.mu.Unlock()
	if sub != nil {
		_ = sub.Close()
		i.heard.Wait()
	}
}
