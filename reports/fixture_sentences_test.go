package reports_test

import (
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// lateRelease is a client whose release ends the hold of another one, which is granted once
// the lease of the first is over at 311 ms; the service does not tell.
func lateRelease(sent, answered float64, outcome history.Type, what string) func(s *script) {
	return func(s *script) {
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
		if what == history.ConfirmedAgain {
			s.release(1, "orders", "a#1", "redis-1", 250, 251)
		}
		s.acquire(2, "orders", "b#1", "redis-1", 320, 321, 900)
		s.attempt(1, history.Release, "orders", "a#1", sent, answered, outcome, "")
		s.events[len(s.events)-1].What = what
		s.acquire(3, "orders", "c#1", "redis-1", 370, 371, 900)
	}
}

// cutLeases are pairs of holds with leases of 1.5 s, of which the second was granted when so
// many ms of the first had passed. A release that is late ends none of them.
func cutLeases(passed ...float64) func(s *script) {
	return func(s *script) {
		for i, ms := range passed {
			at, owner := 10+float64(i)*5000, fmt.Sprint("#", i+1)
			s.acquire(1, "orders", "a"+owner, "redis-1", at, at+1, 1500)
			s.acquire(2, "orders", "b"+owner, "redis-1", at+ms, at+ms+1, 1500)
			s.attempt(1, history.Release, "orders", "a"+owner, at+1600, at+1601, history.Info, "")
		}
	}
}

// others is a double grant after a fault, healed before it, of a kind that another program has.
func others(fault, target string, effects ...history.Effect) func() reports.Input {
	return func() reports.Input {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 3000)
		s.fault(history.Inject, fault, target, 20, 30, history.OK, "", "")
		s.fault(history.Heal, fault, target, 40, 50, history.OK, "", "")
		for i := range s.events {
			if e := &s.events[i]; e.Op == history.Inject {
				e.Life, e.Effects = history.Lasting, effects
			}
		}
		s.acquire(2, "orders", "b#1", "redis-2", 100, 101, 3000)
		return judged(run(), s.history())
	}
}

// twoSteps are pairs of holds whose requests took 10 ms each, and were sent so many ms apart.
func twoSteps(apart ...float64) func(s *script) {
	return func(s *script) {
		for i, ms := range apart {
			at, owner := 10+float64(i)*5000, fmt.Sprint("#", i+1)
			s.acquire(1, "orders", "a"+owner, "redis-1", at, at+10, 1500)
			s.acquire(2, "orders", "b"+owner, "redis-1", at+ms, at+ms+10, 1500)
		}
	}
}

