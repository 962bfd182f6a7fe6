package reports_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// known is a history of locks on three masters, of which each violation has a cause that is
// known by construction: the fault of the server that granted it twice, or none. The faults
// overlap in time. truth has by lock the fault and its target, "" for none.
func known(rng *rand.Rand) (in reports.Input, truth map[string]string) {
	s := &script{}
	truth = map[string]string{}
	r := run()
	r.Topology = history.Topology{Name: "cluster", Nodes: []history.Node{{Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"}}}
	r.Command = "lockchaos run --topology cluster --seed 42"
	faults := []string{"flush", "restart", "clock-forward", "latency", ""}
	p := 0
	for i := range 3 {
		server := fmt.Sprintf("redis-%d", 1+i)
		r.Topology.Nodes = append(r.Topology.Nodes, history.Node{Name: server, Kind: "redis", Role: "master"})
		for _, zone := range []string{"zone-a", "zone-b"} {
			r.Topology.Links = append(r.Topology.Links, history.Link{Name: zone + ">" + server, Kind: "client", From: zone, To: server})
		}
		fault, target := faults[rng.IntN(len(faults))], server
		if fault == "latency" {
			target = "zone-a>" + server
		}
		begin := float64(1000 + 10*rng.IntN(3)) // several at the very same instant
		if fault != "" {
			s.fault(history.Inject, fault, target, begin, begin+5, history.OK, "seen", "")
			for k := range s.events {
				if e := &s.events[k]; e.Fault == "clock-forward" {
					e.Params = map[string]string{"by": "9000"}
				}
			}
			s.fault(history.Heal, fault, target, begin+200, begin+205, history.OK, "", "")
		}
		for n := range 1 + rng.IntN(3) {
			lock := fmt.Sprintf("lock-%d-%d", 1+i, n)
			s.declare(lock)
			at, cause := begin-50, fault+" "+target
			if n > 0 { // long after all faults, or before
				at, cause = []float64{100, 3000}[n-1], ""
			}
			if fault == "" || fault == "latency" && n == 0 { // which both grants met, and which locks withstand
				cause = ""
			}
			zone := string("ab"[rng.IntN(2)])
			s.acquire(10+p, lock, fmt.Sprintf("zone-%s.%d#1", zone, p), server, at, at+2, 600)
			s.acquire(11+p, lock, fmt.Sprintf("zone-b.%d#1", p+1), server, at+100, at+102, 600)
			if fault == "latency" && n == 0 && zone == "a" {
				cause = fault + " " + target // or not known
			}
			truth[lock] = cause
			p += 2
		}
	}
	s.observe(5000, "redis-1", history.ObserveEpoch, "1")
	// The order of what has one time is random.
	rng.Shuffle(len(s.events), func(i, j int) { s.events[i], s.events[j] = s.events[j], s.events[i] })
	slices.SortStableFunc(s.events, func(a, b history.Event) int {
		if a.Time == b.Time && (a.Process == b.Process && a.Process >= 0 || a.Fault == b.Fault && a.Target == b.Target && a.Fault != "") {
			return b2n(a.Type != history.Invoke) - b2n(b.Type != history.Invoke)
		}
		return 0
	})
	return judged(r, s.history()), truth
}

func b2n(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Whichever faults overlap in time, a cause is the fault of the server that broke the lock, or
// not known, and never that of another server; and the order of what has one time, of results
// and of violations changes nothing. Each violation is in one cause.
func TestTheCauseThatIsToldIsTheTrueOne(t *testing.T) {
	const cases = 400
	named, unnamed := 0, 0
	for seed := range uint64(cases) {
		in, truth := known(rand.New(rand.NewPCG(seed, 5)))
		r := reports.Summarize(in)
		var titles, causes []string
		want := map[string]int{}
		for _, cause := range truth {
			want[cause]++
		}
		got := map[string]int{}
		for _, c := range r.Causes {
			for _, n := range c.Violations {
				name := ""
				if c.Fault != "" {
					name = c.Fault + " " + c.Target
				}
				got[name] += n
			}
			titles = append(titles, c.Title)
			if c.Fault != "" {
				causes = append(causes, c.Fault+" "+c.Target)
			}
		}
		total := 0
		for name, n := range got {
			total += n
			if name != "" {
				require.LessOrEqual(t, n, want[name], "seed %d: %s: %q, truth %v", seed, name, titles, truth)
				named += n
			} else {
				unnamed += n
			}
		}
		require.Equal(t, len(truth), total, "seed %d: %q", seed, titles)
		for name := range maps.Keys(want) { // the strong ones are named
			if name != "" && name[:3] != "lat" {
				require.Contains(t, causes, name, "seed %d: %q", seed, titles)
			}
		}

		rng := rand.New(rand.NewPCG(seed, 6))
		shuffled := in
		shuffled.Report.Results = slices.Clone(in.Report.Results)
		rng.Shuffle(len(shuffled.Report.Results), func(i, j int) {
			x := shuffled.Report.Results
			x[i], x[j] = x[j], x[i]
		})
		for i := range shuffled.Report.Results {
			v := slices.Clone(shuffled.Report.Results[i].Violations)
			rng.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
			shuffled.Report.Results[i].Violations = v
		}
		var again []string
		for _, c := range reports.Summarize(shuffled).Causes {
			again = append(again, c.Title+"\n"+c.Story.Headline)
		}
		for i, c := range r.Causes {
			require.Equal(t, c.Title+"\n"+c.Story.Headline, again[i], "seed %d", seed)
		}
	}
	require.Greater(t, named, cases/2)
	t.Logf("%d violations with a fault as their cause, %d without", named, unnamed)
}
