package workload

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/lockchaos/lockchaos/lock/fence"
)

// ErrRefused is what a resource answers to a stale token.
var ErrRefused = errors.New("stale token refused")

// A Resource is what a lock protects: something that is read, and written back
// changed. Read and Write are atomic, but nothing makes the two one. Both are
// safe for concurrent use.
type Resource interface {
	// Read returns the value; 0 if nothing was written yet.
	Read(ctx context.Context) (int64, error)
	// Write stores a value. A resource that looks at tokens refuses one that is
	// stale with [ErrRefused]; after any other error it may have been written.
	Write(ctx context.Context, c Change) error
}

// A Fenced resource looks at the tokens of those who read, too. It has to, where
// what is read decides what is written: else a stale holder may write between
// the read and the write of the newest one, which its token would have kept out.
type Fenced interface {
	Resource
	// Present shows the token of a reader before it reads. One that is stale is
	// refused with [ErrRefused].
	Present(ctx context.Context, token int64) error
}

// A Change is what is written to a [Resource], and by whom.
type Change struct {
	Value int64 `json:"value"`
	// Owner is the identity that the writer claimed at its lock.
	Owner string `json:"owner"`
	// Token is the fencing token of the writer's grant; 0 if it has none.
	Token int64 `json:"token,omitempty"`
}

// A Register is a resource in memory, past every fault: the last value written.
// Its zero value holds 0. It refuses nothing.
type Register struct {
	// Ledger has it keep each change, with its owner and token.
	Ledger bool

	guard   fence.Guard
	mu      sync.Mutex
	value   int64
	changes []Change
}

// Read returns the value. It never fails.
func (r *Register) Read(context.Context) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, nil
}

// Write stores the value. It never fails.
func (r *Register) Write(_ context.Context, c Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = c.Value
	if r.Ledger {
		r.changes = append(r.changes, c)
	}
	return nil
}

// Changes are all that were kept, in order.
func (r *Register) Changes() []Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}
