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

// A million operations must stay small and quick to draw. `go test -bench
// Large ./reports` prints the figures.
func BenchmarkLarge(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := crowded(3, 8, n/3)
			b.ResetTimer()
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				require.NoError(b, reports.WriteHTML(&out, in))
			}
			b.ReportMetric(float64(out.Len())/1e6, "MB")
			require.Less(b, out.Len(), 1_500_000)
		})
	}
}

// crowded is a run of many clients at many locks with so many grants, a tenth of the
// requests refused, and a double grant of the last lock in its middle.
func crowded(locks, clients, grants int) reports.Input {
	rng := rand.New(rand.NewPCG(3, 4))
	free, idle := make([]time.Duration, locks), make([]time.Duration, clients)
	value := make([]int, locks)
	micros := func(n int) time.Duration { return time.Duration(rng.IntN(n)) * time.Microsecond }
	var events []history.Event
	var first, second history.Event
	for n := range grants {
		c := rng.IntN(clients)
		l := rng.IntN(locks)
		e := history.Event{Process: c, Lock: fmt.Sprintf("lock-%d", l), Owner: fmt.Sprintf("zone-%c.%d#%d", 'a'+rune(c%2), c, n)}
		step := func(op history.Op, from, to time.Duration, end history.Type, with func(*history.Event)) {
			e := e
			e.Op, e.Type, e.Time = op, history.Invoke, from
			if op == history.Access {
				e.Resource = "stock-" + e.Lock
			}
			events = append(events, e)
			e.Type, e.Time = end, to
			if with != nil {
				with(&e)
			}
			events = append(events, e)
		}
		begin := idle[c] + micros(4000)
		if rng.IntN(10) == 0 {
			step(history.Acquire, begin, begin+300*time.Microsecond, history.Fail, nil)
			begin += 400 * time.Microsecond
		}
		grant := max(begin, free[l]) + 200*time.Microsecond + micros(800)
		end := grant + time.Millisecond + micros(3000)
		step(history.Acquire, begin, grant, history.OK, func(e *history.Event) { e.Expires, e.Token = begin+10*time.Second, int64(n+1) })
		step(history.Access, grant+100*time.Microsecond, grant+400*time.Microsecond, history.OK, func(e *history.Event) {
			e.Value = fmt.Sprintf("%d>%d", value[l], value[l]+1)
			value[l]++
		})
		step(history.Release, end, end+300*time.Microsecond, history.OK, nil)
		if l == locks-1 && n > grants/2 && second.Owner == "" {
			first = e
			e.Process, e.Owner = clients, "zone-a.intruder#1"
			second = e
			step(history.Acquire, grant, grant+20*time.Microsecond, history.OK, func(e *history.Event) { e.Expires = grant + time.Second })
		}
		free[l], idle[c] = end+310*time.Microsecond, end+310*time.Microsecond
	}
	h := (&script{events: events}).history()
	v := checker.Violation{Kind: checker.DoubleGrant, Lock: second.Lock, Explanation: "2 clients held it at the same time"}
	for i := range h.Events {
		if e := &h.Events[i]; e.Op == history.Acquire && e.Type == history.OK && (e.Owner == first.Owner || e.Owner == second.Owner) {
			v.Events, v.From = append(v.Events, e.Index), e.Time
		}
	}
	v.Until = v.From + time.Millisecond
	r := run()
	r.Command = "lockchaos run --topology sentinel"
	return reports.Input{Run: r, History: h, Report: report(
		held("assumptions", "counts", "every assumption of the run holds"),
		broken("mutual-exclusion", "interval sweep", "2 clients hold a lock at the same time", v),
	)}
}
