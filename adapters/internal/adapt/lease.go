// Package adapt has what the adapters of other people's locks share.
package adapt

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// Acquire checks what was asked for, makes a lease of it, without an end, and has ask take the lock
// for as long as it may wait. A lease of zero becomes long. Its error says what is wrong with the name,
// the options, or the context, which may have ended, or what ask returned.
func Acquire(
	ctx context.Context, name string, o lock.Options, long time.Duration,
	ask func(ctx context.Context, l lock.Lease, wait time.Duration) (*lock.Hold, error),
) (h *lock.Hold, err error) {
	errs := []error{o.Validate(), ctx.Err()}
	if name == "" {
		errs = append(errs, errors.New("empty name: give the lock a name"))
	}
	if err = errors.Join(errs...); err == nil {
		h, err = ask(ctx, lock.Lease{
			Name: name, Owner: cmp.Or(o.Owner, rand.Text()), Request: rand.Text(), Holds: 1, Length: cmp.Or(o.Lease, long),
		}, o.Wait)
	}
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", name, err)
	}
	return h, nil
}

// Expires is the last instant at which a holder may believe in a lease whose
// request was sent then: a hundredth of it and 2ms are left out for clock drift,
// as Redlock does.
func Expires(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*time.Millisecond)
}
