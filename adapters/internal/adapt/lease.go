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

// Lease checks what was asked for and makes a lease of it, without an end. A
// lease of zero becomes long. Its error says what is wrong with the name, the
// options, or the context, which may have ended.
func Lease(ctx context.Context, name string, o lock.Options, long time.Duration) (lock.Lease, error) {
	errs := []error{o.Validate(), ctx.Err()}
	if name == "" {
		errs = append(errs, errors.New("empty name: give the lock a name"))
	}
	if err := errors.Join(errs...); err != nil {
		return lock.Lease{}, fmt.Errorf("acquire lock %q: %w", name, err)
	}
	return lock.Lease{Name: name, Owner: cmp.Or(o.Owner, rand.Text()), Request: rand.Text(), Holds: 1, Length: cmp.Or(o.Lease, long)}, nil
}

// Expires is the last instant at which a holder may believe in a lease whose
// request was sent then: a hundredth of it and 2ms are left out for clock drift,
// as Redlock does.
func Expires(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*time.Millisecond)
}
