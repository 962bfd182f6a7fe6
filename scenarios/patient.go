package scenarios

import (
	"context"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/workload"
)

// A patient fault is tried again for a while, where at one moment there may be
// nothing that it can do: no key to lose, nobody who subscribes.
type patient struct {
	faults.Fault

	limit time.Duration
}

// patiently makes a fault patient that is of effect only at some moments.
func patiently(f faults.Fault, limit time.Duration) faults.Fault {
	if limit == 0 || !slices.Contains([]string{"flush", "drop-key", "retype-key", "kill-pubsub", "reset"}, f.Name()) {
		return f
	}
	return patient{f, limit}
}

// Inject tries until it is of effect or the time is over, and returns what came
// of it last.
func (p patient) Inject(ctx context.Context) (faults.Injection, error) {
	for end := time.Now().Add(p.limit); ; {
		injection, err := p.Fault.Inject(ctx)
		if err == nil || time.Now().After(end) || !workload.Pause(ctx, askAgain) {
			return injection, err
		}
	}
}
