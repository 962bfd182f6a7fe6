// Package probe is how package undertest reaches into a hold, of which package lock says nothing in public.
package probe

import "context"

// Replace has what wrap returns take the place of the keeper of a hold, unless ctx ends while it is in use. It is told why the
// grant is over, once the service said so.
var Replace func(ctx context.Context, hold any, wrap func(keeper any, over error) any) //nolint:gochecknoglobals // it is set once, by package lock

// SetReplace sets it.
func SetReplace(f func(ctx context.Context, hold any, wrap func(keeper any, over error) any)) bool {
	Replace = f
	return true
}
