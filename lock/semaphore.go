package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// Definite refusals of semaphores and latches: what was asked for did not happen.
var (
	// ErrNotSet says that it was not set how many permits a semaphore has, or
	// how far a latch counts, or that it was deleted or lost since.
	ErrNotSet = errors.New("semaphore or latch not set")
	// ErrTooMany says that a semaphore has fewer permits than were asked for, so
	// that waiting for them makes no sense.
	ErrTooMany = errors.New("too many permits")
)

// maxPermits is the most that a semaphore can have, or a latch can count.
const maxPermits = math.MaxInt32

// permitsKind is that of a request for n permits, or for all that are there if n is 0;
// for a time or for good.
func permitsKind(n int, leased bool) *kind {
	life := countedMarkLife.Milliseconds()
	if leased {
		life = markLife.Milliseconds()
	}
	return &kind{
		acquire: func(g *grant) transport.Call {
			var lease int64
			if leased {
				lease = milliseconds(g.lease)
			}
			return on("semaphore_acquire", g.keys.semaphore(g.request),
				g.request, n, lease, flag(g.waits), milliseconds(g.client.config.Heartbeat), life, g.keys.channel)
		},
		extend: func(g *grant, d time.Duration) transport.Call {
			return on("semaphore_extend", g.keys.semaphore(g.request), g.request, n, milliseconds(d))
		},
		release: func(g *grant, withdraw bool) transport.Call {
			return on("semaphore_release", g.keys.semaphore(g.request),
				g.request, n, life, g.keys.channel, flag(withdraw))
		},
		queued:     true,
		hasNoLease: !leased,
		invalid:    atLeastOne(n, "permits"),
	}
}

// semaphore lists the keys of a semaphore, and the mark of a request.
func (k keys) semaphore(request string) []string {
	return []string{k.lock, k.of("grants"), k.of("queue"), k.of("alive"), k.mark(request)}
}

// atLeastOne is what is wrong with a number of permits, or of the counts of a latch.
func atLeastOne(n int, what string) error {
	if n < 1 || n > maxPermits {
		return fmt.Errorf("%d %s: give at least 1 and at most %d", n, what, maxPermits)
	}
	return nil
}

// A Semaphore has permits, which clients take and give back; who waits for one is
// served first come, first served. That is also so for a request for many
// permits: it isn't starved by those for few, which wait behind it. Who stops
// waiting without saying so, because its process or its network broke, holds the
// others up for a [Config.Heartbeat].
//
// A permit is taken for a time, with Lease, or for good, with Acquire. What was leased is
// a [Hold], which is extended, watched and lost as that of a lock, so a process that dies
// leaves its permits to others. Leases run on the server's clock. They limit how many work at a
// time as long as they look at [Lease.Expires]; see the package comment for what a failover
// means. What was taken for good has no owner and no end: if a process dies, it stays
// taken until another process gives it back. For the same reason there are no events of it.
//
// How many permits there are has to be said first, with TrySetPermits, and stays
// on the server until Delete. Until then everything else returns [ErrNotSet];
// so does a semaphore that the server lost, rather than to let in too many or to
// wait for ever. What is taken for good or given back is remembered for two minutes, or for five, in a
// small key each, so that a lost reply makes nothing count twice.
type Semaphore struct{ object }

// Semaphore returns the semaphore of that name, without asking the server. It
// has nothing to do with a [Mutex] of that name.
func (c *Client) Semaphore(name string) *Semaphore {
	return &Semaphore{c.objectIn("semaphore", name, &kind{})}
}

// TrySetPermits says how many permits the semaphore has, 0 or more, unless that
// was said already: then it changes nothing and returns false. Each user of the
// semaphore may call it first.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	set, err := s.resize(ctx, "try", n)
	return set == 1, wrap(err, "set semaphore %q to %d permits", s.name, n)
}

// SetPermits says how many permits the semaphore has, 0 or more. Permits that
// are taken stay so: if they are more than n, none is available until enough of
// them are back. Who waits for more than n gets [ErrTooMany].
func (s *Semaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.resize(ctx, "set", n)
	return wrap(err, "set semaphore %q to %d permits", s.name, n)
}

// AddPermits gives the semaphore n permits more, or -n less, as SetPermits does.
// It is refused if fewer than 0 would be left, and with [ErrNotSet].
func (s *Semaphore) AddPermits(ctx context.Context, n int) error {
	_, err := s.resize(ctx, "add", n)
	return wrap(err, "add %d permits to semaphore %q", n, s.name)
}

func (s *Semaphore) resize(ctx context.Context, how string, n int) (int64, error) {
	if n > maxPermits || n < -maxPermits || n < 0 && how != "add" {
		return 0, fmt.Errorf("%d permits: give at least 0 and at most %d", n, maxPermits)
	}
	return s.change(ctx, "semaphore_size", s.keys.semaphore(rand.Text()), how, n, maxPermits, countedMarkLife.Milliseconds(), s.keys.channel, rand.Text())
}

