package reports_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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
func TestTheCauseThatIsToldIsTheTrueOne_NoRace(t *testing.T) {
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

// replaced is a history of a master with two replicas of which another server takes the place,
// in a failover or a split brain at 1 s, beside faults of one server of which at most one can
// explain what it granted twice. truth has by lock the fault that caused its one violation, ""
// for none.
func replaced(rng *rand.Rand) (in reports.Input, truth map[string]string) {
	s := &script{}
	truth = map[string]string{}
	split := rng.IntN(2) == 0
	name, target := "failover", ""
	if split {
		name, target = "split-brain", "{redis-1 sentinel-1 zone-a}"
	}
	replaces := name + " " + target
	done := 1060 + float64(rng.IntN(200))
	s.fault(history.Inject, name, target, 1000, done, history.OK, "redis-2 is the master", "")
	s.observe(1050, "redis-2", history.ObserveRole, "master")
	follows := 1055.0 // redis-1
	if split {
		follows = 1900
		s.fault(history.Heal, name, target, 1890, 1895, history.OK, "", "")
	}
	s.observe(follows, "redis-1", history.ObserveRole, "replica")

	again := rng.IntN(3) == 0 // another failover, long after
	if again {
		s.fault(history.Inject, "failover", "", 4000, 4200, history.OK, "redis-3 is the master", "")
		s.observe(4100, "redis-3", history.ObserveRole, "master")
		s.observe(4105, "redis-2", history.ObserveRole, "replica")
	}

	inject := func(fault, server string, from, until float64, params map[string]string) string {
		n := len(s.events)
		s.fault(history.Inject, fault, server, from, from+1, history.OK, "seen", "")
		s.fault(history.Heal, fault, server, until, until+1, history.OK, "", "")
		for i := n; i < len(s.events); i++ {
			s.events[i].Params = params
		}
		return fault + " " + server
	}
	p := 0
	zone := func(server string) string { // from which a client reaches it
		if split && server == "redis-1" {
			return "zone-a"
		}
		return "zone-b"
	}
	// twice grants a lock by two servers, to clients of which some have waited for long.
	twice := func(first, second string, at, later float64, cause string) {
		lock := fmt.Sprintf("lock-%d", p)
		s.declare(lock)
		for i, server := range []string{first, second} {
			asked := at - 2 + float64(i)*later
			waited := float64(rng.IntN(3)) * 150
			owner := fmt.Sprintf("%s.%d#1", zone(server), p)
			s.acquire(100+p, lock, owner, server, asked-waited, asked+2, 700+waited)
			for k := range s.events[len(s.events)-2:] {
				s.events[len(s.events)-2+k].Lease = ms(700)
			}
			p++
		}
		truth[lock] = cause
	}
	// told tells the holder of a lock that it is lost.
	told := func(granted string, at, later float64, cause string) {
		lock := fmt.Sprintf("lock-%d", p)
		s.declare(lock)
		owner := fmt.Sprintf("%s.%d#1", zone(granted), p)
		s.acquire(100+p, lock, owner, granted, at-2, at, 1200)
		s.attempt(100+p, history.Release, lock, owner, at+later, at+later+1, history.Fail, "lock: not held")
		truth[lock] = cause
		p++
	}

	// What the new master made possible, and what it did not.
	twice("redis-1", "redis-2", 990, 200, replaces)
	twice("redis-1", "redis-1", 900, 50, "")
	at := 1400 + float64(rng.IntN(50))
	if split {
		twice("redis-1", "redis-2", at, 40, replaces)
		twice("redis-2", "redis-1", at, 40, replaces)
		told("redis-2", at, 60, "")
	} else {
		told("redis-1", 990, 300, replaces)
		told("redis-1", 990, 45, replaces) // before the new master was seen
		told("redis-2", at, 60, "")
	}
	if again {
		twice("redis-2", "redis-3", 3980, 200, "failover ")
		twice("redis-3", "redis-3", 4400, 50, "")
		told("redis-2", 3980, 300, "failover ")
	}

	// Two faults at the new master, of which one can explain a second grant at 2450, of a
	// first at 2400, or none does.
	const t0, t1 = 2400.0, 2450.0
	server := "redis-2"
	cause := ""
	switch rng.IntN(5) {
	case 0:
		cause = inject("flush", server, t0+10, t0+12, nil)
	case 1:
		cause = inject("restart", server, t0+10, t0+12, nil)
	case 2:
		cause = inject("clock-forward", server, t0+10, t0+300, map[string]string{"by": "9000"})
	case 3:
		cause = inject("evict", server, t0-200, t0+300, nil)
	default:
	}
	name, _, _ = strings.Cut(cause, " ")
	switch rng.IntN(8) {
	case 0:
		if name != "flush" {
			inject("flush", server, t0-60, t0-50, nil) // of which some clients waited for it
		}
	case 1:
		if name != "restart" {
			inject("restart", server, t0-60, t0-50, nil)
		}
	case 2:
		if name != "clock-forward" {
			inject("clock-forward", server, t0+10, t0+200, map[string]string{"by": "40"}) // too little
		}
	case 3:
		inject("clock-back", server, t0+10, t0+800, map[string]string{"by": "9000"})
	case 4:
		if name != "clock-forward" { // ahead all the time
			inject("clock-forward", server, t0-120, t0+800, map[string]string{"by": "9000"})
		}
	case 5:
		inject("restart-empty", "redis-3", t0+10, t0+20, nil)
	case 6:
		if name != "flush" {
			inject("flush", server, t1+20, t1+22, nil)
		}
	default:
		inject("latency", "zone-a>redis-1", t0-100, t0+300, nil)
	}
	twice(server, server, t0, t1-t0, cause)
	twice(server, server, 3300, 50, "") // long after
	s.observe(5000, "redis-1", history.ObserveEpoch, "1")
	return judged(run(), s.history()), truth
}

// A failover and a split brain explain what two servers granted, and neither what one server
// granted twice nor what came before, or after it was over; of two faults of one server only
// that which can have ended a grant is told, whichever it overlaps.
func TestWhatANewMasterExplains_NoRace(t *testing.T) {
	const cases = 1000
	named := 0
	for seed := range uint64(cases) {
		in, truth := replaced(rand.New(rand.NewPCG(seed, 7)))
		r := reports.Summarize(in)
		want, got := map[string]int{}, map[string]int{}
		for _, cause := range truth {
			want[cause]++
		}
		var titles []string
		for _, c := range r.Causes {
			for _, n := range c.Violations {
				key := c.Fault + " " + c.Target
				if c.Fault == "" {
					key = ""
				}
				got[key] += n
			}
			titles = append(titles, c.Title)
		}
		require.Equal(t, want, got, "seed %d: %q, truth %v", seed, titles, truth)
		named += len(truth) - want[""]
	}
	t.Logf("%d violations with a fault as their cause", named)
}

// No new master explains that one server gave out more permits than there are.
func TestANewMasterDoesNotExplainPermitsOfOneServer(t *testing.T) {
	s := &script{}
	s.fault(history.Inject, "failover", "", 100, 300, history.OK, "redis-2 is the master", "")
	s.observe(150, "redis-2", history.ObserveRole, "master")
	tooManyPermits(s) // by redis-1
	r := reports.Summarize(judged(run(), s.history()))
	require.Len(t, r.Causes, 1)
	require.Empty(t, r.Causes[0].Fault, r.Causes[0].Title)
}
