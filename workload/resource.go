package workload

import (
	"context"
	"sync/atomic"
)

// A Resource is what a lock protects: something that is read, and written back
// changed. Read and Write are atomic, but nothing makes the two one.
type Resource interface {
	Read(ctx context.Context) (int64, error)
	// Write stores the value; token is the fencing token of the writer's
	// grant, 0 if it has none. A resource may refuse a token that is stale.
	Write(ctx context.Context, value, token int64) error
}

// A Register is a resource in memory, past every fault. Its zero value holds 0.
// It refuses nothing.
type Register struct{ value atomic.Int64 }

// Read returns the value. It never fails.
func (r *Register) Read(context.Context) (int64, error) { return r.value.Load(), nil }

// Write stores the value. It never fails.
func (r *Register) Write(_ context.Context, value, _ int64) error {
	r.value.Store(value)
	return nil
}
