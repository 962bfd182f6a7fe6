package reports_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// What is told of a record, and what is not: a case for each rule that no golden file shows.
func TestStories(t *testing.T) {
	latency := func(at, healed float64) func(*script) {
		return func(s *script) {
			if at > 0 {
				s.fault(history.Inject, "latency", "zone-a>redis-1", at, at+1, history.OK, "slower", "")
				s.fault(history.Heal, "latency", "zone-a>redis-1", healed, healed+1, history.OK, "", "")
			}
			s.acquire(1, "orders", "a#1", "redis-1", 100, 101, 300)
			s.acquire(2, "orders", "b#1", "redis-1", 140, 141, 300)
			s.observe(900, "redis-1", history.ObserveEpoch, "1")
		}
	}
	// A lock that no client gets, and what the server was last seen to have.
	blocked := func(last string) func(*script) {
		return func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 12, 1000)
			s.attempt(2, history.Acquire, "orders", "b#1", 1200, 19000, history.Fail, "not acquired")
			s.observe(18990, "redis-1", history.ObserveKey, strings.TrimSpace("orders "+last))
			s.observe(19500, "redis-1", history.ObserveEpoch, "1")
		}
	}
	// A lock whose server has the key of a request that ended without a grant.
	givenUp := func(waited history.Type, looked float64) func(*script) {
		return func(s *script) {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 12, 9000)
			s.attempt(2, history.Acquire, "orders", "b#1", 20, 200, waited, "not acquired")
			s.release(1, "orders", "a#1", "redis-1", 1100, 1101)
			s.attempt(1, history.Acquire, "orders", "a#2", 1200, 19000, history.Fail, "not acquired")
			s.observe(looked, "redis-1", history.ObserveKey, "orders b#1")
			s.observe(19500, "redis-1", history.ObserveEpoch, "1")
		}
	}
	freed := func(first history.Type, what string) func(*script) {
		return func(s *script) {
			s.fault(history.Inject, "hold-command", "zone-a>redis-1", 5, 6, history.OK, "", "")
			s.fault(history.Heal, "hold-command", "zone-a>redis-1", 40, 42, history.OK, "", "")
			for i := range s.events {
				s.events[i].Params = map[string]string{"command": "DEL", "nth": "1"}
			}
			s.acquire(3, "orders", "c#1", "redis-1", 0, 1, 1000)
			s.attempt(3, history.Release, "orders", "c#1", 10, 12, first, "")
			s.acquire(1, "orders", "a#1", "redis-1", 20, 21, 1000)
			s.attempt(3, history.Release, "orders", "c#1", 30, 32, history.Fail, "not held")
			s.events[len(s.events)-1].What = what
			s.acquire(2, "orders", "b#1", "redis-1", 25, 31, 1000)
		}
	}
	withoutOne := func(granted bool) func(*script) {
		return func(s *script) {
			s.acquire(2, "orders", "b#0", "redis-1", 1, 2, 1000)
			s.attempt(1, history.Acquire, "orders", "a#0", 3, 5, history.Fail, "not acquired")
			s.release(2, "orders", "b#0", "redis-1", 10, 11)
			s.fault(history.Inject, "kill", "redis-2", 20, 21, history.OK, "", "")
			for i := range 5 {
				s.attempt(1, history.Acquire, "orders", "a#1", 100+float64(10*i), 105+float64(10*i), history.Info, "broken pipe")
			}
			if granted {
				s.acquire(2, "orders", "b#1", "redis-1", 200, 201, 1000)
				s.release(2, "orders", "b#1", "redis-1", 210, 211)
			}
			s.fault(history.Heal, "kill", "redis-2", 499, 500, history.OK, "", "")
		}
	}
	for _, tt := range []struct {
		name     string
		declare  history.Event // a mutex without
		script   func(*script)
		headline string
		marked   string // the event of the violation begins so
		told     string // any of it, separated by |
		not      string // none of it, separated by |
		cure     string // the first of them
		watched  bool   // the clients leave their holds to a watchdog
		driver   string // what it did wrong
		look     string // it begins so
		topology string // a sentinel one without
	}{
		{
			name: "a release that the service confirmed again", script: freed(history.OK, history.ConfirmedAgain), cure: "owner-checked-release",
			told: "At 0.030 s client c asked to release orders (though it did not hold it; the service confirmed that, at 0.032 s)",
		},
		{
			name: "a release that a fault kept back", script: freed(history.Info, ""), cure: "fencing",
			told: "At 0.010 s client c asked to release orders (its outcome is unknown: the service may have done that later)|" +
				"hold-command zone-a>redis-1 (command DEL, nth 1, from 0.006 s to 0.042 s)",
		},
		{
			name: "the first overlap of a chain: the release of the hold that overlaps on both sides is rightful",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 300)
				s.acquire(3, "orders", "c#1", "redis-1", 95, 96, 300)
				s.release(1, "orders", "a#1", "redis-1", 100, 101)
				s.acquire(2, "orders", "b#1", "redis-1", 109, 110, 300)
				s.access(3, "orders", "c#1", "ledger", "1>2", 120, 121)
				s.access(2, "orders", "b#1", "ledger", "1>2", 122, 123)
				s.release(3, "orders", "c#1", "redis-1", 200, 201)
			},
			headline: "Two clients held the lock orders at the same time for 4 ms", told: "At 0.001 s client a was granted orders", cure: "fencing",
		},
		{name: "a fault in effect", script: latency(20, 150), told: "In effect at the time: latency zone-a>redis-1 (from 0.021 s to 0.151 s)."},
		{name: "a fault before", script: latency(20, 50), told: "No fault was in effect at the time."},
		{
			name: "a fault that was over when the violation began", told: "No fault was in effect at the time. Before it: drop-reply zone-a>redis-1 (at 0.111 s) and kill redis-1 (data lost, from 0.116 s to 0.121 s).|At 0.116 s redis-1 was killed and lost its data",
			script: func(s *script) {
				s.fault(history.Inject, "drop-reply", "zone-a>redis-1", 110, 111, history.OK, "", "")
				s.fault(history.Inject, "kill", "redis-1", 115, 116, history.OK, "", "")
				s.events[len(s.events)-2].Params = map[string]string{"data": "lost"}
				s.fault(history.Heal, "kill", "redis-1", 120, 121, history.OK, "", "")
				latency(0, 0)(s)
			},
		},
		{name: "a fault after", script: latency(500, 600), told: "No fault was in effect at the time."},
		{name: "no fault", script: latency(0, 0), told: "No fault was injected."},
		{
			name: "an extension that was confirmed after the lease of its hold began the overlap",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 1000)
				s.acquire(2, "orders", "b#1", "redis-1", 900, 1013, 10000)
				e := history.Event{Process: 1, Type: history.Invoke, Op: history.Extend, Lock: "orders", Owner: "a#1"}
				s.at(1090, e)
				e.Type, e.Expires = history.OK, ms(11100)
				s.at(1102, e)
				s.observe(4000, "redis-1", history.ObserveEpoch, "1")
			},
			marked: "client a was confirmed an extension of orders", cure: "owner-checked-extension",
		},
		{
			name: "the release of an inner grant freed the lock", look: "whether nested grants are counted", declare: history.Event{Kind: "mutex", Reentrant: true},
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 1000)
				s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 1000)
				s.release(1, "orders", "a#1", "redis-1", 20, 21)
				s.acquire(2, "orders", "b#1", "redis-1", 30, 31, 1000)
			},
		},
		{name: "two grants on independent servers", topology: "independent", script: latency(0, 0), look: "whether a grant and an extension take a majority"},
		{name: "no grant while one of three servers is down", topology: "independent", script: withoutOne(false), told: "No client was granted a lock under kill redis-2 (from 0.021 s to 0.500 s), which left a majority of the 3 servers: 5 requests for a lock that no client held failed."},
		{name: "a grant while one of three servers is down", topology: "independent", script: withoutOne(true), not: "left a majority"},
		{name: "servers that are no quorum", script: withoutOne(false), not: "left a majority"},
		{
			name: "a hold that its watchdog did not keep, and did not tell", watched: true,
			script: func(s *script) {
				s.fault(history.Inject, "stall", "zone-a>redis-1", 50, 51, history.OK, "silent", "")
				s.fault(history.Heal, "stall", "zone-a>redis-1", 1150, 1151, history.OK, "", "")
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 0)
				s.acquire(2, "orders", "b#1", "redis-1", 1100, 1101, 0)
				s.release(2, "orders", "b#1", "redis-1", 1200, 1201)
				s.attempt(1, history.Release, "orders", "a#1", 3000, 3001, history.Fail, "not held")
			},
			told: "client a was granted orders by redis-1 (left to the watchdog, which renews a lease of 1,000 ms, asked to release at 3.000 s)|stall zone-a>redis-1 lasted longer than the lease of 1,000 ms that the watchdog renews", cure: "watchdog-tells",
		},
		{
			name: "an extension without an answer, whose clean-up freed the lock",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 3000)
				s.attempt(1, history.Extend, "orders", "a#1", 10, 500, history.Info, "i/o timeout")
				s.acquire(2, "orders", "b#1", "redis-1", 600, 601, 1000)
				s.release(2, "orders", "b#1", "redis-1", 700, 701)
				s.attempt(3, history.Release, "orders", "a#1", 2500, 2501, history.Fail, "not held")
			},
			told: "At 0.010 s client a asked to extend orders (its outcome is unknown)", cure: "extension-leaves-hold",
		},
		{
			name: "a library that hangs", driver: "the driver of zone-a did not answer request 9 (acquire) in 10s",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 1000)
				s.release(1, "orders", "a#1", "redis-1", 100, 101)
				s.attempt(2, history.Acquire, "orders", "b#1", 1200, 3700, history.Info, "context deadline exceeded")
			},
			told: "Client b asked to acquire orders at 1.200 s and had no answer for 2,500 ms. No fault was in effect then, and no client held it: look for a deadlock",
		},
		{
			name: "a client that crashed did no more, and no release is taken for the cause that got no answer",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 1000)
				s.fault(history.Inject, "hold-command", "zone-a>redis-1", 20, 21, history.OK, "", "")
				s.attempt(1, history.Release, "orders", "a#1", 500, 1000, history.Info, "i/o timeout")
				s.acquire(2, "orders", "b#1", "redis-1", 1100, 1101, 1000)
				s.at(1200, history.Event{Process: 2, Type: history.Info, Op: history.Crash, Lock: "orders", Owner: "b#1"})
				s.fault(history.Heal, "hold-command", "zone-a>redis-1", 1500, 1501, history.OK, "", "")
				s.acquire(3, "orders", "c#1", "redis-1", 1500, 1502, 1000)
				s.observe(4000, "redis-1", history.ObserveEpoch, "1")
			},
			told: "client b crashed", cure: "fencing",
		},
		{
			name: "two processes of one owner are not one client",
			script: func(s *script) {
				s.acquire(1, "orders", "host-1", "redis-1", 0, 1, 1000)
				s.acquire(2, "orders", "host-1", "redis-1", 100, 101, 1000)
				s.observe(900, "redis-1", history.ObserveEpoch, "1")
			},
			headline: "The lock orders was granted twice under the owner host-1, by the processes p1 and p2",
		},
		{
			name: "what followed a refused release of a hold without a lease",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 0)
				s.attempt(1, history.Release, "orders", "a#1", 1000, 1001, history.Fail, "lock: not held")
				s.attempt(2, history.Acquire, "orders", "b#1", 2000, 2002, history.Fail, "not acquired")
				s.attempt(2, history.Acquire, "orders", "b#2", 4900, 4902, history.Fail, "not acquired")
				s.attempt(4, history.Acquire, "orders", "a#2", 4950, 4952, history.Fail, "not acquired") // of the same client
				s.acquire(3, "orders", "c#1", "redis-1", 900, 5013, 1000)                                // it waited
			},
			headline: "Client a was told that it does not hold the lock orders",
			told:     "(asked to release at 1.000 s)|After that 2 requests of other clients were refused, the last at 4.902 s; client c was granted it at 5.013 s.",
		},
		{
			name: "what followed: none was granted",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 0)
				s.attempt(1, history.Release, "orders", "a#1", 1000, 1001, history.Fail, "lock: not held")
				s.attempt(2, history.Acquire, "orders", "b#1", 1100, 1102, history.Fail, "not acquired")
				s.attempt(2, history.Acquire, "orders", "b#2", 1200, 1900, history.Info, "i/o timeout")
			},
			told: "After that 1 request of other clients was refused, the last at 1.102 s; no grant to another client is in the record.",
		},
		{
			name: "work that goes on after the release",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 5000)
				s.access(9, "orders", "a#1", "ledger", "1>2", 10, 260) // in a thread of its own
				s.release(1, "orders", "a#1", "redis-1", 100, 101)
				s.acquire(2, "orders", "b#1", "redis-1", 110, 111, 5000)
				s.access(2, "orders", "b#1", "ledger", "1>2", 120, 130)
				s.release(2, "orders", "b#1", "redis-1", 140, 141)
			},
			told: "client a released orders", cure: "finish-first",
		},
		{
			name: "work without the lock",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 3, 30_000)
				s.attempt(2, history.Acquire, "orders", "b#1", 100, 103, history.Fail, "lock not acquired")
				s.access(2, "orders", "b#1", "stock", "1>2", 1200, 1210)
				s.release(1, "orders", "a#1", "redis-1", 1400, 1401)
			},
			headline: "Client b used stock without holding orders", told: "though its request was refused at 0.103 s", not: "stop when the hold ends", cure: "only-when-granted",
		},
		{
			name: "an access that its client gave up by itself was refused by no resource",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 0, 1, 300)
				s.acquire(2, "orders", "b#1", "redis-1", 200, 201, 300)
				s.attempt(1, history.Access, "orders", "a#1", 250, 251, history.Fail, history.Abandoned)
			},
			told: "(fencing)", not: "refused client a",
		},
		{
			name: "of two holds of a client that is lost which it was refused to give back", declare: history.Event{Kind: "rw"},
			script: func(s *script) { // a writer that goes on as a reader on a server that forgot it as a writer
				s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 2000)
				s.mode(history.Write)
				s.fault(history.Inject, "restart-empty", "redis-1", 20, 30, history.OK, "redis-1 was killed, lost its data and answers again", "")
				s.acquire(1, "orders", "a#1", "redis-1", 40, 50, 2000)
				s.mode(history.Read)
				s.attempt(1, history.Release, "orders", "a#1", 51, 52, history.Fail, "lock: not held")
				s.mode(history.Write)
				s.release(1, "orders", "a#1", "redis-1", 70, 71)
				s.mode(history.Read)
			},
			headline: "Client a was told that it does not hold the lock orders, 1,958 ms before its lease was over",
			marked:   "client a was refused the release of orders (write)",
			told:     "client a was granted orders (write) by redis-1 (lease 2,000 ms, until 2.010 s)|restart-empty redis-1 (at 0.030 s)", not: "(read)",
		},
		{
			name: "how many permits each grant had", declare: history.Event{Kind: history.KindSemaphore, Capacity: 2},
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 5000)
				s.in(func(e *history.Event) { e.Mode, e.Permits = history.Permit, 2 })
				s.acquire(2, "orders", "b#1", "redis-1", 20, 21, 5000)
				s.mode(history.Permit)
			},
			told: "client a was granted orders (2 permits) by redis-1|client b was granted orders (permit) by redis-1",
		},
		{
			name: "two looks at one server are two",
			script: func(s *script) {
				s.acquire(1, "orders", "a#1", "", 10, 12, 30000)
				s.observe(14, "redis-1", history.ObserveKey, "orders")
				s.observe(15, "redis-2", history.ObserveKey, "orders")
				s.observe(16, "redis-1", history.ObserveKey, "orders a#1")
				s.acquire(2, "orders", "b#1", "", 20, 22, 30000)
			},
			told: "At 0.014 s redis-1 and redis-2 had no holder of orders. At 0.016 s redis-1 had client a as the holder of orders.",
		},
		{
			name: "what blocks a lock", script: blocked("a#1"), headline: "No client could acquire the lock orders for 17.8 s, although it was free",
			told: "At 18.990 s redis-1 still had the key of client a (whose hold was over at 1.010 s: while it is there, orders is not granted).",
		},
		{name: "nothing that is seen blocks it", script: blocked(""), not: "still had the key"},
		{name: "a client of whose hold nothing is known", script: blocked("c#1"), not: "still had the key"},
		{name: "a request that gave up blocks it", script: givenUp(history.Fail, 18990), told: "At 18.990 s redis-1 still had the key of client b (whose request was refused at 0.200 s: while it is there"},
		{name: "a request that may have been granted", script: givenUp(history.Info, 18990), not: "still had the key"},
		{name: "a busy machine looked late", script: givenUp(history.Fail, 19300), told: "At 19.300 s redis-1 still had the key of client b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{}
			if tt.declare.Kind == "" {
				tt.declare.Kind = "mutex"
			}
			s.declareAs("orders", tt.declare)
			tt.script(s)
			r := run()
			r.Command, r.DriverFault = "lockchaos run --topology sentinel --seed 42", tt.driver
			r.Topology.Name = cmp.Or(tt.topology, r.Topology.Name)
			in := judged(r, s.history())
			if tt.watched {
				in.Report.Results[0].Met, in.Run.Watchdog = map[string]int{history.MetUnleased: 2}, ms(1000)
			}
			results := reports.Summarize(in)
			told, marked := paragraph(results), ""
			for _, e := range results.Story.Events {
				if e.Kind == reports.EventViolation {
					marked = e.Text
				}
			}
			if tt.headline != "" {
				require.Equal(t, tt.headline, results.Story.Headline)
			}
			require.True(t, strings.HasPrefix(marked, tt.marked), marked)
			require.True(t, strings.HasPrefix(results.Story.Look, tt.look), results.Story.Look)
			for part := range strings.SplitSeq(tt.told, "|") {
				require.Contains(t, told, part)
			}
			if tt.not != "" {
				require.NotContains(t, told, tt.not)
			}
			if tt.cure != "" {
				require.Equal(t, tt.cure, results.Story.Cures[0].ID)
			}
		})
	}
}

