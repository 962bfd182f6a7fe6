package reports_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

func textOf(r reports.Results) func(io.Writer) error {
	return func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) }
}

// What a cure costs is what this cure costs, and no other with the same word in it.
func TestACureHasItsOwnCost(t *testing.T) {
	in := failover()
	in.Run.Cures = []string{
		"have the servers' clocks slewed and never stepped, so that they stay near the true time (see clock-back-stuck/true-clock)",
		"have the servers' clocks slewed and never stepped, and ask for leases that are longer than a clock may be off (see redlock-clock-jump/within-the-lease)",
	}
	cures := reports.Summarize(in).Causes[0].Cures
	require.Equal(t, "a clock that is far off comes right slowly", cures[0].Cost)
	require.Equal(t, "a clock that is far off comes right slowly, leases get longer, and so does the wait for a crashed holder", cures[1].Cost)
}

// A cure that the scenario has no variant with is tried in another failure, and the page says
// that it is another.
func TestFencingCanBeTriedAnyway(t *testing.T) {
	in := twoMajorities("a#1", "a#1", "b#1", "b#1", "b#1")
	in.Run.Scenario, in.Run.Command = "redlock-clock-jump", "lockchaos reproduce redlock-clock-jump"
	in.Run.Cures = []string{
		"slew the clocks (see redlock-clock-jump/within-the-lease)",
		"have the resource refuse tokens older than the newest that it saw (fencing)",
	}
	r := reports.Summarize(in)
	cure := r.Causes[0].Cures[1]
	require.Equal(t, "lockchaos reproduce failover-double-grant/fencing", cure.Try)
	require.False(t, cure.Prevents)
	require.Contains(t, cure.Cost, "Redlock has no tokens")
	require.Contains(t, withoutCode(htmlOf(t, in)), `The same remedy in another failure:</span> <code>lockchaos reproduce <span class="one">failover-double-grant/fencing`)
	require.NotContains(t, string(written(t, textOf(r))), "\n  try ", "the terminal names the variants")

	in.Run.Lock = "mutex"
	require.NotContains(t, reports.Summarize(in).Causes[0].Cures[1].Cost, "Redlock")
}

// The figures of a fault are said once: as they were observed, else as they were asked for.
func TestFiguresOfAFaultAreSaidOnce(t *testing.T) {
	said := func(effect string) string {
		s := &script{}
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
		for _, end := range []history.Type{history.Invoke, history.OK} {
			e := history.Event{
				Process: history.NoProcess, Type: end, Op: history.Inject, Fault: "latency", Target: "zone-a>redis-1",
				Params: map[string]string{"latency": "44", "jitter": "5", "stream": "both"},
			}
			if end == history.OK {
				e.Value = effect
			}
			s.at(20+float64(len(s.events)), e)
		}
		s.acquire(2, "orders", "b#1", "redis-1", 40, 41, 300)
		return reports.Summarize(judged(run(), s.history())).Story.String()
	}
	observed := said("1 link slower by 44ms ± 5ms both ways")
	require.Contains(t, observed, "the link zone-a>redis-1 was slowed down (1 link slower by 44 ms ± 5 ms both ways)")
	require.Equal(t, 1, strings.Count(observed, "44 ms"), observed)
	require.Contains(t, said(""), "the link zone-a>redis-1 was slowed down (jitter 5 ms, latency 44 ms, stream both)")
}

// A pause, a kill and a restart are said once, and what else was observed of them is said.
func TestWhatAFaultDidIsSaidOnce(t *testing.T) {
	said := func(fault, target, effect string) string {
		s := &script{}
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
		s.fault(history.Inject, fault, target, 20, 21, history.OK, effect, "")
		s.acquire(2, "orders", "b#1", "redis-1", 40, 41, 300)
		return reports.Summarize(judged(run(), s.history())).Story.String()
	}
	require.Contains(t, said("pause-client", "a", "client a stands still"), "At 0.021 s client a was paused. ")
	require.Contains(t, said("pause-client", "zone-a", "simulated"), "At 0.021 s the process of the clients of zone-a was paused (simulated). ")
	require.Contains(t, said("kill", "redis-1", "redis-1 is gone"), "At 0.021 s redis-1 was killed. ")
	require.Contains(t, said("restart", "redis-1", "redis-1 was killed and answers again"), "At 0.021 s redis-1 was restarted. ")
	require.Contains(t, said("throttle-client", "a", "client a stands still for 20ms, runs for 30ms, and so on"),
		"client a was stopped and let run, over and over (it stands still for 20 ms, runs for 30 ms, and so on). ")
	require.Contains(t, said("restart", "redis-1", "redis-1 lost all of its keys"), "redis-1 was restarted (it lost all of its keys). ")
}

// A lock whose name says that it is one is not called so again.
func TestLocksAreNamedOnce(t *testing.T) {
	s := &script{}
	for i, name := range []string{"lock-1", "orders"} {
		s.declare(name)
		s.acquire(2*i+1, name, fmt.Sprintf("a#%d", i), "redis-1", 10, 11, 300)
		s.acquire(2*i+2, name, fmt.Sprintf("b#%d", i), "redis-1", 400, 401, 300)
	}
	s.observe(900, "redis-1", history.ObserveEpoch, "1")
	page := withoutCode(htmlOf(t, judged(run(), s.history())))
	require.False(t, strings.Contains(page, "lock lock-1"))
	require.True(t, strings.Contains(page, ">lock-1</text>"))
	require.True(t, strings.Contains(page, ">lock orders</text>"))
}

// Holds beside another are what a lock that several may hold is for, and of any other its
// violations: the words fit both.
func TestCoveredSaysWhatWasMet(t *testing.T) {
	r := reports.Summarize(failover())
	r.Properties[0].Met = map[string]int{history.MetContention: 9, history.MetShared: 3}
	text := string(written(t, textOf(r)))
	require.Contains(t, text, "contention 9 · holds beside another 3")
	require.NotContains(t, text, "shared")
}
