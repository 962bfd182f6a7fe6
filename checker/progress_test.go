package checker_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// asked is an event of a request for the lock k, at a second.
func asked(at float64, process int, typ history.Type, owner string) history.Event {
	return history.Event{Time: time.Duration(at * 1e9), Process: process, Type: typ, Op: history.Acquire, Lock: "k", Owner: owner, Lease: time.Second}
}

// A lock that is free is asked for by each request that is under way, and not only by the one
// that is granted it in the end.
func TestProgress_ARequestThatWaits(t *testing.T) {
	t.Parallel()
	requireVerdict(t, checker.Invalid, checker.Progress(0),
		asked(0, 1, history.Invoke, "a"), asked(11.9, 2, history.Invoke, "b"), asked(12, 2, history.OK, "b"), asked(12.5, 1, history.Fail, "a"))
	requireVerdict(t, checker.Valid, checker.Progress(0),
		asked(0, 1, history.Invoke, "a"), asked(9.8, 2, history.Invoke, "b"), asked(9.9, 2, history.OK, "b"), asked(12.5, 1, history.Fail, "a"))
	requireVerdict(t, checker.Valid, checker.Progress(0),
		asked(0, 1, history.Invoke, "a"),
		history.Event{Time: 3 * time.Second, Process: 1, Type: history.OK, Op: history.Crash},
		asked(11.9, 2, history.Invoke, "b"), asked(12, 2, history.OK, "b"))
}

// A request that may be refused rightly does not ask for the lock, however long it waits beside
// one that is granted.
func TestProgress_ARequestThatMayBeRefused(t *testing.T) {
	t.Parallel()
	other := asked(0, 2, history.Invoke, "a")
	other.Lock = "m"
	requireVerdict(t, checker.Valid, checker.Progress(0), // for several locks at once
		asked(0, 1, history.Invoke, "a"), other, asked(11.9, 3, history.Invoke, "b"), asked(12, 3, history.OK, "b"))

	many, one, granted := asked(0, 1, history.Invoke, "a"), asked(11.9, 2, history.Invoke, "b"), asked(12, 2, history.OK, "b")
	many.Permits, one.Permits, granted.Permits = 3, 1, 1
	declared := history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindSemaphore, Capacity: 2}
	requireVerdict(t, checker.Valid, checker.Progress(0), declared, many, one, granted)
	declared.Capacity = 3
	requireVerdict(t, checker.Invalid, checker.Progress(0), declared, many, one, granted)
}

// What the summary says of the longest wait is of every request.
func TestProgress_TheLongestWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says   string
		events []history.Event
	}{
		{
			"outside faults, no lock was free while a client asked for it for longer than 460 ms",
			[]history.Event{asked(0.01, 1, history.Invoke, "a"), asked(0.46, 2, history.Invoke, "b"), asked(0.47, 2, history.OK, "b"), asked(0.5, 1, history.Fail, "a")},
		},
		{
			"no lock was asked for while it was free and no fault was in effect",
			[]history.Event{
				{Process: history.NoProcess, Type: history.Invoke, Op: history.Inject, Fault: "cut", Target: "n1"},
				asked(0.01, 1, history.Invoke, "a"), asked(0.47, 1, history.OK, "a"),
			},
		},
	} {
		for i := range c.events {
			c.events[i].Index = int64(i)
		}
		r := checker.Progress(0).Check(t.Context(), &history.History{Events: c.events})
		require.Equal(t, checker.Valid, r.Verdict)
		require.Contains(t, r.Summary, c.says)
	}
}

