package locks

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
)

// told is an observer who keeps the owners that it was told of.
type told chan string

func (o told) Observe(e lock.Event) { o <- e.Kind.String() + " " + e.Lease.Owner }

// A renewal may come before the caller knows of its grant.
func TestRenewalAwaitsItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(told, 2)
		renewal := lock.Event{Lease: lock.Lease{Name: "orders", Owner: "unnamed"}}
		var asked []string
		callers := &unnamed{observer: seen}
		locker := callers.of(lock.LockerFunc(func(_ context.Context, _ string, o lock.Options) (*lock.Hold, error) {
			asked = append(asked, o.Owner)
			go func() { //nolint:contextcheck // an observer is given none
				for _, kind := range []lock.EventKind{lock.Renewing, lock.Renewed} {
					renewal.Kind = kind
					callers.Observe(renewal)
				}
			}()
			synctest.Wait() // for the renewal to come
			return lock.NewHold(renewal.Lease, nil), nil
		}))
		_, err := locker.Acquire(t.Context(), "orders", lock.Options{Owner: "a"})
		require.NoError(t, err)
		require.Equal(t, "renewing a", <-seen)
		require.Equal(t, "renewed a", <-seen)
		require.Equal(t, []string{""}, asked)
	})
}
