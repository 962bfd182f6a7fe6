package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxUnanswered is how many requests a server may leave unanswered until it is
// spared new ones.
const maxUnanswered = 64

// A voter is one of the servers of a [Redlock].
type voter struct {
	*Client
	addr string

	began    time.Time
	inFlight atomic.Int64 // requests, and their repetitions
	heard    atomic.Int64 // when it last answered, or had nothing to answer; since began
}

// begin counts a request, until done.
func (v *voter) begin() {
	if v.inFlight.Add(1) == 1 {
		v.hear(nil)
	}
}

func (v *voter) done() { v.inFlight.Add(-1) }

// hear notes that a request came back, if it came with an answer.
func (v *voter) hear(err error) {
	if err == nil || isRefusal(err) {
		v.heard.Store(int64(time.Since(v.began)))
	}
}

// silent reports whether so many requests wait without an answer that one more would only
// join them: whatever goes to a server that is stuck lasts until the timeouts of
// go-redis.
func (v *voter) silent(limit time.Duration) bool {
	return v.inFlight.Load() > maxUnanswered && time.Since(v.began)-time.Duration(v.heard.Load()) > limit
}

// each runs f for every server at once, in the background.
func (r *Redlock) each(f func(i int)) {
	for i, v := range r.voters {
		v.begin()
		r.background(func() {
			defer v.done()
			f(i)
		})
	}
}

// poll asks every server at once, with a context that ends after the limit or when
// all have answered, and hands what they say to hear, one after the other, until that has
// enough. A server that says nothing for that long is heard with an error. The
// requests for which the caller no longer waits go on.
//
// poll returns the context's error as soon as that ends, and [ErrClosed] as soon
// as abort is closed.
func poll[T any](
	ctx context.Context, r *Redlock, limit time.Duration, abort <-chan struct{},
	ask func(ctx context.Context, i int) (T, error), hear func(i int, said T, err error) (enough bool),
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-abort:
		return ErrClosed
	default:
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	silence := func() error { return fmt.Errorf("no answer within %v", limit) }
	enough := make(chan struct{})
	var mu sync.Mutex // guards what follows, and hear
	heard := make([]bool, len(r.voters))
	missing, asking, over := len(r.voters), len(r.voters), false
	tell := func(i int, said T, err error) {
		if over || heard[i] {
			return
		}
		heard[i] = true
		missing--
		if hear(i, said, err) || missing == 0 {
			over = true
			close(enough)
		}
	}
	// The goroutine that has an answer says so itself, so that none is woken for one that
	// doesn't decide.
	r.each(func(i int) {
		said, err := ask(asked, i)
		if err != nil && asked.Err() != nil {
			err = silence()
		}
		mu.Lock()
		defer mu.Unlock()
		tell(i, said, err)
		if asking--; asking == 0 {
			cancel()
		}
	})
	var gaveUp error
	select {
	case <-enough:
		r.awaitAll(ctx, asked)
		return nil
	case <-asked.Done():
	case <-ctx.Done():
		gaveUp = ctx.Err()
	case <-abort:
		gaveUp = ErrClosed
	}
	mu.Lock()
	defer mu.Unlock()
	if over {
		return nil
	}
	for i := 0; gaveUp == nil && i < len(heard); i++ {
		var nothing T
		tell(i, nothing, silence())
	}
	over = true
	return gaveUp
}

// awaitAll waits, once the Redlock is closed, until all have answered or the limit is over:
// the process may be about to end.
func (r *Redlock) awaitAll(ctx, asked context.Context) {
	select {
	case <-r.closing:
	default:
		return
	}
	select {
	case <-asked.Done():
	case <-ctx.Done():
	}
}

// A tally counts what an odd number of servers say.
type tally struct {
	voters  []*voter
	yes, no int
	others  []error // why the others said neither
	broken  int     // of those, that answered with an error
}

func (r *Redlock) tally() tally { return tally{voters: r.voters} }

// hear counts one more, and reports whether the outcome is known: a majority
// either way, or none, and whether a majority said anything.
func (t *tally) hear(i int, yes bool, err error) bool {
	switch {
	case err != nil:
		t.others = append(t.others, fmt.Errorf("%s: %w", t.voters[i].addr, err))
		if isRefusal(err) {
			t.broken++
		}
	case yes:
		t.yes++
	default:
		t.no++
	}
	said := t.yes + t.no
	left := len(t.voters) - said - len(t.others)
	tied := !t.most(t.yes+left) && !t.most(t.no+left)
	return t.won() || t.lost() || tied && (t.most(said) || !t.most(said+left))
}

func (t *tally) most(n int) bool { return n > len(t.voters)/2 }
func (t *tally) won() bool       { return t.most(t.yes) }
func (t *tally) lost() bool      { return t.most(t.no) }

// failure says why there is no majority either way.
func (t *tally) failure() error {
	err := fmt.Errorf("no majority of %d servers: %d said yes and %d no", len(t.voters), t.yes, t.no)
	return t.remarks(err)
}

// remarks adds what is wrong with servers to an error.
func (t *tally) remarks(err error) error {
	for _, why := range t.others {
		err = fmt.Errorf("%w; %w", err, why)
	}
	return err
}
