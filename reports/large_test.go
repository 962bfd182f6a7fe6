package reports_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// large is a run of so many operations, a third of them each acquires,
// accesses and releases, by 8 clients at 3 locks, with a double grant in its
// middle.
func large(operations int) reports.Input {
	rng := rand.New(rand.NewPCG(1, 2))
	events := make([]history.Event, 0, 2*operations+100)
	locks := make([]time.Duration, 3)
	clients := make([]time.Duration, 8)
	value := make([]int, 3)
	pick := func(n int) time.Duration { return time.Duration(rng.IntN(n)) * time.Microsecond }
	var evidence []int64
	doubled := false
	add := func(e history.Event) { events = append(events, e) }
	for n := 0; n < operations; n += 3 {
		l := 0
		for i := range locks {
			if locks[i] < locks[l] {
				l = i
			}
		}
		c := rng.IntN(len(clients))
		begin := max(locks[l], clients[c])
		e := history.Event{Process: c, Lock: fmt.Sprintf("lock-%d", l), Owner: fmt.Sprintf("zone-%c.%d#%d", 'a'+rune(c%2), c, n)}
		step := func(op history.Op, from, to time.Duration, ok func(*history.Event)) {
			e := e
			e.Op, e.Type, e.Time = op, history.Invoke, from
			if op == history.Access {
				e.Resource = e.Lock
			}
			add(e)
			e.Type, e.Time = history.OK, to
			ok(&e)
			add(e)
		}
		grant := begin + 200*time.Microsecond + pick(3000)
		used := grant + 50*time.Microsecond + pick(2000)
		end := used + 50*time.Microsecond + pick(3000)
		step(history.Acquire, begin, grant, func(e *history.Event) { e.Expires, e.Token = begin+10*time.Second, int64(n+1) })
		step(history.Access, grant+10*time.Microsecond, used, func(e *history.Event) {
			e.Value = fmt.Sprintf("%d>%d", value[l], value[l]+1)
			value[l]++
		})
		step(history.Release, end, end+300*time.Microsecond, func(*history.Event) {})
		if n > operations/2 && !doubled { // somebody else was granted meanwhile
			doubled = true
			e.Process, e.Owner = 100, "zone-a.intruder#1"
			step(history.Acquire, grant, grant+20*time.Microsecond, func(e *history.Event) { e.Expires = grant + time.Second })
		}
		locks[l], clients[c] = end+310*time.Microsecond, end+310*time.Microsecond
	}
	s := script{events: events}
	last := events[len(events)-1].Time
	for i := range 20 {
		from := float64(last)/1e6*float64(i)/20 + 1
		s.fault(history.Inject, "latency", "zone-a>redis-1", from, from+2, history.OK, "1 link delayed", "")
		s.fault(history.Heal, "latency", "zone-a>redis-1", from+500, from+501, history.OK, "", "")
	}
	h := s.history()
	var from, until time.Duration
	for i, e := range h.Events {
		if e.Owner == "zone-a.intruder#1" && e.Type == history.OK {
			from, until = e.Time, e.Expires
			for j := i; j >= 0; j-- {
				if b := h.Events[j]; b.Lock == e.Lock && b.Op == history.Acquire && b.Type == history.OK && b.Owner != e.Owner {
					evidence = []int64{b.Index, e.Index}
					break
				}
			}
		}
	}
	r := run()
	r.Command = "lockchaos run --topology sentinel"
	return reports.Input{Run: r, History: h, Report: report(
		held("assumptions", "counts", "every assumption of the run holds"),
		broken("mutual-exclusion", "interval sweep", "2 clients hold a lock at the same time", checker.Violation{
			Kind: checker.DoubleGrant, Lock: h.Events[evidence[1]].Lock, Events: evidence, From: from, Until: min(until, from+2*time.Millisecond),
			Explanation: "2 clients held it at the same time",
		}),
	)}
}

// A million operations must stay small and quick to draw. `go test -bench
// Large ./reports` prints the figures.
func BenchmarkLarge(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := large(n)
			b.ResetTimer()
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				require.NoError(b, reports.WriteHTML(&out, in))
			}
			b.ReportMetric(float64(out.Len())/1e6, "MB")
			require.Less(b, out.Len(), 5_000_000)
		})
	}
}
