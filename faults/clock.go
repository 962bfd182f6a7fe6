package faults

import (
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
			New:      onClock(func(s Step) wrong { return stepped(-millis(s, "by")) }),
		},
		{
			Name: "clock-forward", Summary: "set a server's wall clock forward, and to the true time at the heal", Params: []Param{by},
			Observed: "the server's TIME",
			Pitfall:  "keys that were due in between are gone for good, and no heal brings them back",
			New:      onClock(func(s Step) wrong { return stepped(millis(s, "by")) }),
		},
		{
			Name: "clock-freeze", Summary: "stop a server's wall clock, and set it to the true time at the heal",
			Observed: "the server's TIME, twice the same",
			Pitfall:  "nothing runs out; a client's own clock goes on",
			New:      onClock(func(Step) wrong { return frozen() }),
		},
		{
			Name: "clock-rate", Summary: "let a server's wall clock run too fast, or too slowly, and set it to the true time at the heal", Params: []Param{percent},
			Observed: "the server's TIME moves away from the true one",
			Pitfall:  "a lock that leaves room for drift withstands a small one",
			New: onClock(func(s Step) wrong {
				faster, _ := percentage(s.Params["percent"]) // it was checked
				return running(faster)
			}),
		},
	}
	for i := range specs {
		s := &specs[i]
		s.Family, s.Target, s.Needs, s.Healed = Clock, AtProcess, []topologies.Capability{topologies.Clocks}, "the true time"
		s.Life, s.Effects = history.Lasting, []history.Effect{history.ShiftsClock}
		s.Candidates = drawn(TargetOfLock, 2, func(Environment) string { return breaksByClock })
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

// wrong is how a clock is: ahead by some time, with a rate, as [topologies.Clock] has them. It is seen
// to be so by what it shows, and how far ahead that is; words say so.
type wrong struct {
	by    time.Duration
	rate  float64
	seen  func(ahead time.Duration, at time.Time) bool
	words func(ahead time.Duration) string
}

// onClock makes a fault of the clock of the server that a step's target names. A clock
// that is wrong already is an error, and is left as it is.
func onClock(of func(s Step) wrong) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		server, c, w := site.Deployment.Server(s.Target), site.Deployment.Instruments(s.Target), of(s)
		if server == nil || c == nil {
			return nil, fmt.Errorf("%s has its machine's clock", s.Target)
		}
		changed := false
		set := func(ctx context.Context, to wrong) (ahead time.Duration, err error) {
			if err := c.Set(to.by, to.rate); err != nil {
				return 0, err
			}
			err = await.Until(ctx, func() error {
				var at time.Time
				var err error
				if ahead, at, err = ClockAhead(ctx, server); err == nil && !to.seen(ahead, at) {
					err = fmt.Errorf("its clock is %v ahead of the true time", ahead)
				}
				return err
			})
			return ahead, err
		}
		return change{
			begin: func(ctx context.Context) (string, error) {
				ahead, _, err := ClockAhead(ctx, server)
				if err == nil && ahead.Abs() >= leastError {
					err = fmt.Errorf("its clock is %v off already", ahead)
				}
				if err != nil {
					return "", err
				}
				changed = true
				ahead, err = set(ctx, w)
				return w.words(ahead), err
			},
			end: func(ctx context.Context) (string, error) {
				if !changed {
					return "", nil
				}
				_, err := set(ctx, wrong{rate: 1, seen: func(ahead time.Duration, _ time.Time) bool { return ahead.Abs() < leastError }})
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

// stepped is a clock that was set forward, or back for a negative step, once.
func stepped(by time.Duration) wrong {
	return wrong{
		by: by, rate: 1,
		seen:  func(ahead time.Duration, _ time.Time) bool { return (ahead - by).Abs() < clockSlack },
		words: func(ahead time.Duration) string { return "is " + aside(ahead.Round(10*time.Millisecond)) },
	}
}

// aside says how far a clock is off.
func aside(ahead time.Duration) string {
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	return fmt.Sprintf("%v %s the true time", ahead.Abs(), word)
}

// running is a clock that runs too fast, or too slowly for a negative percentage.
func running(percent float64) wrong {
	return wrong{
		rate: 1 + percent/100,
		seen: func(ahead time.Duration, _ time.Time) bool {
			return ahead.Abs() >= leastError && (ahead > 0) == (percent > 0)
		},
		words: func(ahead time.Duration) string {
			return fmt.Sprintf("has a clock that runs %+g %% fast, and is %v off already", percent, ahead.Round(time.Millisecond))
		},
	}
}

// frozen is a clock that stands still: it shows the same time twice, and is behind.
func frozen() wrong {
	var last time.Time
	return wrong{
		seen: func(ahead time.Duration, at time.Time) bool {
			same := at.Equal(last)
			last = at
			return same && ahead <= -leastError
		},
		words: func(ahead time.Duration) string {
			return fmt.Sprintf("has a clock that stands still, and is %v behind already", ahead.Abs().Round(time.Millisecond))
		},
	}
}

// ClockAhead is how far a server's clock is ahead of ours, negative for behind. What
// the time between question and answer may explain does not count. At is the time that it shows. A sentinel knows no TIME.
func ClockAhead(ctx context.Context, s topologies.Server) (ahead time.Duration, at time.Time, err error) {
	rdb := s.Observer().WithTimeout(patience)
	before := time.Now()
	at, err = rdb.Time(ctx).Result()
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		var usec int64
		before = time.Now()
		usec, err = infoNumber(ctx, rdb, "Server", "server_time_usec")
		at = time.UnixMicro(usec)
	}
	after := time.Now()
	switch {
	case err != nil:
		return 0, at, fmt.Errorf("ask %s for the time: %w", s.Name(), err)
	case at.Before(before):
		ahead = at.Sub(before)
	case at.After(after):
		ahead = at.Sub(after)
	}
	return ahead, at, nil
}
