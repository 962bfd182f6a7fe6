// Package probe is how package undertest reaches into a hold, of which package lock says nothing in public.
package probe

import "errors"

// ErrConfirmedAgain is that of package undertest.
var ErrConfirmedAgain = errors.New("it was released before, although the service confirmed this release as well")

// Replace has what wrap returns take the place of the keeper of a hold.
var Replace func(hold any, wrap func(keeper any) any) //nolint:gochecknoglobals // it is set once, by package lock

// SetReplace sets it.
func SetReplace(f func(hold any, wrap func(keeper any) any)) bool {
	Replace = f
	return true
}
