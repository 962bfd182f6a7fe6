package reports_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// A cause is something that a generated history has, from a time on and for less than a
// second.
type cause struct {
	name   string // of the fault; empty for none
	kind   string // of the violation that it must have
	inject func(s *script, rng *rand.Rand, at float64)
}

// injectable are the causes that a history can be generated with.
func injectable() []cause {
	grants := func(s *script, rng *rand.Rand, at float64, first, second string) {
		for i := range 1 + rng.IntN(40) {
			from, lock := at+15*float64(i), fmt.Sprintf("lock-%d", 1+rng.IntN(3))
			a, b := fmt.Sprintf("zone-a.1#%d-%g", i, at), fmt.Sprintf("zone-b.1#%d-%g", i, at)
			s.acquire(101, lock, a, first, from, from+1, 300)
			s.acquire(102, lock, b, second, from+2, from+3, 300)
			if rng.IntN(2) == 0 {
				value := fmt.Sprintf("%d>%d", int(at)*1000+i, int(at)*1000+i+1)
				s.access(101, lock, a, lock+"-stock", value, from+4, from+5)
				s.access(102, lock, b, lock+"-stock", value, from+6, from+7)
			}
			s.release(101, lock, a, first, from+9, from+10)
			s.release(102, lock, b, second, from+11, from+12)
		}
	}
	return []cause{
		{"split-brain", "double-grant", func(s *script, rng *rand.Rand, at float64) {
			const sides = "{redis-1 sentinel-1 zone-a}"
			s.fault(history.Inject, "split-brain", sides, at, at+60, history.OK, "redis-2 is the master of the majority", "")
			s.observe(at+50, "redis-2", history.ObserveRole, "master")
			grants(s, rng, at+70, "redis-1", "redis-2")
			s.observe(at+800, "redis-1", history.ObserveRole, "replica")
			s.fault(history.Heal, "split-brain", sides, at+790, at+810, history.OK, "", "")
		}},
		{"failover", "premature-loss", func(s *script, rng *rand.Rand, at float64) {
			s.fault(history.Inject, "failover", "", at, at+100, history.OK, "redis-3 is the master", "")
			s.observe(at+60, "redis-3", history.ObserveRole, "master")
			for i := range 1 + rng.IntN(3) {
				lock, owner := fmt.Sprintf("lock-%d", i+1), fmt.Sprintf("zone-b.%d#%g", i+2, at)
				s.acquire(200+i, lock, owner, "redis-2", at-20, at-19, 2000)
				s.attempt(200+i, history.Release, lock, owner, at+120, at+121, history.Fail, "lock: not held")
			}
		}},
		{"", "double-grant", func(s *script, rng *rand.Rand, at float64) { grants(s, rng, at, "redis-1", "redis-1") }},
		{"pause", "use-after-lease", func(s *script, _ *rand.Rand, at float64) {
			owner := fmt.Sprintf("zone-a.9#%g", at)
			s.acquire(300, "lock-2", owner, "redis-1", at-20, at-19, 200)
			s.fault(history.Inject, "pause", "zone-a", at, at+3, history.OK, "zone-a stopped", "")
			s.fault(history.Heal, "pause", "zone-a", at+500, at+503, history.OK, "", "")
			value := fmt.Sprintf("%d>%d", int(at), int(at)+1)
			s.access(300, "lock-2", owner, "lock-2-stock", value, at+510, at+511)
			s.attempt(300, history.Release, "lock-2", owner, at+520, at+521, history.Fail, "lock: not held")
		}},
	}
}

// withCauses is a history with these causes one after the other, judged.
func withCauses(seed uint64, causes ...cause) reports.Input {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &script{}
	for i := range 3 {
		s.declare(fmt.Sprintf("lock-%d", i+1))
	}
	at := 500.0
	for _, c := range causes {
		c.inject(s, rng, at)
		at += 1500 + float64(rng.IntN(1000))
	}
	s.acquire(400, "lock-1", "zone-b.7#1", "redis-3", at+10, at+12, 300) // the run goes on
	s.release(400, "lock-1", "zone-b.7#1", "redis-3", at+20, at+21)
	r := run()
	r.Command = "lockchaos run --topology sentinel --seed 42"
	return judged(r, s.history())
}

// twoCauses is a failover that loses grants and, later, a split brain with many double
// grants: the graver kind comes later.
func twoCauses() reports.Input {
	all := injectable()
	return withCauses(1, all[1], all[0])
}
