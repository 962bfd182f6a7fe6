package reports_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// mutated is a history whose events were changed, and judged again.
func mutated(t *testing.T, in reports.Input, change func(events []history.Event) []history.Event) reports.Input {
	t.Helper()
	events := change(slices.Clone(in.History.Events))
	for i := range events {
		events[i].Index = int64(i)
	}
	return judged(in.Run, &history.History{Events: events})
}

// mutable are the histories of which mutants are made: all that are judged by their events.
func mutable(t *testing.T) map[string]reports.Input {
	t.Helper()
	all := map[string]reports.Input{}
	for name, of := range tellable(t) {
		in := of()
		if in.History == nil {
			continue
		}
		in = judged(in.Run, in.History)
		in.Run.AbortReason, in.Run.ClaimLostTo, in.Run.Cures = "", "", nil
		all[name] = in
	}
	return all
}

// A story without the faults of the record names none of them, and none as a cause.
func TestWithoutFaultsNoFaultIsTold(t *testing.T) {
	for name, in := range mutable(t) {
		r := reports.Summarize(mutated(t, in, func(events []history.Event) []history.Event {
			return slices.DeleteFunc(events, func(e history.Event) bool { return e.Op == history.Inject || e.Op == history.Heal || e.Fault != "" })
		}))
		for _, c := range r.Causes {
			require.Empty(t, c.Fault, name)
			for _, m := range c.Story.Events {
				require.NotEqual(t, reports.EventFault, m.Kind, "%s: %s", name, m.Text)
			}
			require.NotContains(t, c.Story.String(), "explains it", name)
		}
	}
}

// Other names of clients make the same story, with these names.
func TestClientsOfOtherNames(t *testing.T) {
	for name, in := range mutable(t) {
		owners := map[string]bool{}
		for _, e := range in.History.Events {
			owners[e.Owner] = true
		}
		other := map[string]string{}
		for owner := range owners {
			who, attempt, found := strings.Cut(owner, "#")
			if owner == "" || !found || strings.Contains(who, "q") {
				continue
			}
			zone, n, zoned := strings.Cut(who, ".")
			renamed := "q" + who + "q"
			if zoned {
				renamed = zone + ".9" + n + "9"
			}
			other[owner] = renamed + "#" + attempt
		}
		r := reports.Summarize(mutated(t, in, func(events []history.Event) []history.Event {
			for i := range events {
				e := &events[i]
				if to := other[e.Owner]; to != "" {
					e.Owner = to
				}
				if e.What == history.ObserveKey {
					lock, owner, _ := strings.Cut(e.Value, " ")
					if to := other[owner]; to != "" {
						e.Value = lock + " " + to
					}
				}
			}
			return events
		}))
		was := reports.Summarize(in)
		require.Equal(t, len(was.Causes), len(r.Causes), name)
		var pairs []string
		for from, to := range other {
			a, _, _ := strings.Cut(from, "#")
			b, _, _ := strings.Cut(to, "#")
			pairs = append(pairs, "client "+b, "client "+a)
		}
		back := strings.NewReplacer(pairs...)
		for i := range r.Causes {
			require.Equal(t, was.Causes[i].Fault, r.Causes[i].Fault, name)
			require.Equal(t, was.Causes[i].Title, r.Causes[i].Title, name)
			var words []string
			for _, m := range was.Causes[i].Story.Events {
				words = append(words, m.Text)
			}
			for k, m := range r.Causes[i].Story.Events {
				require.Equal(t, words[k], back.Replace(m.Text), name)
			}
		}
	}
}

// A fault that no request met changes no cause.
func TestAFaultThatNoRequestMet(t *testing.T) {
	for name, in := range mutable(t) {
		was := reports.Summarize(in)
		r := reports.Summarize(mutated(t, in, func(events []history.Event) []history.Event {
			e := history.Event{Process: history.NoProcess, Fault: "clock-forward", Target: "redis-1", Type: history.Invoke, Op: history.Inject, Params: map[string]string{"by": "900000"}}
			done, met, heal := e, e, e
			heal.Op = history.Heal
			healed := heal
			healed.Type = history.OK
			done.Type, met.Type, met.Op, met.Params = history.OK, history.OK, history.Observe, nil
			met.Node, met.What, met.Value = history.ObserveClients, history.ObserveMet, "0"
			return slices.Concat([]history.Event{e, done, met, heal, healed}, events)
		}))
		require.Len(t, r.Causes, len(was.Causes), name)
		for i := range r.Causes {
			require.Equal(t, was.Causes[i].Title, r.Causes[i].Title, name)
			require.Equal(t, was.Causes[i].Story.Cures, r.Causes[i].Story.Cures, name)
		}
	}
}

// The order of the events of one instant is no cause: a story is the same whichever of two
// faults of the same time is recorded first.
func TestFaultsOfOneInstantInEitherOrder(t *testing.T) {
	for name, in := range mutable(t) {
		swapped := false
		r := reports.Summarize(mutated(t, in, func(events []history.Event) []history.Event {
			for i := 1; i < len(events); i++ {
				a, b := &events[i-1], &events[i]
				if a.Op == history.Inject && b.Op == history.Inject && a.Fault+a.Target != b.Fault+b.Target && b.Time-a.Time < ms(1) {
					a.Time, b.Time = b.Time, a.Time
					*a, *b = *b, *a
					swapped = true
				}
			}
			return events
		}))
		if !swapped {
			continue
		}
		was := reports.Summarize(in)
		for i := range r.Causes {
			x, _ := json.Marshal(was.Causes[i].Violations)
			y, _ := json.Marshal(r.Causes[i].Violations)
			require.Equal(t, string(x), string(y), name)
		}
	}
}
