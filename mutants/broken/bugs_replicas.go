package broken

import (
	"context"

	"github.com/lockchaos/lockchaos/lock"
)

// WaitElsewhere returns a lock that asks on another connection whether replicas
// have its grant. There, Redis answers for what was written on that connection,
// which is nothing.
//
// It is the bug of WAIT through a pool of connections; redis/redis #12439 has it in
// the documentation of WAIT.
func WaitElsewhere(s Setup) *Lock {
	l := Correct(s)
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		return l.insist(ctx, lease, func() (int64, int, error) {
			server, err := l.server(ctx, lease)
			if err != nil {
				return 0, 0, err
			}
			conn := server.Conn() // which no other request has until it is given back
			defer conn.Close()
			answer, err := l.eval(ctx, conn, setIfFree, lease, lease.Length).Int64()
			if err != nil || answer == 0 {
				return 0, 0, err
			}
			acks, err := server.Do(ctx, "WAIT", l.Acks, l.Timeout.Milliseconds()).Int()
			return answer, acks, err
		})
	}
	return l
}

// WaitIgnored returns a lock that waits for replicas, and does not look how many
// answered. A grant that only the master has counts.
//
// WAIT never fails, and says in its result how far it came; the documentation of
// WAIT says what that is good for.
func WaitIgnored(s Setup) *Lock {
	l := Correct(s)
	ask := l.ask
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		answer, _, err := ask(ctx, lease)
		return answer, l.Acks, err
	}
	return l
}

// WaitLeftover returns a lock that refuses a grant of which too few replicas know,
// and leaves the key. No client holds the lock until the lease is over.
//
// It was reported of coredis (#86): WAIT takes nothing back.
func WaitLeftover(s Setup) *Lock {
	l := Correct(s)
	l.undo = func(context.Context, lock.Lease) error { return nil }
	return l
}

// FenceUnreplicated returns a lock with tokens whose grants wait for replicas, and
// whose counter does not: a replica that is promoted gives a token again. The
// Gate is between the grant and the count.
//
// Kleppmann, "How to do distributed locking", warns of a counter on a server
// that may fail.
func FenceUnreplicated(s Setup) *Lock {
	l := CorrectFenced(s)
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		return l.insist(ctx, lease, func() (int64, int, error) {
			answer, acks, err := l.commit(ctx, setIfFree, lease, lease.Length)
			if err != nil || answer == 0 || acks < l.Acks {
				return answer, acks, err
			}
			l.pause(ctx)
			token, err := l.rdb().Incr(ctx, TokenKey(lease.Name)).Result()
			return token, acks, err
		})
	}
	return l
}

// FenceWallClock returns a lock whose tokens are the time of the client's wall
// clock, in milliseconds. Two clients whose clocks differ give tokens that go
// back.
//
// Kleppmann, "How to do distributed locking", asks for a number that grows with
// every grant, and shows why time is none.
func FenceWallClock(s Setup) *Lock {
	l := CorrectFenced(s)
	l.note = func(lease *lock.Lease, _ int64) { lease.Token = l.Clock.Wall().UnixMilli() }
	return l
}

// ReentryUnreplicated returns a re-entrant lock whose first grant waits for
// replicas, and whose inner ones do not. A replica that is promoted has counted
// fewer, so that the release of an inner grant frees the lock.
//
// It is the bug of locks that take a re-entry for a matter of their own, and not
// for a grant.
func ReentryUnreplicated(s Setup) *Lock {
	l := CorrectReentrant(s)
	ask := l.ask
	l.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		answer, acks, err := ask(ctx, lease)
		if answer > 1 {
			acks = l.Acks
		}
		return answer, acks, err
	}
	return l
}
