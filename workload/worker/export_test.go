package worker

import (
	"context"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/workload"
)

// Acquire is [workload.Client.Acquire].
func (w *Client) Acquire(ctx context.Context, name string, lease, wait time.Duration) history.Type {
	outcome, _ := w.Do(ctx, workload.Act{Do: workload.DoAsk, Ask: workload.Request{Locks: []string{name}, Lease: lease, Wait: wait}}, nil)
	return outcome
}

// Use has it read a resource, and then write it.
func (w *Client) Use(ctx context.Context, name string, r workload.Resource) (history.Type, error) {
	if _, err := w.Do(ctx, workload.Act{Do: workload.DoRead, Name: name}, r); err != nil {
		return "", err
	}
	return w.Do(ctx, workload.Act{Do: workload.DoWrite, Name: name}, r)
}

// Pid is the number of its process.
func (w *Client) Pid() int { return w.cmd.Process.Pid }

// Busy reports whether the client is in the middle of an operation.
func (w *Client) Busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open) > 0
}
