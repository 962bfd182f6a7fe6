package faults

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// clockSpecs are the faults of a server's wall clock, by which Redis expires keys and
// Sentinel tells whether it was asleep.
func clockSpecs() []Spec {
	by := stepParam()
	percent := Param{Name: "percent", About: "faster, or slower below 0", Ask: "how much faster", Draw: "1-50", Valid: func(value string) error {
		_, err := percentage(value)
		return err
	}}
	specs := []Spec{
		{
			Name: "clock-back", Summary: "set a server's wall clock back, and to the true time at the heal", Params: []Param{by},
			Observed: "the server's TIME",
			Pitfall:  "keys live longer by as much; a sentinel whose clock jumps does nothing for a while (TILT)",
			New: onClock(func(s topologies.Server, c topologies.Clock, step Step) act {
				return stepClock(s, c, -millis(step, "by"))
			}),
		},
		{
			Name: "clock-forward", Summary: "set a server's wall clock forward, and to the true time at the heal", Params: []Param{by},
			Observed: "the server's TIME",
			Pitfall:  "keys that were due in between are gone for good, and no heal brings them back",
			New: onClock(func(s topologies.Server, c topologies.Clock, step Step) act {
				return stepClock(s, c, millis(step, "by"))
			}),
		},
		{
			Name: "clock-freeze", Summary: "stop a server's wall clock, and set it to the true time at the heal",
			Observed: "the server's TIME, twice the same",
			Pitfall:  "nothing runs out; a client's own clock goes on",
			New:      onClock(func(s topologies.Server, c topologies.Clock, _ Step) act { return freezeClock(s, c) }),
		},
		{
			Name: "clock-rate", Summary: "let a server's wall clock run too fast, or too slowly, and set it to the true time at the heal", Params: []Param{percent},
			Observed: "the server's TIME moves away from the true one",
			Pitfall:  "a lock that leaves room for drift withstands a small one",
			New: onClock(func(s topologies.Server, c topologies.Clock, step Step) act {
				faster, _ := percentage(step.Params["percent"]) // it was checked
				return setClockRate(s, c, faster)
			}),
		},
	}
	for i := range specs {
		s := &specs[i]
		s.Family, s.Target, s.Needs, s.Healed = Clock, AtProcess, []topologies.Capability{topologies.Clocks}, "the true time"
		s.Life, s.Effects = history.Lasting, []history.Effect{history.ShiftsClock}
		s.Candidates = lasting(TargetOfLock, 2, func(Environment) string { return breaksByClock })
	}
	return specs
}

// stepParam is by how much a clock is set wrong.
func stepParam() Param {
	return Param{Name: "by", Unit: "ms", Least: 100, Most: most, Ask: "by how many ms", Draw: "100-5000"}
}

// percentage reads how much faster a clock is to run.
func percentage(value string) (float64, error) {
	percent, err := strconv.ParseFloat(value, 64)
	if err != nil || percent == 0 || percent <= -100 || math.IsNaN(percent) || math.IsInf(percent, 0) {
		return 0, fmt.Errorf(`want how much faster in the parameter "percent", above -100 and not 0, and not %q`, value)
	}
	return percent, nil
}

// onClock makes a fault of the clock of the server that a step's target names. A clock
// that is wrong already is an error, and is left as it is.
func onClock(of func(s topologies.Server, c topologies.Clock, step Step) act) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		server, c := site.Deployment.Server(s.Target), site.Deployment.Clock(s.Target)
		if server == nil || c == nil {
			return nil, fmt.Errorf("%s has its machine's clock", s.Target)
		}
		changed := false
		return change{
			begin: func(ctx context.Context) (string, error) {
				ahead, err := ClockAhead(ctx, server)
				if err == nil && ahead.Abs() >= leastError {
					err = fmt.Errorf("its clock is %v off already", ahead)
				}
				if err != nil {
					return "", err
				}
				changed = true
				return of(server, c, s)(ctx)
			},
			end: func(ctx context.Context) (string, error) {
				if !changed {
					return "", nil
				}
				if err := c.Set(0, 1); err != nil {
					return "", err
				}
				_, err := awaitAhead(ctx, server, func(ahead time.Duration) bool { return ahead.Abs() < leastError })
				return "has the true time again", err
			},
		}.of(s.Fault, s.Target), nil
	}
}