// rare are histories in which sentences are true that no other fixture has.
func rare() map[string]func() reports.Input {
	changed := func(from func() reports.Input, change func(in *reports.Input)) func() reports.Input {
		return func() reports.Input {
			in := from()
			change(&in)
			return in
		}
	}
	written := func(write func(s *script)) func() reports.Input {
		return func() reports.Input {
			s := &script{}
			s.declare("orders")
			write(s)
			return judged(run(), s.history())
		}
	}
	claimed := func(in reports.Input, v checker.Violation) reports.Input {
		in.Report = report(broken("p", "", "", v))
		return in
	}
	control := func(found, of checker.Verdict) func() reports.Input {
		return func() reports.Input {
			in := failover()
			in.Report.Verdict = found
			in.Run.Control = &history.Control{Lock: "correct-key", Verdict: string(of)}
			in.Run.Unpromised = []string{history.UnpromisedToken, history.UnpromisedPlace, history.UnpromisedRelease, history.UnpromisedLost, history.UnpromisedExtend}
			return in
		}
	}
	open := func(change func(in *reports.Input)) func() reports.Input {
		return changed(valid, func(in *reports.Input) {
			in.Report = checker.Report{Verdict: checker.Unknown}
			change(in)
		})
	}
	all := map[string]func() reports.Input{
		"cures-of-a-lock-that-asks-no-replicas": changed(twoCauses, func(in *reports.Input) {
			in.Run.Command, in.Run.Unpromised = "lockchaos run --lock redislock --topology sentinel --seed 42", []string{history.UnpromisedAcks}
		}),
		"pause-of-a-zone": written(func(s *script) {
			s.acquire(1, "orders", "zone-a.1#1", "redis-1", 10, 11, 300)
			s.fault(history.Inject, "pause-client", "zone-a", 20, 21, history.OK, "simulated", "")
			s.acquire(2, "orders", "zone-b.1#1", "redis-1", 40, 41, 300)
		}),
		"release-cut-off":         func() reports.Input { return ghost(16) },
		"miscounted":              func() reports.Input { return miscounted(0, 460) },
		"vote-by-a-clock":         func() reports.Input { return clockVote("31000") },
		"faultless":               func() reports.Input { return faultless("lockchaos run --topology independent --seed 3", false) },
		"blocked-by-a-request":    func() reports.Input { return givenUp(history.Fail) },
		"two-masters-held-acks":   twoMastersHeld("replica-acks", 3),
		"two-masters-held-min":    twoMastersHeld("min-replicas", 0),
		"released-beside-another": written(func(s *script) { s.chained(true) }),
		"answered-later": written(func(s *script) {
			s.fault(history.Inject, "split-brain", "redis-1", 10, 20, history.OK, "cut", "")
			s.acquire(1, "orders", "a#1", "redis-3", 100, 101, 2000)
			s.acquire(2, "orders", "b#1", "redis-1", 110, 111, 2000)
			s.access(2, "orders", "b#1", "ledger", "4>5", 112, 120)
			s.release(2, "orders", "b#1", "redis-1", 130, 131)
			s.access(1, "orders", "a#1", "ledger", "4>5", 102, 150)
			s.release(1, "orders", "a#1", "redis-3", 160, 161)
			s.fault(history.Heal, "split-brain", "redis-1", 200, 210, history.OK, "", "")
		}),
		"control-invalid": control(checker.Invalid, checker.Invalid),
		"control-valid":   control(checker.Invalid, checker.Valid),
		"control-unknown": control(checker.Invalid, checker.Unknown),
		"spared":          changed(valid, func(in *reports.Input) { in.Run.Spared = "step 2: no second grant within 5s" }),
		"no-results":      open(func(in *reports.Input) { in.Missing = []string{"results.json is missing"} }),
		"parts-missing":   open(func(in *reports.Input) { in.Missing = []string{"results.json is missing", "run.json is missing"} }),
		"not-checked":     open(func(*reports.Input) {}),
		"interrupted":     open(func(in *reports.Input) { in.Run.Interrupted = true }),
		"taken-over": changed(failover, func(in *reports.Input) {
			in.Run.ClaimLostTo = "another run drives it now"
		}),
		"cut-short-in-full": changed(cutShort, func(in *reports.Input) {
			in.Run.AbortReason = "step 1: " + strings.Repeat("it did not take effect, ", 20)
		}),
		"cures-shown": changed(failover, func(in *reports.Input) {
			in.Run.Cures = []string{"count a grant only after replicas acknowledged it (see failover-double-grant/replica-acks)", "pray"}
		}),
		"unproven":        changed(valid, func(in *reports.Input) { in.Report = report(broken("p", "", "it does not")) }),
		"unproven-at-all": changed(valid, func(in *reports.Input) { in.Report = checker.Report{Verdict: checker.Invalid} }),
		"masters-at-once": func() reports.Input { return deposed(300) },
		"votes":           func() reports.Input { return twoMajorities("a#1", "a#1", "b#1", "b#1", "b#1") },
		"blocked":         func() reports.Input { return blocked("a#1") },
		"not-blocked":     func() reports.Input { return blocked("") },
		"over-the-end": func() reports.Input {
			s := &script{}
			s.acquire(1, "k", "a#1", "", 10, 11, 790)
			s.acquire(2, "k", "b#1", "", 490, 500, 900)
			h := s.history()
			return claimed(reports.Input{History: h}, checker.Violation{Kind: checker.DoubleGrant, Lock: "k", From: ms(500), Until: ms(800), Events: []int64{1, 3}})
		},
		"no-instant": func() reports.Input {
			s := &script{}
			s.acquire(1, "k", "a#1", "", 10, 11, 790)
			s.acquire(2, "k", "b#1", "", 490, 500, 900)
			s.observe(1000, "redis-1", history.ObserveEpoch, "1")
			return claimed(reports.Input{History: s.history()}, checker.Violation{Kind: checker.DoubleGrant, Lock: "k", From: ms(500), Until: ms(500), Events: []int64{1, 3}})
		},
		"without-an-end": func() reports.Input {
			s := &script{}
			s.acquire(1, "k", "a#1", "", 10, 11, 0)
			s.acquire(2, "k", "b#1", "", 490, 500, 0)
			s.observe(1000, "redis-1", history.ObserveEpoch, "1")
			return claimed(reports.Input{History: s.history()}, checker.Violation{Kind: checker.DoubleGrant, Lock: "k", From: ms(500), Until: history.Never, Events: []int64{1, 3}})
		},
		"no-capacity": func() reports.Input {
			s := &script{}
			s.acquire(1, "k", "a#1", "", 10, 11, 790)
			return claimed(reports.Input{History: s.history()}, checker.Violation{Kind: checker.OverCapacity, Lock: "k", From: ms(11), Until: ms(20), Events: []int64{1}, Explanation: "too many"})
		},
		"reentrancy-of-nobody": func() reports.Input {
			return claimed(reports.Input{History: &history.History{}}, checker.Violation{Kind: checker.Reentrancy, Lock: "k", Explanation: "again"})
		},
		"lost-to-unknown-end": func() reports.Input {
			s := &script{}
			s.declare("orders")
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 400)
			s.attempt(1, history.Release, "orders", "a#1", 20, 30, history.Info, "timeout")
			s.acquire(2, "orders", "b#1", "redis-1", 35, 36, 400)
			s.access(2, "orders", "b#1", "stock", "1>2", 40, 41)
			s.access(1, "orders", "a#1", "stock", "1>2", 50, 51)
			h := s.history()
			return claimed(reports.Input{Run: run(), History: h}, checker.Violation{Kind: checker.LostUpdate, Lock: "orders", Resource: "stock", From: ms(40), Until: ms(51), Events: []int64{8, 10}})
		},
		"loss-between-masters": func() reports.Input {
			s := &script{}
			s.declare("orders")
			s.fault(history.Inject, "failover", "", 100, 200, history.OK, "redis-2 took over from redis-1", "")
			s.observe(150, "redis-2", history.ObserveRole, "master")
			s.observe(900, "redis-1", history.ObserveRole, "replica")
			s.acquire(1, "orders", "zone-a.1#1", "", 300, 301, 2000)
			s.attempt(1, history.Release, "orders", "zone-a.1#1", 400, 401, history.Fail, "lock: not held")
			s.observe(1500, "redis-2", history.ObserveEpoch, "2")
			return judged(run(), s.history())
		},
		"loss-under-a-watchdog": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 0)
			s.attempt(1, history.Release, "orders", "a#1", 20, 21, history.Fail, "lock: not held")
		}),
		"cut-leases":           written(cutLeases(1000, 1100, 1002, 1300, 1001)),
		"two-steps":            written(twoSteps(2, 5, 8, 100)),
		"late-release-unknown": written(lateRelease(350, 360, history.Info, "")),
		"late-release-slow":    written(lateRelease(290, 360, history.OK, "")),
		"late-release-again":   written(lateRelease(350, 360, history.Fail, history.ConfirmedAgain)),
		"lost-after-an-overlap": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
			s.acquire(2, "orders", "b#1", "redis-1", 290, 291, 900)
			s.access(1, "orders", "a#1", "stock", "1>2", 295, 296)
			s.access(2, "orders", "b#1", "stock", "1>2", 500, 501)
		}),
		"split-brain-of-servers": func() reports.Input { return splitBrain(map[string]string{"clients": "kept"}) },
		"crashed-holder": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 3000)
			s.at(50, history.Event{Process: 1, Type: history.Info, Op: history.Crash, Lock: "orders", Owner: "a#1"})
			s.acquire(2, "orders", "b#1", "redis-1", 100, 101, 3000)
		}),
		"unseen-reader": func() reports.Input {
			return advised("mine", "lockchaos run --lock mine", unseenReader, "", "")
		},
		"excess-permits": func() reports.Input {
			return advised("mine", "lockchaos run --lock mine", tooManyPermits, "latency", "zone-a>redis-1")
		},
		"jumped-after-a-failover": func() reports.Input {
			return advised("mine", "lockchaos run --lock mine", jumped, "failover", "")
		},
		"granted-late":  grantedLate,
		"renumbered":    func() reports.Input { return renumbered(0, nil) },
		"jumped":        func() reports.Input { return advised("mine", "lockchaos run --lock mine", jumped, "", "") },
		"granted-twice": func() reports.Input { return advised("mine", "lockchaos run --lock mine", grantedTwice, "", "") },
		"smaller-token": func() reports.Input { return advised("mine", "lockchaos run --lock mine", smallerToken, "", "") },
		"unknown-access": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
			s.acquire(2, "orders", "b#1", "redis-1", 12, 13, 300)
			s.at(20, history.Event{Process: 1, Type: history.Invoke, Op: history.Access, Lock: "orders", Owner: "a#1", Resource: "stock"})
			s.at(25, history.Event{Process: 1, Type: history.Info, Op: history.Access, Lock: "orders", Owner: "a#1", Resource: "stock"})
		}),
		"one-grant": func() reports.Input {
			s := &script{}
			s.fault(history.Inject, "latency", "zone-a>redis-1", 5, 6, history.OK, "1 link slower by 5ms", "")
			s.acquire(1, "orders", "zone-a.1#1", "redis-1", 10, 11, 300)
			s.release(1, "orders", "zone-a.1#1", "redis-1", 20, 21)
			s.fault(history.Heal, "latency", "zone-a>redis-1", 30, 31, history.OK, "", "")
			return reports.Input{Run: run(), History: s.history(), Report: report(held("mutual-exclusion", "", ""))}
		},
		"contended": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
			s.acquire(2, "orders", "b#1", "redis-1", 20, 101, 300)
			s.release(1, "orders", "a#1", "redis-1", 99, 100)
			s.release(2, "orders", "b#1", "redis-1", 110, 111)
		}),
		"uncontended": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
			s.release(1, "orders", "a#1", "redis-1", 20, 21)
			s.acquire(2, "orders", "b#1", "redis-1", 30, 31, 300)
			s.attempt(2, history.Release, "orders", "b#1", 40, 41, history.Info, "timeout")
		}),
		"met-later": changed(valid, func(in *reports.Input) {
			s := &script{events: in.History.Events}
			end := float64(in.History.End()) / 1e6
			s.fault(history.Inject, "reset", "zone-a>redis-1", end+1, end+2, history.OK, "1 connection reset", "")
			s.at(end+3, history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Observe, Node: history.ObserveClients, What: history.ObserveMet, Fault: "reset", Target: "zone-a>redis-1", Value: "3"})
			in.History = s.history()
		}),
		"two-sides": func() reports.Input {
			s := &script{}
			s.declare("orders")
			s.acquire(1, "orders", "zone-a.1#1", "redis-1", 10, 11, 300)
			s.fault(history.Inject, "partition-halves", "", 20, 30, history.OK, "1 link silent", "")
			s.release(1, "orders", "zone-a.1#1", "redis-1", 40, 41)
			r := run()
			r.Topology = history.Topology{Name: "single", Nodes: []history.Node{{Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"}, {Name: "redis-1", Kind: "redis", Role: "master"}}}
			for _, zone := range []string{"zone-a", "zone-b"} {
				r.Topology.Links = append(r.Topology.Links, history.Link{Name: zone + ">redis-1", Kind: "client", From: zone, To: "redis-1"})
			}
			return reports.Input{Run: r, History: s.history(), Report: report(held("mutual-exclusion", "", ""))}
		},
		"cut-and-mended":     others("gremlin", "zone-a>redis-1 zone-b>redis-1", history.Cuts),
		"stalled-and-mended": others("gremlin", "", history.Stalls),
		"cut-off-and-mended": others("gremlin", "{redis-1}", history.Isolates),
		"of-another-program": others("gremlin", "redis-1"),
		"fault-never-answered": open(func(in *reports.Input) {
			s := &script{events: in.History.Events}
			s.at(float64(in.History.End())/1e6+1, history.Event{Process: history.NoProcess, Type: history.Invoke, Op: history.Inject, Fault: "reset", Target: "zone-a>redis-1"})
			in.History = s.history()
		}),
		"effects-in-another-order": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 100)
			s.acquire(2, "orders", "b#1", "redis-1", 20, 121, 500)
			s.access(1, "orders", "a#1", "stock", "0>1", 12, 150)
			s.access(2, "orders", "b#1", "prices", "0>1", 130, 140)
		}),
		"two-masters": written(func(s *script) {
			s.fault(history.Inject, "split-brain", "{redis-1 sentinel-1 zone-a}", 10, 20, history.OK, "cut", "")
			s.observe(50, "redis-2", history.ObserveRole, "master")
			s.acquire(1, "orders", "zone-a.1#1", "redis-1", 60, 61, 2000)
			s.acquire(2, "orders", "zone-b.1#1", "redis-2", 70, 71, 2000)
			s.fault(history.Heal, "split-brain", "{redis-1 sentinel-1 zone-a}", 200, 210, history.OK, "", "")
			s.observe(300, "redis-1", history.ObserveRole, "replica")
		}),
		"many-others": written(func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 100)
			for i := range 6 {
				at := 200 + 10*float64(i)
				owner := fmt.Sprintf("b#%d", i)
				s.acquire(2, "orders", owner, "redis-1", at, at+1, 100)
				s.release(2, "orders", owner, "redis-1", at+3, at+4)
			}
			s.access(1, "orders", "a#1", "stock", "1>2", 300, 301)
		}),
		"many-faults": changed(valid, func(in *reports.Input) {
			s := &script{events: in.History.Events}
			end := float64(in.History.End()) / 1e6
			for i := range 15 {
				at := end + 10*float64(i)
				s.fault(history.Inject, "reset", "zone-a>redis-1", at, at+1, history.OK, "1 connection reset", "")
			}
			s.fault(history.Inject, "cut", "zone-a>redis-1", end+200, end+201, history.Fail, "", "still connected")
			in.History = s.history()
		}),
		"acknowledged-by-another": acknowledgedByAnother,
		"restarted": func() reports.Input {
			s := &script{}
			s.declare("orders")
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 10000)
			s.fault(history.Inject, "restart", "redis-1", 20, 25, history.OK, "redis-1 restarted", "")
			s.acquire(2, "orders", "b#1", "redis-1", 100, 101, 10000)
			r := run()
			r.Topology = history.Topology{Name: "single", Nodes: []history.Node{{Name: "redis-1", Kind: "redis", Role: "master"}}}
			r.Command = "lockchaos run --topology single --seed 42"
			return judged(r, s.history())
		},
	}
	for name, tokens := range map[string][]int64{"one-token": {34, 34}, "old-tokens": {33, 32}} {
		all["fenced-"+name] = changed(fenced, func(in *reports.Input) {
			s := &script{events: in.History.Events}
			end := float64(in.History.End()) / 1e6
			for i, token := range tokens {
				s.access(1, "orders", "a#1", "ledger", "", end+5+float64(i), end+6+float64(i))
				e := &s.events[len(s.events)-1]
				e.Token, e.Type, e.Error = token, history.Fail, "stale token"
			}
			in.History = s.history()
			if name == "one-token" { // and that of before is none
				for i := range in.History.Events {
					if e := &in.History.Events[i]; e.Token == 33 && e.Op == history.Access {
						e.Token = 34
					}
				}
			}
		})
	}
	all["fenced-given-up"] = abandoned
	all["fenced-not-all"] = changed(fenced, func(in *reports.Input) {
		in.Report.Verdict = checker.Invalid
		in.Report.Results = append(in.Report.Results, checker.Result{Name: "protected-resource", Verdict: checker.Invalid, Violations: []checker.Violation{
			{Kind: checker.LostUpdate, Lock: "orders", Resource: "ledger", From: ms(1990), Until: ms(2010)},
		}})
	})
	return all
}

