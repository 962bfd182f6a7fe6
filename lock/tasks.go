package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// closeLimit is how long the end waits for tasks: as long as two timeouts of go-redis, and well
// below the 30s in which Kubernetes ends a process.
const closeLimit = 10 * time.Second

// A taskGroup has the goroutines and the holds of a client, between its making and its end.
type taskGroup struct {
	closing chan struct{} // closed at the end

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup // also calls to acquire, which may be about to return a hold
	held   sync.Map       // each [*Hold] whose lease isn't over, also those that outlive it
}

// Close stops all renewals, ends every wait with [ErrClosed], and waits for the
// requests in flight, for 10s at most: those that a silent server has not answered by then end in
// the background. Holds that are left run out with their lease, or after 5s where they were handed over an
// instant before, and may still be released. A second call waits as well.
func (l *taskGroup) Close() {
	l.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = l.awaitTasks(ctx)
}

// Shutdown closes the client, as Close does, and then releases all that is still
// held of it, so that others needn't wait for the ends of leases: also the hold of an
// Acquire that is just returning. It returns what kept a
// release from being confirmed. If ctx ends before all requests are answered, it returns
// the context's error then, and they go on in the background.
func (l *taskGroup) Shutdown(ctx context.Context) error {
	l.close()
	err := l.awaitTasks(ctx) // after which every hold is known
	var mu sync.Mutex
	var releases sync.WaitGroup
	for h := range l.held.Range {
		releases.Go(func() {
			if e := h.(*Hold).Release(ctx); e != nil && !errors.Is(e, ErrNotHeld) { //nolint:forcetypeassert // see taskGroup
				mu.Lock()
				defer mu.Unlock()
				err = errors.Join(err, e)
			}
		})
	}
	releases.Wait()
	return err
}

// awaitTasks waits until all tasks have ended, or the context has.
func (l *taskGroup) awaitTasks(ctx context.Context) error {
	err := l.await(ctx, nil, func() error {
		l.tasks.Wait()
		return nil
	})
	return wrap(err, "await the requests in flight")
}

// close closes closing, after which there are no new tasks.
func (l *taskGroup) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
}

func (l *taskGroup) isClosing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// enter makes the caller's goroutine a task, until tasks.Done; false if it is too late.
func (l *taskGroup) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Add(1)
	}
	return !l.closed
}

// background runs f in a goroutine that Close awaits, unless Close was called before.
func (l *taskGroup) background(f func()) {
	awaited := l.enter()
	go func() {
		if awaited {
			defer l.tasks.Done()
		}
		f()
	}()
}

// retryForAWhile repeats f, with growing pauses, until a service has answered, and not that it can't
// do so at the moment, withdrawLimit is over or the client is closed. It outlives ctx.
func (l *taskGroup) retryForAWhile(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	for failures := 0; ; failures++ {
		err := f(ctx)
		definite := transport.IsRefusal(err) && !transport.IsPassing(err)
		if err == nil || definite || errors.Is(err, ErrNotHeld) || transport.Sleep(ctx, pauseAfter(failures), l.closing) != nil {
			return err
		}
	}
}

// pauseAfter is the pause after that many failures in a row and one more.
func pauseAfter(failures int) time.Duration { return 10 * time.Millisecond << min(failures, 6) }

// send sends a call for a caller, and returns the reply. Close awaits it.
func (c *Client) send(ctx context.Context, s transport.Call) transport.Reply {
	if c.enter() {
		defer c.tasks.Done()
	}
	return c.transport.Run(ctx, s)
}

// await runs f, which Close awaits, in a goroutine of its own, and returns what it returns; or the context's error soon after
// that ends, or [ErrClosed] soon after abort is closed.
func (l *taskGroup) await(ctx context.Context, abort <-chan struct{}, f func() error) error {
	answer := make(chan error, 1)
	l.background(func() { answer <- f() })
	err, came, gone := transport.Await(ctx, answer, Forever, abort)
	if !came {
		return gone
	}
	return err
}

// A turn is what one goroutine has at a time, as a mutex that is waited for no longer than a context lasts.
type turn chan struct{}

// take waits for the turn, which lasts until give. It is given also where ctx has ended, if no other has it.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }
