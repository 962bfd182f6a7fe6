package lock

import (
	"cmp"
	"errors"
	"time"

	"github.com/lockchaos/lockchaos/lock/chance"
)

// Backoff is how long a [SpinMutex] pauses between two requests: at first Min,
// then twice as long each time up to Max, and each pause is drawn from between
// half of that and all of it, so that waiters don't ask in step. The zero value
// pauses for 1ms to 128ms, as Redisson's spin lock does.
type Backoff struct {
	// Min is the first pause, and Max the longest. Defaults: 1ms and 128ms, or
	// Min if that is longer.
	Min, Max time.Duration
}

// Validate joins everything that is wrong with the pauses.
func (b Backoff) Validate() error {
	var wrong mistakes
	wrong.note(b.Min < 0 || b.Max < 0, "pauses of %v to %v: give positive ones, or 0 for the default", b.Min, b.Max)
	wrong.note(b.Max > 0 && b.Min > b.Max, "pauses of %v to %v: give a Max that is not below Min", b.Min, b.Max)
	return errors.Join(wrong...)
}

func (b Backoff) withDefaults() Backoff {
	b.Max = cmp.Or(b.Max, max(b.Min, 128*time.Millisecond))
	b.Min = cmp.Or(b.Min, min(time.Millisecond, b.Max))
	return b
}

// A SpinMutex is a [Mutex] whose waiters ask again and again, with growing
// pauses, and subscribe to nothing. It suits very many names with short waits,
// and users who may not subscribe. It is the same lock as the Mutex of that name:
// only waiting differs. A waiter of the Mutex has a place in its queue, and so goes
// before those that ask again and again; about once a second the lock is left free to
// these for 50ms.
type SpinMutex struct{ Mutex }

// SpinMutex returns the spin mutex of that name, without asking the server. Bad
// pauses are reported when the mutex is used.
func (c *Client) SpinMutex(name string, b Backoff) *SpinMutex {
	k := *kinds.mutex
	k.invalid = b.Validate()
	b = b.withDefaults()
	k.spin, k.tickets = func(tries int) time.Duration { return chance.Pause(b.Min, b.Max, tries) }, false
	return &SpinMutex{Mutex{c.object(name, &k)}}
}
