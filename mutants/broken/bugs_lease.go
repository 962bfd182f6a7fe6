package broken

import (
	"context"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// SetThenExpire returns a lock that sets the key, and its expiry in a second
// step. If the client dies in between, the lock is held for ever. The Gate is
// between the two.
//
// It is the bug of SETNX and EXPIRE, from before SET took both; it was reported of
// redis-py (#554, #818), horizon (#1747) and remote_lock (#3).
func SetThenExpire(s Setup) *Lock {
	l := Correct(s)
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		const setOnly = `return redis.call('SETNX', KEYS[1], ARGV[1])`
		answer, acks, err := l.commit(ctx, setOnly, lease, lease.Length)
		if err != nil || answer == 0 {
			return 0, 0, err
		}
		l.pause(ctx)
		return 1, acks, l.rdb().PExpire(ctx, Key(lease.Name), lease.Length).Err()
	}
	return l
}

// NoExpiry returns a lock whose key never expires. If the holder dies, the lock
// is held for ever.
//
// Salvatore Sanfilippo, "Is Redlock safe?", 2016, calls it the reason for
// locks that release themselves.
func NoExpiry(s Setup) *Lock {
	l := Correct(s)
	l.ask = l.askWith(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return 1
end
return redis.call('SETNX', KEYS[1], ARGV[1])`)
	return l
}

// NoElapsedCheck returns a lock that does not ask, when it was granted, whether
// the lease is over already. Its holder works under a lease that ended on the
// way.
//
// It is the third step of the algorithm in the Redis documentation (as above)
// that is left out; it was reported of node-redlock (#369).
func NoElapsedCheck(s Setup) *Lock {
	l := Correct(s)
	l.late = func(lock.Lease) bool { return false }
	return l
}

// WallElapsed returns a lock that measures by the wall clock how long its grant
// took. If that clock is set back in the meantime, a grant that is over looks
// new.
//
// Martin Kleppmann, "How to do distributed locking", 2016, warns of clocks that
// jump; it was reported of redlock-rb (#50).
func WallElapsed(s Setup) *Lock {
	l := Correct(s)
	l.ends = func(sent instant, lease time.Duration) time.Time {
		elapsed := l.Clock.Wall().Sub(sent.wall)
		return time.Now().Add(l.Clock.Real(lease - drift(lease) - elapsed))
	}
	return l
}

// FullValidity returns a lock that tells its holder that the whole lease is left,
// however long the grant took. The holder believes in it for that much too long.
//
// The validity of the algorithm in the Redis documentation (as above) is the lease
// less the time that passed; node-redlock (#369) returned grants that had ended.
func FullValidity(s Setup) *Lock {
	l := Correct(s)
	l.ends = func(sent instant, lease time.Duration) time.Time {
		valid := l.Clock.Real(lease - drift(lease))
		if time.Since(sent.at) >= valid {
			return sent.at.Add(valid)
		}
		return time.Now().Add(valid)
	}
	return l
}

// NoDrift returns a lock whose holder uses up its lease to the end. If its clock
// loses time, the server ends the lease before.
//
// The Redis documentation (as above) takes a part of the lease off for the
// difference in the speed of clocks; Sanfilippo, "Is Redlock safe?", reckons
// with a tenth.
func NoDrift(s Setup) *Lock {
	l := Correct(s)
	l.ends = func(sent instant, lease time.Duration) time.Time { return sent.at.Add(l.Clock.Real(lease)) }
	return l
}

// RetryRecounted returns a lock that sends a request again when its answer was
// lost, takes a key with its own token for a grant, and counts the lease from the
// second request. The key has the end that the first one gave it: the holder
// believes in it for too long. The Gate is before the second request.
//
// It is the cure of [RetryRefused], half of it: node-redlock (#369) counts a key
// with its own token as a grant, which is right for who counts from the first
// request, or who renews the key.
func RetryRecounted(s Setup) *Lock {
	l := Correct(s)
	l.anew = true
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		const setOrFound = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return 1
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`
		return l.commit(ctx, setOrFound, lease, lease.Length)
	}
	return l
}