// A SemaphoreState is how many permits a semaphore has, and how many of them are taken, as a server knows it. More may be
// taken than there are by now.
type SemaphoreState struct{ Permits, Acquired int }

// State returns how many permits there are; see [Mutex.State] for how current the answer is.
func (s *Semaphore) State(ctx context.Context) (SemaphoreState, error) {
	v, err := s.run(ctx, on("semaphore_inspect", s.keys.semaphore("")), 2)
	return SemaphoreState{int(number(v[0])), int(number(v[1]))}, wrap(err, "inspect semaphore %q", s.name)
}

// Delete removes the semaphore, and reports whether there was one. A waiter gets
// [ErrNotSet], and a holder of permits [ErrNotHeld] when it releases them: also where the
// semaphore was set again since, but for [Semaphore.Release], which knows of no holders.
func (s *Semaphore) Delete(ctx context.Context) (bool, error) {
	deleted, err := s.change(ctx, "semaphore_delete", s.keys.semaphore(rand.Text()), countedMarkLife.Milliseconds(), s.keys.channel)
	return deleted == 1, wrap(err, "delete semaphore %q", s.name)
}

// refusal finds the refusals of this package among a script's errors.
func refusal(err error) error {
	switch {
	case err == nil: // the checks of an error allocate
		return nil
	case redis.HasErrorPrefix(err, "NOTSET"):
		return fmt.Errorf("%w: %w", ErrNotSet, err)
	case redis.HasErrorPrefix(err, "TOOMANY"):
		return fmt.Errorf("%w: %w", ErrTooMany, err)
	default:
		return err
	}
}

// Lease takes n permits for a time, all or none, and waits for them for at most
// [Options.Wait]; without a wait it is refused also if others wait. The hold is
// that of all of them together: they are released together, and [Lease.Holds] is
// n. [Options.Owner] is a label: an owner may hold any number of permits. See [Client.Permits] for a [Locker].
//
// The errors are those of [Mutex.Acquire], and at once [ErrTooMany] or
// [ErrNotSet].
func (s *Semaphore) Lease(ctx context.Context, n int, o Options) (*Hold, error) {
	permits := s.client.objectIn("semaphore", s.name, permitsKind(n, true))
	h, err := permits.acquireOr(ctx, o)
	return h, wrap(err, "lease %d permits of semaphore %q", n, s.name)
}

// Acquire takes n permits for good, all or none, and waits for them for at most that long:
// 0 is one try, and see [Forever]. It returns nil, [ErrNotAcquired], or at once
// [ErrTooMany] or [ErrNotSet]. After any other error it may have taken them; what
// can be undone of that is undone in the background. A server that fails is asked again, as
// [Options.Wait] says.
func (s *Semaphore) Acquire(ctx context.Context, n int, wait time.Duration) error {
	_, err := s.take(ctx, permitsKind(n, false), wait)
	return wrap(err, "acquire %d permits of semaphore %q", n, s.name)
}

// Drain takes all permits that are there for good, and returns how many that was: 0 also
// if others wait for more.
func (s *Semaphore) Drain(ctx context.Context) (int, error) {
	all := permitsKind(0, false)
	all.invalid = nil
	n, err := s.take(ctx, all, 0)
	if errors.Is(err, ErrNotAcquired) {
		err = nil
	}
	return n, wrap(err, "drain semaphore %q", s.name)
}

// take takes permits for good.
func (s *Semaphore) take(ctx context.Context, k *kind, wait time.Duration) (int, error) {
	o := s.client.objectIn("semaphore", s.name, k)
	opt := Options{Lease: countedMarkLife / 2, Wait: wait}
	if err := o.check(opt); err != nil {
		return 0, err
	}
	g, err := o.ask(ctx, opt, time.Now())
	return g.answer.holds, err
}

// Release gives back n permits that were taken for good. Who gives them back need not have taken them, but
// they must be taken: if fewer than n are, it changes nothing and returns
// [ErrNotHeld]. So a permit too many, which AddPermits is for, is never made by
// mistake. After any other error it may have given them back.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	given, err := int64(0), atLeastOne(n, "permits")
	if err == nil {
		given, err = s.change(ctx, "semaphore_give", s.keys.semaphore(rand.Text()), n, countedMarkLife.Milliseconds(), s.keys.channel)
		if errors.Is(err, ErrNotSet) || err == nil && given == 0 {
			err = errors.Join(ErrNotHeld, err)
		}
	}
	return wrap(err, "release %d permits of semaphore %q", n, s.name)
}
