package broken

import (
	"context"

	"github.com/lockchaos/lockchaos/lock"
)

// PlainDelete returns a lock whose release deletes the key without looking whose
// it is. A holder that releases after its lease ended takes the lock away from
// the next holder, and a third one gets in.
//
// It is the bug of the first locks that people write with SETNX and DEL; the
// Redis documentation warns of it under "Correct implementation with a single
// instance", https://redis.io/docs/latest/develop/use/patterns/distributed-locks/.
func PlainDelete(s Setup) *Lock {
	l := Correct(s)
	l.release = l.releaseWith(`return redis.call('DEL', KEYS[1])`)
	return l
}

// GetThenDelete returns a lock whose release looks whose the key is, and deletes
// it in a second step. If the lease ends in between, it deletes the key of the
// next holder. The Gate is between the two.
//
// The Redis documentation (as above) gives it as the reason for a script; it was
// reported of leshan (#837).
func GetThenDelete(s Setup) *Lock {
	l := Correct(s)
	l.release = func(ctx context.Context, lease lock.Lease) (bool, error) {
		const ifMine = `return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0`
		mine, err := l.releaseWith(ifMine)(ctx, lease)
		if err != nil || !mine {
			return false, err
		}
		l.pause(ctx)
		return true, l.rdb().Del(ctx, Key(lease.Name)).Err()
	}
	return l
}

// ConstantToken returns a lock whose callers all write the same token. Each takes
// another's lock for its own: every request is granted, and a release or an
// extension works on any owner's hold.
//
// It is the bug of locks that write "1", or the name of the service, and then
// compare; it was reported of redis-py (#415), twenty (#25661), nexspence (#223)
// and reinhardt (#740).
func ConstantToken(s Setup) *Lock {
	l := Correct(s)
	l.mark = func(lock.Lease) string { return "held" }
	return l
}

// RetryRefused returns a lock that sends a request again when its answer was
// lost, and takes the refusal of the second one for an answer. The first one has
// set the key: no client holds the lock until the lease is over.
//
// It is the bug of plain SET NX behind a client library that retries by itself,
// as most do; node-redlock (#369) counts a key with its own token as a grant.
func RetryRefused(s Setup) *Lock {
	l := Correct(s)
	l.certain = true
	l.ask = l.askWith(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`)
	return l
}

// ReadReplica returns a re-entrant lock that asks a replica whether the caller
// holds the lock already, and if so only counts on the master. A replica that lags
// says so of a lock that was released, and of which another client is the holder.
// Setup.Other reads from replicas.
//
// It is the bug of clients that are set to prefer replicas for what only reads,
// the locks' scripts included.
func ReadReplica(s Setup) *Lock {
	l := CorrectReentrant(s)
	ask := l.ask
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		mine, err := l.Other.HExists(ctx, Key(lease.Name), l.mark(lease)).Result()
		if err != nil || !mine {
			return ask(ctx, lease)
		}
		const countAnyway = `
return redis.call('HSET', KEYS[1], ARGV[3], 1) == 1 and redis.call('HINCRBY', KEYS[1], ARGV[1], 1) or tonumber(redis.call('HGET', KEYS[1], ARGV[1]))`
		return l.commit(ctx, countAnyway, lease, lease.Length)
	}
	return l
}