const (
	// clockSlack is how far a clock that was stepped may be from where it should be:
	// the answer to the question takes its time.
	clockSlack = 30 * time.Millisecond
	// leastError is the smallest error that is told from none.
	leastError = 3 * time.Millisecond
)

// stepClock sets a server's clock forward, or back for a negative step, once.
func stepClock(s topologies.Server, c topologies.Clock, by time.Duration) act {
	word := "ahead of"
	if by < 0 {
		word = "behind"
	}
	return func(ctx context.Context) (string, error) {
		if err := c.Set(by, 1); err != nil {
			return "", err
		}
		seen, err := awaitAhead(ctx, s, func(ahead time.Duration) bool { return (ahead - by).Abs() < clockSlack })
		return fmt.Sprintf("is %v %s the true time", seen.Abs().Round(10*time.Millisecond), word), err
	}
}

// setClockRate makes a server's clock run too fast, or too slowly for a negative
// percentage.
func setClockRate(s topologies.Server, c topologies.Clock, percent float64) act {
	return func(ctx context.Context) (string, error) {
		if err := c.Set(0, 1+percent/100); err != nil {
			return "", err
		}
		seen, err := awaitAhead(ctx, s, func(ahead time.Duration) bool {
			return ahead.Abs() >= leastError && (ahead > 0) == (percent > 0)
		})
		return fmt.Sprintf("has a clock that runs %+g %% fast, and is %v off already", percent, seen.Round(time.Millisecond)), err
	}
}

// freezeClock makes a server's clock stand still.
func freezeClock(s topologies.Server, c topologies.Clock) act {
	return func(ctx context.Context) (string, error) {
		if err := c.Set(0, 0); err != nil {
			return "", err
		}
		seen, err := awaitAhead(ctx, s, func(ahead time.Duration) bool { return ahead <= -leastError })
		if err != nil {
			return "", err
		}
		first, err := timeShown(ctx, s)
		if err != nil {
			return "", err
		}
		second, err := awaitAhead(ctx, s, func(ahead time.Duration) bool { return ahead <= seen-leastError })
		if err != nil {
			return "", err
		}
		if last, err := timeShown(ctx, s); err != nil || !last.Equal(first) {
			return "", fmt.Errorf("its clock went on from %v to %v (%w)", first, last, cmp.Or(err, errNone))
		}
		return fmt.Sprintf("has a clock that stands still, and is %v behind already", second.Abs().Round(time.Millisecond)), nil
	}
}

// awaitAhead waits until a server's clock is as far ahead as is wanted, and
// returns how far it is.
func awaitAhead(ctx context.Context, s topologies.Server, want func(ahead time.Duration) bool) (seen time.Duration, err error) {
	err = await.Until(ctx, func() error {
		var err error
		if seen, err = ClockAhead(ctx, s); err == nil && !want(seen) {
			err = fmt.Errorf("its clock is %v ahead of the true time", seen)
		}
		return err
	})
	return seen, err
}

// ClockAhead is how far a server's clock is ahead of ours, negative for behind. What
// the time between question and answer may explain does not count.
func ClockAhead(ctx context.Context, s topologies.Server) (time.Duration, error) {
	before := time.Now()
	at, err := timeShown(ctx, s)
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

// timeShown is the time that a server says it is. A sentinel knows no TIME.
func timeShown(ctx context.Context, s topologies.Server) (at time.Time, err error) {
	rdb := s.Observer().WithTimeout(patience)
	at, err = rdb.Time(ctx).Result()
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		var usec int64
		usec, err = infoNumber(ctx, rdb, "server", "server_time_usec")
		at = time.UnixMicro(usec)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("ask %s for the time: %w", s.Name(), err)
	}
	return at, nil
}
