package broken

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
)

// The steps of a lock in one key. ARGV[1] is the mark of the grant: its owner, and
// what is random for each call, so that a key that holds it was set by a copy of the same
// request; ARGV[2] is the lease in milliseconds.
const (
	setIfFree = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`
	expireIfMine = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	deleteIfMine = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
)

// setIfFreeFenced is setIfFree that answers with a number, greater for each
// grant, of KEYS[2].
const setIfFreeFenced = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(redis.call('GET', KEYS[2]))
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
return redis.call('INCR', KEYS[2])`

// The steps of a lock that its owner, ARGV[1], may acquire again: the key has how often, and
// the requests that were counted, ARGV[3], since a copy of one must not count.
const (
	countIfFree = `
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('HSET', KEYS[1], ARGV[3], 1) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return tonumber(redis.call('HGET', KEYS[1], ARGV[1]))`
	expireIfCounted = `return redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	countDown       = `
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('HSET', KEYS[1], ARGV[3] .. '/released', 1) == 1 and redis.call('HINCRBY', KEYS[1], ARGV[1], -1) <= 0 then
  redis.call('DEL', KEYS[1])
end
return 1`
)

// Correct returns the lock in one key without a bug. Its renewals wait for no replica.
func Correct(s Setup) *Lock {
	l := newLock(s)
	l.ask = l.askWith(setIfFree)
	l.extend = l.extendWith(expireIfMine)
	l.release = l.releaseWith(deleteIfMine)
	return l
}

// CorrectFenced returns the lock in one key whose grants have tokens. Each
// token is one more than that of the grant before, as far as that is known to
// the server; Setup.Acks makes replicas know it before the grant counts.
func CorrectFenced(s Setup) *Lock {
	l := Correct(s)
	l.ask = l.askWith(setIfFreeFenced)
	l.note = func(lease *lock.Lease, answer int64) { lease.Token = answer }
	return l
}

// CorrectReentrant returns the lock in one key that its owner may acquire again.
// A release whose answer was lost may have counted, until the lease ends.
func CorrectReentrant(s Setup) *Lock {
	l := newLock(s)
	l.mark = func(lease lock.Lease) string { return marked(lease.Owner) }
	l.note = func(lease *lock.Lease, answer int64) { lease.Holds = int(answer) }
	l.ask = l.askWith(countIfFree)
	l.extend = l.extendWith(expireIfCounted)
	l.release = l.releaseWith(countDown)
	return l
}

// Key is where a lock of that name is kept, on every server that has it: what
// tells whether a request arrived.
func Key(name string) string { return "broken:{" + name + "}" }

// TokenKey is where its newest token is, if it has some; in a lock with a queue,
// the ends of the leases.
func TokenKey(name string) string { return Key(name) + ":token" }

// errUnmarked says that a key does not say which owner it was granted to.
var errUnmarked = errors.New("the key does not say which owner holds the lock")

// marked is how the mark of a grant to an owner begins.
func marked(owner string) string { return url.PathEscape(owner) + "/" }

// HolderOn is the owner that holds the lock of that name, as a server has it; empty for
// none.
func HolderOn(ctx context.Context, server *redis.Client, name string) (string, error) {
	kind, err := server.Type(ctx, Key(name)).Result()
	var mark string
	switch {
	case err != nil:
		return "", err
	case kind == "hash": // whose fields are all of one owner
		var fields []string
		if fields, err = server.HKeys(ctx, Key(name)).Result(); len(fields) > 0 {
			mark = slices.Min(fields)
		}
		if len(fields) > 0 && !strings.HasPrefix(slices.Max(fields), mark) {
			return "", errUnmarked
		}
	case kind == "zset":
		mark, err = firstInQueue(ctx, server, name)
	case kind == "string":
		mark, err = server.Get(ctx, Key(name)).Result()
	}
	owner, _, found := strings.Cut(mark, "/")
	switch {
	case errors.Is(err, redis.Nil), err == nil && mark == "": // it has just ended, or none is there
		return "", nil
	case err != nil:
		return "", err
	case !found:
		return "", errUnmarked
	}
	return url.PathUnescape(owner)
}

// firstInQueue is the mark of the first client in the queue whose lease is not over;
// empty if there is none.
func firstInQueue(ctx context.Context, server *redis.Client, name string) (string, error) {
	now, err := server.Time(ctx).Result()
	if err != nil {
		return "", err
	}
	queue, err := server.ZRange(ctx, Key(name), 0, -1).Result()
	if err != nil {
		return "", err
	}
	for _, mark := range queue {
		ends, err := server.ZScore(ctx, TokenKey(name), mark).Result()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return "", err
		case int64(ends) > now.UnixMilli():
			return mark, nil
		}
	}
	return "", nil
}

// rdb is the deployment of a lock in one key.
func (l *Lock) rdb() redis.UniversalClient { return l.Servers[0] }

// eval is a script for a lease. Its text is sent each time, so that no request
// becomes two.
func (l *Lock) eval(ctx context.Context, to redis.Scripter, script string, lease lock.Lease, d time.Duration) *redis.Cmd {
	return to.Eval(ctx, script, []string{Key(lease.Name), TokenKey(lease.Name)}, l.mark(lease), d.Milliseconds(), lease.Request)
}

// askWith asks with a script, again where no answer came: the mark tells it
// from all other requests.
func (l *Lock) askWith(script string) func(context.Context, lock.Lease) (int64, int, error) {
	return func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		return l.insist(ctx, lease, func() (int64, int, error) { return l.commit(ctx, script, lease, lease.Length) })
	}
}

// insist asks again where no answer came.
func (l *Lock) insist(ctx context.Context, lease lock.Lease, ask func() (int64, int, error)) (answer int64, acks int, err error) {
	for range tries {
		if answer, acks, err = ask(); err == nil {
			break
		}
		l.doubt(lease)
		if !rest(ctx, retryPause) { // go-redis looks at the deadline, and may give up an instant before the context ends
			return answer, acks, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
	return answer, acks, err
}

// doubt notes that a copy of a request without an answer may still be carried out.
func (l *Lock) doubt(lease lock.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered[lease.Request] = true
}

// server is the one that has the lock: a client of a cluster would send WAIT, which has no key, to any.
func (l *Lock) server(ctx context.Context, lease lock.Lease) (*redis.Client, error) {
	switch to := l.rdb().(type) {
	case *redis.Client:
		return to, nil
	case *redis.ClusterClient:
		return to.MasterForKey(ctx, Key(lease.Name))
	default:
		return nil, fmt.Errorf("a %T says of no write how many replicas have it", to)
	}
}

// commit runs a script, and waits on the same connection until enough replicas
// have what it wrote.
func (l *Lock) commit(ctx context.Context, script string, lease lock.Lease, d time.Duration) (answer int64, acks int, err error) {
	if l.Acks == 0 {
		answer, err = l.eval(ctx, l.rdb(), script, lease, d).Int64()
		return answer, 0, err
	}
	server, err := l.server(ctx, lease)
	if err != nil {
		return 0, 0, err
	}
	pipe := server.Pipeline()
	asked := l.eval(ctx, pipe, script, lease, d)
	waited := pipe.Do(ctx, "WAIT", l.Acks, l.Timeout.Milliseconds())
	if _, err := pipe.Exec(ctx); err != nil {
		if cluster, is := l.rdb().(*redis.ClusterClient); is {
			cluster.ReloadState(ctx)
		}
		return 0, 0, err
	}
	if acks, err = waited.Int(); err != nil {
		return 0, 0, err
	}
	answer, err = asked.Int64()
	return answer, acks, err
}

func (l *Lock) extendWith(script string) func(context.Context, lock.Lease, time.Duration) (bool, error) {
	return func(ctx context.Context, lease lock.Lease, d time.Duration) (bool, error) {
		n, acks, err := l.commit(ctx, script, lease, d)
		if err == nil && n == 1 && acks < l.Acks { // a replica that is promoted would end the lease as it was
			err = fmt.Errorf("extended, and %d of %d replicas acknowledged it", acks, l.Acks)
		}
		return n == 1, err
	}
}

func (l *Lock) releaseWith(script string) func(context.Context, lock.Lease) (bool, error) {
	return func(ctx context.Context, lease lock.Lease) (bool, error) {
		n, err := l.eval(ctx, l.rdb(), script, lease, 0).Int()
		return n == 1, err
	}
}
