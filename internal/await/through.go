package await

import (
	"context"
	"fmt"
	"time"
)

// throughTimeout is how long, at least, what has begun may take.
const throughTimeout = 10 * time.Second

// Through is the context for what must be seen through once it has begun, even if
// it is called off: half of it would be left behind, or come later. It fails if ctx
// has ended already. It ends at the deadline of ctx, but not before ten seconds have
// passed, and without a deadline after these.
func Through(ctx context.Context) (through context.Context, cancel context.CancelFunc, err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	begun := time.Now()
	end := begun.Add(throughTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.After(end) {
		end = deadline
	}
	through, cancel = context.WithDeadlineCause(context.WithoutCancel(ctx), end,
		fmt.Errorf("not done after %v", end.Sub(begun).Round(time.Millisecond)))
	return through, cancel, nil
}
