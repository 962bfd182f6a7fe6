package broken

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// A quorum is a lock on several servers that know nothing of each other.
type quorum struct {
	*Lock

	majority int
	// swept says which servers a failed request is taken back from, given those
	// that answered that they had granted it. Nil: all.
	swept func(granted []bool) []bool
}

// CorrectQuorum returns the lock that is held by the client that has the key on more
// than half of Setup.Servers, which know nothing of each other, without a bug: the
// Redlock of the Redis documentation. A request without a majority is taken back
// from every server, whatever it answered.
func CorrectQuorum(s Setup) *Lock { return newQuorum(s).Lock }

func newQuorum(s Setup) *quorum {
	q := &quorum{Lock: newLock(s), majority: len(s.Servers)/2 + 1}
	q.swept = func([]bool) []bool { return nil }
	q.ask = func(ctx context.Context, lease lock.Lease) (int64, int, error) {
		granted, lost := q.vote(ctx, setIfFree, lease, lease.Length, nil)
		if count(granted) >= q.majority {
			return 1, q.Acks, nil
		}
		if lost != nil {
			q.doubt(lease)
		}
		q.pause(ctx)
		if _, unswept := q.vote(context.WithoutCancel(ctx), deleteIfMine, lease, 0, q.swept(granted)); unswept != nil {
			return 0, 0, unswept
		}
		return 0, q.Acks, ctx.Err()
	}
	q.extend = func(ctx context.Context, lease lock.Lease, d time.Duration) (bool, error) {
		return q.decide(q.vote(ctx, expireIfMine, lease, d, nil))
	}
	q.release = func(ctx context.Context, lease lock.Lease) (bool, error) {
		within := time.Now().Before(lease.Expires) // else votes end by themselves, each at its time
		done, err := q.vote(ctx, deleteIfMine, lease, 0, nil)
		if n := count(done); err == nil && within && n > 0 && n < q.majority {
			// The hold had ended before, or this release ended it, and the others answered when the lease was over.
			err = fmt.Errorf("%d of %d servers ended a vote: the release may have ended the hold", n, len(done))
		}
		return q.decide(done, err)
	}
	return q
}

// decide reports whether the majority did what it was asked to. Where those that
// gave no answer could turn it, that is the error.
func (q *quorum) decide(done []bool, err error) (bool, error) {
	if count(done) >= q.majority {
		return true, nil
	}
	return false, err
}

// vote runs a script on servers, all if ask is nil, and returns which of them did
// what it says, and why others gave no answer.
func (q *quorum) vote(ctx context.Context, script string, lease lock.Lease, d time.Duration, ask []bool) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	done := make([]bool, len(q.Servers))
	errs := make([]error, len(q.Servers))
	var all sync.WaitGroup
	for i, rdb := range q.Servers {
		if ask != nil && !ask[i] {
			continue
		}
		all.Go(func() {
			n, err := q.eval(ctx, rdb, script, lease, d).Int()
			done[i], errs[i] = n == 1, err
		})
	}
	all.Wait()
	return done, cmp.Or(errs...)
}

func count(votes []bool) int {
	n := 0
	for _, v := range votes {
		if v {
			n++
		}
	}
	return n
}
