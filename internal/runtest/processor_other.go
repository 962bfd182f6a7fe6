//go:build !linux

package runtest

import "context"

// AwaitProcessor returns at once: only Linux tells how many threads want a processor.
func AwaitProcessor(context.Context) {}
