// Package clock makes the faults of a server's wall clock, by which Redis
// expires keys and Sentinel tells whether it was asleep: steps, a rate that is
// wrong, and a clock that stands still.
package clock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
)

// A Server is whose clock it is. Its Observer is a connection past every fault
// of the network.
type Server interface {
	Name() string
	Observer() *redis.Client
}

// A Clock is what a fault needs of a server's wall clock.
type Clock interface {
	// Set makes it be ahead of the true time by offset from now on, and run at
	// a rate: 1 is that of the true time.
	Set(offset time.Duration, rate float64) error
}

const (
	// most is how far a clock that was stepped may be from where it should be:
	// the answer to the question takes its time.
	most = 30 * time.Millisecond
	// least is the smallest error that is told from none.
	least = 3 * time.Millisecond
)

// Step sets a server's clock forward, or back for a negative step, once. The
// heal sets it to the true time. A step is at least a tenth of a second.
func Step(s Server, c Clock, by time.Duration) faults.Fault {
	name, word := "clock-forward", "ahead of"
	if by < 0 {
		name, word = "clock-back", "behind"
	}
	return &fault{name: name, server: s, clock: c, inject: func(ctx context.Context) (string, error) {
		if by.Abs() < 100*time.Millisecond {
			return "", fmt.Errorf("want a step of at least 100 ms, not %v", by)
		}
		if err := c.Set(by, 1); err != nil {
			return "", err
		}
		seen, err := awaitAhead(ctx, s, func(ahead time.Duration) bool { return (ahead - by).Abs() < most })
		return fmt.Sprintf("is %v %s the true time", seen.Abs().Round(10*time.Millisecond), word), err
	}}
}

// Rate makes a server's clock run too fast, or too slowly for a negative
// percentage, which is above -100. The heal sets it to the true time.
func Rate(s Server, c Clock, percent float64) faults.Fault {
	return &fault{name: "clock-rate", server: s, clock: c, inject: func(ctx context.Context) (string, error) {
		if percent == 0 || percent <= -100 || math.IsNaN(percent) || math.IsInf(percent, 0) {
			return "", fmt.Errorf("want a percentage above -100 that is not 0, and not %v", percent)
		}
		if err := c.Set(0, 1+percent/100); err != nil {
			return "", err
		}
		seen, err := awaitAhead(ctx, s, func(ahead time.Duration) bool {
			return ahead.Abs() >= least && (ahead > 0) == (percent > 0)
		})
		return fmt.Sprintf("has a clock that runs %+g %% fast, and is %v off already", percent, seen.Round(time.Millisecond)), err
	}}
}

// Freeze makes a server's clock stand still. The heal sets it to the true time.
func Freeze(s Server, c Clock) faults.Fault {
	return &fault{name: "clock-freeze", server: s, clock: c, inject: func(ctx context.Context) (string, error) {
		if err := c.Set(0, 0); err != nil {
			return "", err
		}
		seen, err := awaitAhead(ctx, s, func(ahead time.Duration) bool { return ahead <= -least })
		if err != nil {
			return "", err
		}
		first, err := shown(ctx, s)
		if err != nil {
			return "", err
		}
		second, err := awaitAhead(ctx, s, func(ahead time.Duration) bool { return ahead <= seen-least })
		if err != nil {
			return "", err
		}
		if last, err := shown(ctx, s); err != nil || !last.Equal(first) {
			return "", fmt.Errorf("its clock went on from %v to %v (%w)", first, last, cmp.Or(err, faults.ErrNone))
		}
		return fmt.Sprintf("has a clock that stands still, and is %v behind already", second.Abs().Round(time.Millisecond)), nil
	}}
}

type fault struct {
	name   string
	server Server
	clock  Clock
	inject func(ctx context.Context) (effect string, err error)
}

// Name returns the fault's name.
func (f *fault) Name() string { return f.name }

// Inject changes the clock and waits until the server says so itself. A clock
// that is wrong already is an error, and is left as it is.
func (f *fault) Inject(ctx context.Context) (faults.Injection, error) {
	ahead, err := Ahead(ctx, f.server)
	switch {
	case err != nil:
		return faults.Injection{}, fmt.Errorf("%s on %s: %w", f.name, f.server.Name(), err)
	case ahead.Abs() >= least:
		return faults.Injection{}, fmt.Errorf("%s on %s: its clock is %v off already", f.name, f.server.Name(), ahead)
	}
	effect, err := f.inject(ctx)
	if err != nil {
		return faults.Injection{}, errors.Join(fmt.Errorf("%s on %s: %w", f.name, f.server.Name(), err), f.clock.Set(0, 1))
	}
	return faults.Injection{
		Effect: f.server.Name() + " " + effect,
		Heal: faults.Once(func(ctx context.Context) (string, error) {
			if err := f.clock.Set(0, 1); err != nil {
				return "", err
			}
			_, err := awaitAhead(ctx, f.server, func(ahead time.Duration) bool { return ahead.Abs() < least })
			if err != nil {
				return "", fmt.Errorf("end %s on %s: %w", f.name, f.server.Name(), err)
			}
			return f.server.Name() + " has the true time again", nil
		}),
	}, nil
}

// awaitAhead waits until a server's clock is as far ahead as is wanted, and
// returns how far it is.
func awaitAhead(ctx context.Context, s Server, want func(ahead time.Duration) bool) (seen time.Duration, err error) {
	err = await.Until(ctx, func() error {
		var err error
		if seen, err = Ahead(ctx, s); err == nil && !want(seen) {
			err = fmt.Errorf("its clock is %v ahead of the true time", seen)
		}
		return err
	})
	return seen, err
}

// Ahead is how far a server's clock is ahead of ours, negative for behind. What
// the time between question and answer may explain does not count.
func Ahead(ctx context.Context, s Server) (time.Duration, error) {
	before := time.Now()
	at, err := shown(ctx, s)
	after := time.Now()
	switch {
	case err != nil:
		return 0, err
	case at.Before(before):
		return at.Sub(before), nil
	case at.After(after):
		return at.Sub(after), nil
	default:
		return 0, nil
	}
}

// shown is the time that a server says it is. A sentinel knows no TIME.
func shown(ctx context.Context, s Server) (time.Time, error) {
	rdb := s.Observer().WithTimeout(faults.Patience)
	at, err := rdb.Time(ctx).Result()
	if err == nil {
		return at, nil
	}
	if !strings.Contains(err.Error(), "unknown command") {
		return time.Time{}, fmt.Errorf("ask %s for the time: %w", s.Name(), err)
	}
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask %s for the time: %w", s.Name(), err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "server_time_usec:"); ok {
			usec, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("ask %s for the time: %w", s.Name(), err)
			}
			return time.UnixMicro(usec), nil
		}
	}
	return time.Time{}, fmt.Errorf("ask %s for the time: INFO has no server_time_usec", s.Name())
}
