package worker

import (
	"context"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/workload"
)

// Acquire is [workload.Client.Acquire].
func (w *Client) Acquire(ctx context.Context, name string, lease, wait time.Duration) history.Type {
	return w.Ask(ctx, workload.Request{Locks: []string{name}, Lease: lease, Wait: wait})
}

// Pid is the number of its process.
func (w *Client) Pid() int { return w.cmd.Process.Pid }

// Busy reports whether the client is in the middle of an operation.
func (w *Client) Busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open) > 0
}