// The first violation with damage is told, and not one before it, or a longer one.
func TestTheFirstViolationWithDamageIsTold(t *testing.T) {
	r := reports.Summarize(twoFaults())
	require.Equal(t, "Two clients held lock-3 at the same time for 6 ms", r.Story.Headline)
	require.Contains(t, paragraph(r), "Damage by these clients: 2 lost updates, the first at 2.607 s.")
	require.Equal(t, 13, r.Counts.Total)
	require.Equal(t, ms(2603), r.Story.Events[2].At)
	require.Equal(t, reports.EventViolation, r.Story.Events[2].Kind)
	in := failover()
	in.Report.Results[1], in.Report.Results[3] = in.Report.Results[3], in.Report.Results[1]
	require.Equal(t, reports.Summarize(failover()).Story.Headline, reports.Summarize(in).Story.Headline, "in whatever order they are found")
}

// What a run had already is no cure for it, nor is what helps against effects that no fault had.
func TestCuresGoByKindsEffectsAndSettings(t *testing.T) {
	ids := func(change func(in *reports.Input)) (all []string) {
		in := failover()
		in.Run.Scenario, in.Run.Cures, in.Run.Command = "", nil, "lockchaos run --topology sentinel --seed 1"
		for i := range in.History.Events {
			if e := &in.History.Events[i]; e.Fault == "kill" {
				e.Effects, e.Life = []history.Effect{history.Promotes, history.Stops}, history.Lasting
			}
		}
		change(&in)
		for _, c := range reports.Summarize(in).Story.Cures {
			all = append(all, c.ID)
		}
		return all
	}
	require.Equal(t, []string{"replica-acks", "fencing"}, ids(func(*reports.Input) {}))
	require.Equal(t, []string{"fencing"}, ids(func(in *reports.Input) { in.Run.Settings = []byte(`{"replica_acks":1}`) }))
	require.Equal(t, []string{"replica-acks"}, ids(func(in *reports.Input) { in.Run.Fencing = true }))
	require.Equal(t, []string{"append-only-file", "replica-acks", "fencing"}, ids(func(in *reports.Input) {
		for i := range in.History.Events {
			if e := &in.History.Events[i]; e.Fault == "kill" {
				e.Effects, e.Params = []history.Effect{history.Promotes, history.Stops, history.Restarts}, map[string]string{"data": "lost"}
			}
		}
		c := history.Cause{Kind: checker.DoubleGrant, Until: history.Never, Verdict: history.CauseDeployment}
		for _, f := range reports.Summarize(*in).Faults {
			c.Faults = append(c.Faults, history.Suspect{Fault: f.Name, Target: f.Target, Start: f.Start, Role: history.RoleNeeded})
		}
		in.Run.Causes = []history.Cause{c}
	}), "of a limit of the deployment")
	require.Equal(t, []string{"fencing"}, ids(func(in *reports.Input) {
		for i := range in.History.Events {
			in.History.Events[i].Effects = nil
			if in.History.Events[i].Fault != "" {
				in.History.Events[i].Effects = []history.Effect{history.Delays}
			}
		}
	}))
}