// acknowledgedByAnother is a grant that one replica had, before another was promoted.
func acknowledgedByAnother() reports.Input {
	s := &script{}
	s.declare("orders")
	s.fault(history.Inject, "cut", "redis-2>redis-1", 10, 12, history.OK, "1 link refusing", "")
	s.fault(history.Inject, "cut", "sentinel-1>redis-3", 400, 402, history.OK, "1 link refusing", "")
	s.acquire(1, "orders", "a#1", "redis-1", 440, 460, 30000)
	s.observe(471, "redis-1", history.ObserveKey, "orders a#1")
	s.observe(472, "redis-3", history.ObserveKey, "orders a#1")
	s.observe(473, "redis-2", history.ObserveKey, "orders")
	s.fault(history.Inject, "crash-failover", "redis-1", 540, 1324, history.OK, "redis-1 is gone, redis-2 is master", "")
	s.observe(834, "redis-2", history.ObserveRole, "master")
	s.fault(history.Heal, "cut", "sentinel-1>redis-3", 1330, 1332, history.OK, "1 link mended", "")
	s.fault(history.Heal, "crash-failover", "redis-1", 1335, 4640, history.OK, "redis-1 follows redis-2", "")
	s.observe(1837, "redis-1", history.ObserveRole, "replica")
	s.acquire(2, "orders", "b#1", "redis-2", 4641, 4665, 30000)
	r := run()
	r.Scenario, r.Cures = "wrong-replica-double-grant", []string{"count a grant only after every replica that may be promoted acknowledged it: lock.Config{ReplicaAcks: 2} (see wrong-replica-double-grant/two-acks)"}
	return judged(r, s.history())
}
