package checker_test

import (
	"cmp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// What is valid or invalid within the error of the clocks is so with any clocks that are no more wrong.
func TestWrongClocksOfRandomHistories(t *testing.T) {
	t.Parallel()
	decided := map[checker.Verdict]int{}
	random := source(45)
	for seed := range uint64(cases(t, 1000)) {
		h := oracle.NewGenerator(seed).Next()
		onMachines(h)
		off := time.Duration(1 + random.Int64N(int64(max(h.End()/40, 2))))
		within := checker.CheckWithin(t.Context(), h, off)
		for range 4 {
			shifted := shift(h, func() time.Duration { return time.Duration(random.Int64N(2*int64(off)+1)) - off }, off)
			for _, is := range checker.Check(t.Context(), shifted).Results {
				at := slices.IndexFunc(within.Results, func(r checker.Result) bool { return r.Name == is.Name })
				if at < 0 {
					continue
				}
				was := within.Results[at].Verdict
				if checker.SeveralClocks(h.Events) != nil {
					decided[was]++
				}
				if was == checker.Valid {
					require.NotEqual(t, checker.Invalid, is.Verdict, "seed %d: %s with an error of %v: %s\n%s\n%s", seed, is.Name, off, is.Summary, dump(h), dump(shifted))
				}
				if was == checker.Invalid {
					require.Equal(t, checker.Invalid, is.Verdict, "seed %d: %s with an error of %v: %s\n%s\n%s", seed, is.Name, off, within.Results[at].Summary, dump(h), dump(shifted))
				}
			}
		}
	}
	t.Log(decided)
	require.Greater(t, decided[checker.Valid], cases(t, 1000)/10)
	require.Greater(t, decided[checker.Invalid], cases(t, 1000)/10)
	require.Greater(t, decided[checker.Unknown], cases(t, 1000)/10)
}

// onMachines gives a clock to each process, of which an owner and a process have one.
func onMachines(h *history.History) {
	machine := func(e *history.Event) int { return e.Process % 3 }
	of := map[string]int{}
	for i := range h.Events {
		if e := &h.Events[i]; e.Process >= 0 {
			if other, ok := of[e.LockOwner()]; ok && other != machine(e) {
				machine = func(*history.Event) int { return 0 } // which is all that is left then
			}
			of[e.LockOwner()] = e.Process % 3
		}
	}
	for i := range h.Events {
		if e := &h.Events[i]; e.Process >= 0 && e.Op != history.Declare {
			e.Clock = strconv.Itoa(machine(e))
		}
	}
}

// shift has each clock be wrong by another amount.
func shift(h *history.History, by func() time.Duration, off time.Duration) *history.History {
	wrong := map[string]time.Duration{}
	events := slices.Clone(h.Events)
	for i := range events {
		e := &events[i]
		if e.Process < 0 || e.Op == history.Declare {
			continue
		}
		if _, ok := wrong[e.Clock]; !ok {
			wrong[e.Clock] = off + by() // no time is below 0
		}
		e.Time += wrong[e.Clock]
		if e.Expires > 0 {
			e.Expires += wrong[e.Clock]
		}
	}
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range events {
		events[i].Index = int64(i)
	}
	return &history.History{Events: events}
}
