package broken

import (
	"context"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// The steps of a lock with a queue. KEYS[1] has the place of each caller, and
// KEYS[2] when its lease ends, in milliseconds of the server's clock. ARGV[1] is the
// mark of the caller, and ARGV[2] its lease. The first is the caller ahead of all others whose
// lease is not over.
const (
	queueNow = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0)
`
	lineUp = queueNow + `
if ends == 0 then
  local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  redis.call('ZADD', KEYS[1], (tonumber(last[2]) or 0) + 1, ARGV[1])
  redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
end
for _, first in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if first == ARGV[1] then
    return 1
  end
  if tonumber(redis.call('ZSCORE', KEYS[2], first)) > now then
    return 0
  end
  redis.call('ZREM', KEYS[1], first)
  redis.call('ZREM', KEYS[2], first)
end`
	stayIfInTime = queueNow + `
if ends <= now then
  return 0
end
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
return 1`
	stepBack = queueNow + `
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return ends > now and 1 or 0`
)

// CorrectQueue returns the lock with a queue without a bug. Callers line up, each
// with a lease from then on, and the first one holds the lock. One whose lease is
// over when its turn comes is refused, and one that waits no longer leaves.
//
// It is the lock of etcd (client/v3/concurrency), whose callers each have a lease
// before they ask.
func CorrectQueue(s Setup) *Lock {
	l := newLock(s)
	l.early = true
	l.ask = l.askWith(lineUp)
	l.extend = l.extendWith(stayIfInTime)
	l.release = l.releaseWith(stepBack)
	l.leave = l.leaveByRelease
	return l
}

// leaveByRelease releases what was asked for, until that is answered.
func (l *Lock) leaveByRelease(ctx context.Context, lease lock.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, max(leaveTimeout, l.Timeout))
	defer cancel()
	_, _, err := l.insist(ctx, lease, func() (int64, int, error) {
		_, err := l.release(ctx, lease)
		return 0, 0, err
	})
	return err
}

// leaveTimeout is how long a caller tries to leave the queue, at least.
const leaveTimeout = 2 * time.Second

// StaleWaiter returns a lock with a queue that tells a caller whose turn comes that
// it holds the lock, even if its lease ran out while it waited. Others go past it,
// and it works beside them.
//
// It was reported of etcd (#9921, #10811, #11456).
func StaleWaiter(s Setup) *Lock {
	l := CorrectQueue(s)
	l.late = func(lock.Lease) bool { return false }
	return l
}

// AbandonedWait returns a lock with a queue whose callers stay in it when they wait
// no longer. When the turn of one comes, the lock is held for a caller that has left, and
// no other is granted it until that lease is over.
//
// Jepsen's test of etcd (jepsen-io/etcd, lock.clj) revokes the lease of each request
// that failed, so as not to run into it.
func AbandonedWait(s Setup) *Lock {
	l := CorrectQueue(s)
	l.leave = func(context.Context, lock.Lease) error { return nil }
	return l
}
