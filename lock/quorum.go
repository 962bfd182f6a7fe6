package lock

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// maxUnanswered is how many requests a server may leave unanswered until it is
// spared new ones.
const maxUnanswered = 64

// A node is one of the servers of a [Redlock].
type node struct {
	*Client
	addr string

	began     time.Time
	inFlight  atomic.Int64 // requests, and their repetitions
	lastReply atomic.Int64 // when it last answered, or had nothing to answer; since began
}

// run sends a call, which counts until it ends.
func (v *node) run(ctx context.Context, s transport.Call) transport.Reply {
	if v.inFlight.Add(1) == 1 {
		v.noteReply(nil)
	}
	defer v.inFlight.Add(-1)
	r := v.transport.Run(ctx, s, nil)
	v.noteReply(r.Err)
	return r
}

// noteReply notes that a request ended, if it ended with an answer.
func (v *node) noteReply(err error) {
	if err == nil || transport.IsRefusal(err) {
		v.lastReply.Store(int64(time.Since(v.began)))
	}
}

// isUnresponsive reports whether so many requests wait without an answer that one more would only
// join them: whatever goes to a server that is stuck lasts until the timeouts of
// go-redis.
func (v *node) isUnresponsive(limit time.Duration) bool {
	return v.inFlight.Load() > maxUnanswered && time.Since(v.began)-time.Duration(v.lastReply.Load()) > limit
}

// askAll asks every server at once, with a context that ends after the limit or when
// all have answered, and passes the answers to hear, one after the other, until that returns
// true. A server that does not answer in that time is heard with an error. The
// requests for which the caller no longer waits go on.
//
// askAll returns the context's error as soon as that ends, and [ErrClosed] as soon
// as abort is closed.
func (r *Redlock) askAll(
	ctx context.Context, limit time.Duration, abort <-chan struct{},
	ask func(ctx context.Context, i int) (bool, error), hear func(i int, yes bool, err error) (enough bool),
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-abort:
		return ErrClosed
	default:
	}
	type reply struct {
		i   int
		yes bool
		err error
	}
	silence := fmt.Errorf("no answer within %v", limit)
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	replies := make(chan reply, len(r.nodes)) // also those that are no longer waited for
	var asking atomic.Int64
	asking.Add(int64(len(r.nodes)))
	answered := func() {
		if asking.Add(-1) == 0 {
			cancel()
		}
	}
	for i := range r.nodes {
		r.background(func() {
			yes, err := ask(asked, i)
			if err != nil && asked.Err() != nil {
				err = silence
			}
			replies <- reply{i, yes, err}
			answered()
		})
	}
	heard := make([]bool, len(r.nodes))
	for over := false; slices.Contains(heard, false); {
		var said reply
		select {
		case said = <-replies:
		default:
			if over { // and no other has answered in time
				said.i, said.err = slices.Index(heard, false), silence
				break
			}
			select {
			case said = <-replies:
			case <-asked.Done():
				over = true
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-abort:
				return ErrClosed
			}
		}
		heard[said.i] = true
		if hear(said.i, said.yes, said.err) {
			break
		}
	}
	if r.isClosing() { // the process may be about to end
		select {
		case <-asked.Done():
		case <-ctx.Done():
		}
	}
	return nil
}

// A quorumCount counts the answers of an odd number of servers.
type quorumCount struct {
	nodes   []*node
	yes, no int
	errs    []error // why the others said neither
	refused int     // of those, that answered with an error
}

func (r *Redlock) newCount() quorumCount { return quorumCount{nodes: r.nodes} }

// count counts one more, and reports whether the outcome is known: a majority
// either way, or none, and whether a majority said anything.
func (t *quorumCount) count(i int, yes bool, err error) bool {
	switch {
	case err != nil:
		t.errs = append(t.errs, fmt.Errorf("%s: %w", t.nodes[i].addr, err))
		if transport.IsRefusal(err) {
			t.refused++
		}
	case yes:
		t.yes++
	default:
		t.no++
	}
	said := t.yes + t.no
	left := len(t.nodes) - said - len(t.errs)
	tied := !t.isMajority(t.yes+left) && !t.isMajority(t.no+left)
	return t.won() || t.lost() || tied && (t.isMajority(said) || !t.isMajority(said+left))
}

func (t *quorumCount) isMajority(n int) bool { return n > len(t.nodes)/2 }
func (t *quorumCount) won() bool             { return t.isMajority(t.yes) }
func (t *quorumCount) lost() bool            { return t.isMajority(t.no) }

// failure says why there is no majority either way.
func (t *quorumCount) failure() error {
	return t.withErrors(fmt.Errorf("no majority of %d servers: %d said yes and %d no", len(t.nodes), t.yes, t.no))
}

// withErrors adds what is wrong with servers to an error.
func (t *quorumCount) withErrors(err error) error {
	for _, why := range t.errs {
		err = fmt.Errorf("%w; %w", err, why)
	}
	return err
}