// longestWait is, by the definition in docs/what-is-checked.md, for how long the lock was free
// and asked for at most: of a history without faults, in which each grant has an owner of its own.
func longestWait(events []history.Event, bound time.Duration) time.Duration {
	type request struct{ from, until int } // the indices of its events
	var requests []request
	open := map[int]int{}
	for i, e := range events {
		switch {
		case e.Op != history.Acquire:
		case e.Type == history.Invoke:
			open[e.Process] = len(requests)
			requests = append(requests, request{i, math.MaxInt})
		default:
			requests[open[e.Process]].until = i
			delete(open, e.Process)
		}
	}
	longest := time.Duration(0)
	if len(open) > 0 { // those that still wait at the end
		end := events[len(events)-1]
		end.Op, end.Type, end.Process = history.Acquire, history.Fail, -1
		events = append(slices.Clone(events), end)
	}
	for at, now := range events {
		if now.Op != history.Acquire || now.Type != history.OK && now.Type != history.Fail {
			continue
		}
		var since time.Duration // the lock is free; later than now if it is not
		for i, e := range events[:at] {
			if e.Op != history.Acquire || e.Type != history.OK && e.Type != history.Info {
				continue
			}
			end := e.Time + time.Second
			if e.Type == history.OK {
				for _, later := range events[i:at] {
					if later.Op == history.Release && later.Owner == e.Owner && later.Type == history.OK {
						end = min(end, later.Time)
					}
				}
			}
			since = max(since, end)
		}
		if since >= now.Time {
			continue
		}
		start := now.Time
		for again := true; again; {
			again = false
			for _, r := range requests {
				if r.from > at || r.until < at && events[r.until].Type == history.Info {
					continue
				}
				from, until := max(events[r.from].Time, since), now.Time
				if r.until < at {
					until = events[r.until].Time
				}
				if from < start && until > since && until >= start-bound/4 {
					start, again = from, true
				}
			}
		}
		longest = max(longest, now.Time-start)
	}
	return longest
}

// The property finds a lock that was stuck for the bound exactly where the definition does.
func TestProgressAsDefined_NoRace(t *testing.T) {
	t.Parallel()
	stuck, valid := 0, 0
	for seed := range uint64(3000) {
		events := waits(source(seed))
		bound := time.Duration(1+source(seed).IntN(8)) * time.Second
		longest := longestWait(events, bound)
		want := checker.Valid
		if longest >= bound {
			want = checker.Invalid
			stuck++
		} else {
			valid++
		}
		r := checker.Progress(bound).Check(t.Context(), &history.History{Events: events})
		if r.Verdict == checker.Unknown && want == checker.Valid {
			continue // no client was granted it
		}
		require.Equal(t, want, r.Verdict, "seed %d: free and asked for during %v, with a bound of %v: %s", seed, longest, bound, r.Summary)
	}
	require.Greater(t, min(stuck, valid), 300)
}

// waits is a history in which four clients ask for a lock, and hold it for a moment.
func waits(r *rand.Rand) []history.Event {
	var events []history.Event
	holder, now := -1, time.Duration(0)
	until := time.Duration(0)
	waiting := map[int]bool{}
	owner := map[int]string{}
	for range 8 + r.IntN(30) {
		now += time.Duration(r.IntN(1 << (20 + r.IntN(12))))
		p := r.IntN(4)
		event := history.Event{Index: int64(len(events)), Time: now, Process: p, Op: history.Acquire, Lock: "k", Owner: owner[p], Lease: time.Second}
		switch {
		case holder == p:
			holder = -1
			if now >= until {
				continue // its lease is over
			}
			event.Op, event.Lease = history.Release, 0
			for _, typ := range []history.Type{history.Invoke, history.OK} {
				event.Type = typ
				events = append(events, event)
				event.Index++
			}
			continue
		case !waiting[p]:
			waiting[p] = true
			owner[p] = string(rune('a'+p)) + "#" + time.Duration(len(events)).String()
			event.Type, event.Owner = history.Invoke, owner[p]
		case r.IntN(8) == 0:
			waiting[p] = false
			event.Type = history.Info
			until = now + time.Second
		case r.IntN(3) > 0 || holder >= 0 && now <= until:
			waiting[p] = false
			event.Type = history.Fail
		default:
			waiting[p] = false
			holder, until = p, now+time.Second
			event.Type = history.OK
		}
		events = append(events, event)
	}
	return events
}
