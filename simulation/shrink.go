package simulation

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/simulation/world"
)

// Shrink makes a case small of which fails is true: it takes away faults, clients and
// time, and then makes numbers small and round, as long as fails stays true. It asks
// fails budget times at most, and returns the smallest case for which it was true.
func Shrink(c Case, budget int, fails func(Case) bool) (smallest Case, runs int) {
	s := shrinking{c, budget, fails}
	for smaller := true; smaller; {
		smaller = s.faults() || s.clients() || s.length() || s.numbers()
	}
	return s.Case, budget - s.left
}

// shrinking is the smallest case so far.
type shrinking struct {
	Case
	left  int
	fails func(Case) bool
}

// try takes a change over if the case still fails with it.
func (s *shrinking) try(change func(*Case)) bool {
	if s.left <= 0 {
		return false
	}
	smaller := s.Case
	smaller.Plan = slices.Clone(s.Plan)
	change(&smaller)
	s.left--
	if !s.fails(smaller) {
		return false
	}
	s.Case = smaller
	return true
}

// faults takes away faults: half of them, then fewer, down to each by itself.
func (s *shrinking) faults() (done bool) {
	for n := (len(s.Plan) + 1) / 2; n >= 1; n /= 2 {
		for i := 0; i+n <= len(s.Plan); {
			if s.try(func(c *Case) { c.Plan = slices.Delete(c.Plan, i, i+n) }) {
				done = true
			} else {
				i += n
			}
		}
	}
	return done
}

// clients takes away clients and zones.
func (s *shrinking) clients() (done bool) {
	for s.Clients > 1 && s.try(func(c *Case) {
		c.Clients--
		c.Zones = min(c.Zones, c.Clients)
	}) {
		done = true
	}
	for s.Zones > 1 && s.try(func(c *Case) { c.Zones-- }) {
		done = true
	}
	return done
}

// length makes the run short.
func (s *shrinking) length() (done bool) {
	for _, part := range []time.Duration{2, 4, 8} {
		for s.Length > 50*time.Millisecond && s.try(func(c *Case) { c.Length = (c.Length - c.Length/part).Round(time.Millisecond) }) {
			done = true
		}
	}
	return done
}

// numbers makes those of each fault small and round.
func (s *shrinking) numbers() (done bool) {
	for i := range s.Plan {
		for _, field := range []func(*world.Fault) *time.Duration{
			func(f *world.Fault) *time.Duration { return &f.For },
			func(f *world.Fault) *time.Duration { return &f.By },
			func(f *world.Fault) *time.Duration { return &f.Lag },
			func(f *world.Fault) *time.Duration { return &f.At },
		} {
			for s.smaller(i, field) {
				done = true
			}
		}
		if s.Plan[i].After != nil {
			for s.Plan[i].After.Nth > 1 && s.try(func(c *Case) {
				a := *c.Plan[i].After
				a.Nth--
				c.Plan[i].After = &a
			}) {
				done = true
			}
		}
	}
	return done
}

// smaller tries a number at zero, at half, and then without the digits that say nothing.
func (s *shrinking) smaller(i int, field func(*world.Fault) *time.Duration) bool {
	was := *field(&s.Plan[i])
	for _, d := range []time.Duration{
		0, (was / 2).Round(time.Millisecond), was.Round(100 * time.Millisecond), was.Round(10 * time.Millisecond), was.Round(time.Millisecond),
	} {
		if d < was || d != was && d%time.Millisecond == 0 && was%time.Millisecond != 0 {
			if s.try(func(c *Case) { *field(&c.Plan[i]) = d }) {
				return true
			}
		}
	}
	return false
}
