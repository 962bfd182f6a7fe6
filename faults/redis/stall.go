package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
)

// PauseWrites makes a server leave all writes and messages unanswered
// (CLIENT PAUSE WRITE) for at most that long, while reads go on. They are
// carried out at the heal.
func PauseWrites(s Server, longest time.Duration) faults.Fault {
	return &fault{
		name: "pause-writes", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := rdb.Do(ctx, "CLIENT", "PAUSE", longest.Milliseconds(), "WRITE").Err(); err != nil {
				return "", err
			}
			// A message to nobody is held up like a write and leaves no trace.
			if err := s.Observer().Publish(ctx, probeChannel, "").Err(); !isTimeout(err) {
				return "", fmt.Errorf("a message was answered with %w", cmp.Or(err, faults.ErrNone))
			}
			return "leaves writes unanswered", nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := rdb.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
				return "", err
			}
			return "answers writes again", rdb.Publish(ctx, probeChannel, "").Err()
		},
	}
}

// isTimeout reports whether nobody answered in time.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// Busy runs a script that does not end, so that a server refuses everything
// else; the heal kills it.
func Busy(s Server) faults.Fault {
	was := map[string]string{}
	var ended chan struct{} // closed once the script has
	return &fault{
		name: "busy", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			// busy-reply-threshold is called lua-time-limit before Redis 7.
			if err := configure(ctx, rdb, was, "busy-reply-threshold", "1"); err != nil {
				return "", err
			}
			ended = make(chan struct{})
			go func() {
				defer close(ended)
				runForever(context.WithoutCancel(ctx), rdb)
			}()
			err := await.Until(ctx, func() error {
				if err := rdb.Ping(ctx).Err(); !redis.HasErrorPrefix(err, "BUSY") {
					return fmt.Errorf("a PING was answered with %w", cmp.Or(err, faults.ErrNone))
				}
				return nil
			})
			if err != nil {
				return "", err
			}
			return "is busy with a script", nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if ended != nil {
				err := await.Until(ctx, func() error {
					select {
					case <-ended:
						return nil
					default:
						_ = rdb.ScriptKill(ctx).Err() // it may not have begun, or have ended
						return errors.New("the script runs on")
					}
				})
				if err != nil {
					return "", err
				}
				ended = nil
			}
			if err := restore(ctx, rdb, was); err != nil {
				return "", err
			}
			return "is rid of the script", rdb.Ping(ctx).Err()
		},
	}
}

// runForever returns when the script is killed, or the server is.
func runForever(ctx context.Context, rdb *redis.Client) {
	o := *rdb.Options()
	o.ReadTimeout = -1 // none
	o.MaxRetries = -1  // a client's own options call that 0, which is the default to another
	o.ContextTimeoutEnabled = false
	own := redis.NewClient(&o)
	defer own.Close()
	_ = own.Eval(ctx, "while true do end", nil).Err()
}
