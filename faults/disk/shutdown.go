package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
)

type shutdown struct{ server Server }

// Shutdown ends a server in order (SHUTDOWN), which syncs its append-only file
// if it has one, and starts it again at once. It has no duration.
func Shutdown(s Server) faults.Fault { return shutdown{s} }

// Name returns "shutdown".
func (shutdown) Name() string { return "shutdown" }

// Inject fails if the server does not end by itself. What was begun is seen
// through even if the run ends.
func (f shutdown) Inject(ctx context.Context) (faults.Injection, error) {
	ctx, cancel, err := faults.Through(ctx)
	if err != nil {
		return faults.Injection{}, fmt.Errorf("shutdown of %s: %w", f.server.Name(), err)
	}
	defer cancel()
	o := *f.server.Observer().Options()
	o.ReadTimeout = -1 // as long as its disk takes
	o.MaxRetries = -1  // a client's own options call that 0, which is the default to another
	own := redis.NewClient(&o)
	defer own.Close()
	if err := own.Shutdown(ctx).Err(); err != nil {
		return faults.Injection{}, fmt.Errorf("shutdown of %s: %w", f.server.Name(), err)
	}
	// The connection is closed when the process has ended, and all that is left
	// is to wait for it, which Kill does.
	if err := errors.Join(f.server.Kill(ctx), f.server.Restart(ctx)); err != nil {
		return faults.Injection{}, fmt.Errorf("shutdown of %s: %w", f.server.Name(), err)
	}
	return faults.Injection{Effect: f.server.Name() + " ended in order and answers again"}, nil
}
