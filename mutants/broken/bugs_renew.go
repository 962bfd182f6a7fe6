package broken

import (
	"context"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// RenewAny returns a lock that renews the key without looking whose it is. A
// renewal that arrives late prolongs the hold of another client, and both believe
// that they hold.
//
// It was reported of redlock-rb (#36); redsync (#61) compared, and read the result
// wrong.
func RenewAny(s Setup) *Lock {
	l := Correct(s)
	l.extend = l.extendWith(`return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)
	return l
}

// RenewRecreates returns a lock that sets the key again where a renewal finds
// none. Its holder believes that it held all the time, and another client has held
// the lock in between.
//
// It is the bug of a renewal by SET; redsync (#147, #149) made it a choice of the
// caller, for a quorum that lost a server.
func RenewRecreates(s Setup) *Lock {
	l := Correct(s)
	l.extend = l.extendWith(`
local mark = redis.call('GET', KEYS[1])
if mark and mark ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)
	return l
}

// RenewUnchecked returns a lock that takes any answer to a renewal for a yes. Its
// holder goes on when another client holds the lock.
//
// It was reported of redsync (#61), where the result was compared with a value of
// another type.
func RenewUnchecked(s Setup) *Lock {
	l := Correct(s)
	extend := l.extend
	l.extend = func(ctx context.Context, lease lock.Lease, d time.Duration) (bool, error) {
		_, err := extend(ctx, lease, d)
		return true, err
	}
	return l
}

// WatchdogOutlives returns a lock whose watchdog does not stop at the release. If
// the release is lost on the way, the lock is held for ever, and no client uses it.
//
// It was reported of Redisson (#7272), where a renewal and the end of the renewals
// could pass each other.
func WatchdogOutlives(s Setup) *Lock {
	l := Correct(s)
	l.watch = l.outlive
	return l
}
