package causes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
)

// How many runs go on from each instant, from how many instants before the greatest rise is looked for, and for how
// much longer than the run did until its violation was there.
const (
	continuations = 20
	coarse        = 8
	beyond        = 50 * time.Millisecond
)

// Likelihood plays a simulated run, which had these events, again from instants along it until its violation was there,
// and notes in the cause of a violation how many of the runs that went on from each show it. What came before the
// instant stays, and so do the faults of the plan; what the network and the clients do from then on is drawn anew. It
// then halves the stretch in which most was decided until one instant is left, or no difference is. It notes nothing where
// a search, which judges less than a report does, would not find the violation in the run itself.
func Likelihood(ctx context.Context, cause *history.Cause, c simulation.Case, events []history.Event, until time.Duration, find Finder) error {
	c.Length = min(c.Length, until+beyond) // the same violation, and not a later one
	if kinds, err := find(ctx, c); err != nil || !slices.Contains(kinds, cause.Kind) {
		return err
	}
	instants := []time.Duration{0} // right after which a run goes on otherwise; the first is the beginning
	for i := range events {
		e, last := &events[i], len(instants)-1
		switch {
		case e.Time <= instants[last] || e.Time > until:
		case last > 0 && e.Time == instants[last]+1: // happened at once: a recorder has a time for each event
			instants[last] = e.Time
		default:
			instants = append(instants, e.Time)
		}
	}
	arms := map[int]history.Arm{}
	from := func(at int) (history.Arm, error) {
		if a, played := arms[at]; played {
			return a, nil
		}
		a := history.Arm{Arm: history.ArmFrom, From: instants[at]}
		for i := range continuations {
			if ctx.Err() != nil {
				return a, context.Cause(ctx)
			}
			on := c
			on.Fork = &simulation.Fork{At: instants[at] + 1, Seed: c.Seed + uint64(i) + 1}
			if at == 0 {
				on.Fork.At = 0
			}
			kinds, err := find(ctx, on)
			if err != nil {
				return a, fmt.Errorf("go on from %v: %w", instants[at], err)
			}
			count(&a, Played{Kinds: kinds}, cause.Kind)
		}
		arms[at] = a
		return a, nil
	}
	last := len(instants) - 1
	for i := range coarse + 1 {
		if _, err := from(i * last / coarse); err != nil {
			return err
		}
	}
	before, after := steepest(arms)
	for after-before > 1 && rarer(arms[before], arms[after]) {
		half := (before + after) / 2
		a, err := from(half)
		if err != nil {
			return err
		}
		if rise(arms[before], a) < rise(a, arms[after]) {
			before = half
		} else {
			after = half
		}
	}
	for _, at := range slices.Sorted(maps.Keys(arms)) {
		cause.Arms = append(cause.Arms, arms[at])
	}
	cause.Likelihood = likely(arms, before, after, instants, events)
	return nil
}

// rise is how many more runs show the violation.
func rise(a, b history.Arm) int { return b.Seen - a.Seen }

// steepest are the two neighbours between which it rises most.
func steepest(arms map[int]history.Arm) (before, after int) {
	all := slices.Sorted(maps.Keys(arms))
	for i := 1; i < len(all); i++ {
		if after == 0 || rise(arms[all[i-1]], arms[all[i]]) > rise(arms[before], arms[after]) {
			before, after = all[i-1], all[i]
		}
	}
	return before, after
}

// likely says when the violation became likely, and what came right before.
func likely(arms map[int]history.Arm, before, after int, instants []time.Duration, events []history.Event) string {
	all := slices.Sorted(maps.Keys(arms))
	of := func(at int) string { return fmt.Sprintf("%d of %d", arms[at].Seen, arms[at].N) }
	text := fmt.Sprintf("of runs that went on otherwise %s show it from the beginning, and %s from %s", of(0), of(all[len(all)-1]), say.Instant(instants[all[len(all)-1]]))
	switch {
	case !rarer(arms[before], arms[after]):
		return text + ", and no instant decided it"
	case after-before > 1:
		return fmt.Sprintf("%s; it rises most from %s to %s, from %s to %s", text, say.Instant(instants[before]), say.Instant(instants[after]), of(before), of(after))
	}
	var did []string
	words := reports.EventWords(&history.History{Events: events})
	for i := range events {
		e := &events[i]
		done := (e.Op == history.Inject || e.Op == history.Heal) && e.Type != history.Invoke // which says no more than its invoke
		if e.Time > instants[before] && e.Time <= instants[after] && !done {
			did = append(did, words(e))
		}
	}
	return fmt.Sprintf("%s; it rises most, from %s to %s, with what happened at %s: %s", text, of(before), of(after), say.Instant(instants[after]), strings.Join(did, ", and "))
}
