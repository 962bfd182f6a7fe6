package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Shutdown closes the client, as [Client.Close] does, and then releases all that is still
// held of it, so that others needn't wait for the ends of leases: also the hold of an
// Acquire that is just returning. It returns what kept a
// release from being confirmed. If ctx ends before all requests are answered, it returns
// the context's error then, and they go on in the background.
func (c *Client) Shutdown(ctx context.Context) error { return c.shutdown(ctx) }

// Shutdown closes the Redlock, as [Redlock.Close] does, and then releases all that is
// still held of it; see [Client.Shutdown].
func (r *Redlock) Shutdown(ctx context.Context) error { return r.shutdown(ctx) }

// maxReleases is how many holds are released at a time.
const maxReleases = 16

func (l *taskGroup) shutdown(ctx context.Context) error {
	l.close()
	var mu sync.Mutex
	var errs []error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.tasks.Wait()
		l.calls.Wait() // after which every hold is known
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("await the requests in flight: %w", ctx.Err()))
	}
	var releases sync.WaitGroup
	room := make(chan struct{}, maxReleases)
	for _, h := range l.held() {
		room <- struct{}{}
		releases.Go(func() {
			defer func() { <-room }()
			if err := h.Release(ctx); err != nil && !errors.Is(err, ErrNotHeld) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	releases.Wait()
	return errors.Join(errs...)
}
