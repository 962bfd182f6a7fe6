package reports_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// The failover comes first in time, the split brain is graver; each has a story.
func TestTwoCauses(t *testing.T) {
	r := reports.Summarize(twoCauses())
	require.Len(t, r.Causes, 2)
	split, failover := r.Causes[0], r.Causes[1]
	require.Equal(t, "split-brain", split.Fault)
	require.Equal(t, []string{"redis-1", "redis-2"}, split.Servers)
	require.Positive(t, split.Violations[checker.DoubleGrant])
	require.Positive(t, split.Violations[checker.LostUpdate])
	require.Equal(t, "failover", failover.Fault)
	require.Zero(t, failover.Violations[checker.DoubleGrant])
	require.Regexp(t, `^failover, 0\.500 s to 0\.600 s: \d+ premature loss`, failover.Title)
	require.Contains(t, failover.Story.Headline, "before its lease could run out")
	require.Contains(t, split.Impact, "had a known outcome")
	require.Equal(t, r.Story, split.Story)

	// A cure of one does not help against the other, and it is not known that it helps.
	require.True(t, split.Story.Untried)
	var tried []string
	for _, c := range split.Cures {
		require.False(t, c.Prevents)
		require.NotEmpty(t, c.Cost, c.Text)
		tried = append(tried, c.Try)
	}
	require.Contains(t, tried, "lockchaos run --topology sentinel --seed 42 --replica-acks 1")
	require.Contains(t, tried, "lockchaos run --topology sentinel --seed 42 --min-replicas 1")

	for name, write := range map[string]func(io.Writer) error{
		"text":     func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{Width: 200}) },
		"markdown": func(w io.Writer) error { return reports.WriteMarkdown(w, r) },
		"html":     func(w io.Writer) error { return reports.WriteHTML(w, twoCauses()) },
		"json":     func(w io.Writer) error { return reports.WriteJSON(w, r) },
		"junit":    func(w io.Writer) error { return reports.WriteJUnit(w, r) },
	} {
		out := strings.ReplaceAll(string(written(t, write)), `\`, "")
		for _, c := range r.Causes {
			require.True(t, strings.Contains(out, c.Title), "%s does not tell %s", name, c.Title)
			if name == "text" || name == "markdown" {
				words := strings.Join(strings.Fields(out), " ")
				require.Contains(t, words, c.Story.Headline, name)
				require.Contains(t, words, c.Impact, name)
			}
		}
		require.False(t, strings.Contains(out, "What would have prevented it"), "%s claims what nobody tried", name)
	}
}

// Two grants by one server are not the work of a failover, and come first: no cure of a
// fault helps against them.
func TestWithoutAnyFaultComesFirst(t *testing.T) {
	all := injectable()
	r := reports.Summarize(withCauses(3, all[0], all[2]))
	require.Len(t, r.Causes, 2)
	require.Empty(t, r.Causes[0].Fault)
	require.Contains(t, r.Causes[0].Title, "without any fault, ")
	require.Empty(t, r.Causes[0].Cures)
	require.Equal(t, "split-brain", r.Causes[1].Fault)
	require.Equal(t, r.Story, r.Causes[0].Story)

	// Also while such a fault is in effect.
	s := &script{}
	s.declare("orders")
	s.fault(history.Inject, "split-brain", "{redis-1 zone-a}", 10, 20, history.OK, "redis-2 is the master", "")
	s.acquire(1, "orders", "zone-a.1#1", "redis-1", 30, 31, 300)
	s.acquire(2, "orders", "zone-a.2#1", "redis-1", 32, 33, 300)
	s.fault(history.Heal, "split-brain", "{redis-1 zone-a}", 400, 410, history.OK, "", "")
	r = reports.Summarize(judged(run(), s.history()))
	require.Len(t, r.Causes, 1)
	require.Empty(t, r.Causes[0].Fault)
	require.Empty(t, r.Causes[0].Cures, "acknowledgements do not keep one server from granting twice")
}

// Of two double grants without a fault, that is told which a confirmed release explains,
// although the other one lasts longer; and the longer one where neither is explained.
func TestTheExplainedOfDoubleGrantsIsTold(t *testing.T) {
	t.Parallel()
	for _, confirmed := range []bool{true, false} {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "a#1", "redis-1", 100, 101, 1000)
		s.acquire(2, "orders", "b#1", "redis-1", 200, 201, 1000)
		s.acquire(1, "orders", "a#2", "redis-1", 3000, 3001, 100)
		s.acquire(2, "orders", "b#2", "redis-1", 3200, 3201, 1000)
		if confirmed {
			s.release(1, "orders", "a#2", "redis-1", 3300, 3301)
		} else {
			s.attempt(1, history.Release, "orders", "a#2", 3300, 3301, history.Fail, "not held")
		}
		s.acquire(3, "orders", "c#1", "redis-1", 3310, 3311, 1000)
		s.release(2, "orders", "b#2", "redis-1", 3500, 3501)
		s.release(3, "orders", "c#1", "redis-1", 3600, 3601)
		h := s.history()
		got := reports.Summarize(reports.Input{Run: run(), History: h, Report: checker.Check(t.Context(), h)})
		require.Len(t, got.Causes, 1)
		require.Equal(t, 2, got.Causes[0].Violations[checker.DoubleGrant])
		if confirmed {
			require.Contains(t, got.Story.Headline, "for 189 ms")
			require.Contains(t, fmt.Sprint(got.Story), "the release of orders by client a was confirmed, although it did not hold it")
		} else {
			require.Contains(t, got.Story.Headline, "for 899 ms")
		}
	}
}

// A cure that a variant shows is known to prevent it.
func TestACureOfAScenarioIsKnown(t *testing.T) {
	in := failover()
	in.Run.Cures = []string{"count a grant only after replicas acknowledged it: lock.Config{ReplicaAcks: 1} (see failover-double-grant/replica-acks)"}
	r := reports.Summarize(in)
	require.Len(t, r.Causes, 1)
	require.Equal(t, "lockchaos reproduce failover-double-grant/replica-acks", r.Causes[0].Cures[0].Try)
	require.True(t, r.Causes[0].Cures[0].Prevents)
	require.Empty(t, r.Causes[0].Cures[0].Config, "the text has it")
	require.Contains(t, htmlOf(t, in), "What would have prevented it")
}

// Whatever causes a history has: each that has a finding is told, its marks are on the
// chart of the whole run, and the events that prove its story are on the page.
func TestEachCauseIsTold_NoRace(t *testing.T) {
	all := injectable()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var causes []cause
		for _, i := range rng.Perm(len(all))[:2+rng.IntN(2)] {
			causes = append(causes, all[i])
		}
		in := withCauses(seed, causes...)
		r := reports.Summarize(in)
		page := htmlOf(t, in)
		require.Len(t, r.Causes, len(causes), "seed %d", seed)
		marks := 0
		for _, m := range marksOf(page) {
			n := 1
			if _, err := fmt.Sscanf(m, "%d violations from", &n); err != nil {
				n = 1
			}
			marks += n
		}
		found := 0
		for _, c := range r.Causes {
			for _, n := range c.Violations {
				found += n
			}
			require.True(t, strings.Contains(page, "Cause ") && strings.Contains(page, c.Title), "seed %d: %s", seed, c.Title)
		}
		require.Equal(t, found, marks, "seed %d", seed)
		require.Equal(t, len(causes), strings.Count(page, "as told above: the evidence"), "seed %d", seed)
		for _, c := range causes {
			told := false
			for _, of := range r.Causes {
				told = told || of.Fault == c.name && of.Violations[c.kind] > 0
			}
			require.True(t, told, "seed %d: %q is not told as a cause of a %s", seed, c.name, c.kind)
		}
	}
}

// The lock of another library waits for no replica: the command of a cure that does so is
// that of a lock which can.
func TestCuresOfALockThatAsksNoReplicas(t *testing.T) {
	in := twoCauses()
	in.Run.Command, in.Run.Lock = "lockchaos run --lock redislock --topology sentinel --seed 42", "redislock"
	in.Run.Unpromised = []string{history.UnpromisedAcks}
	var tried []string
	for _, cause := range reports.Summarize(in).Causes {
		for _, c := range cause.Cures {
			tried = append(tried, c.Try)
		}
	}
	require.Contains(t, tried, "lockchaos run --topology sentinel --seed 42 --lock mutex --replica-acks 1")
	require.NotContains(t, tried, "lockchaos run --lock redislock --topology sentinel --seed 42 --replica-acks 1")
}

// The command of a cure has a lock of the kind of that which was tested: no mutex grants permits.
func TestCuresOfALockOfAnotherKind(t *testing.T) {
	for lock, is := range map[string]history.Event{
		"mutex": {}, "mutex-fair": {Fair: true}, "rwmutex": {Kind: history.KindRW}, "semaphore-permit": {Kind: history.KindSemaphore},
	} {
		in := twoCauses()
		for i := range in.History.Events {
			if e := &in.History.Events[i]; e.Op == history.Declare {
				e.Kind, e.Fair = is.Kind, is.Fair
			}
		}
		in.Run.Command, in.Run.Lock = "lockchaos run --lock mine --topology sentinel --seed 42", "mine"
		in.Run.Unpromised = []string{history.UnpromisedAcks}
		var tried []string
		for _, cause := range reports.Summarize(in).Causes {
			for _, c := range cause.Cures {
				tried = append(tried, c.Try)
			}
		}
		require.Contains(t, tried, "lockchaos run --topology sentinel --seed 42 --lock "+lock+" --replica-acks 1")
	}
}

// A sentinel keeps no lock: that it was killed explains two grants where a server was promoted
// after it alone.
func TestASentinelKeepsNoLock(t *testing.T) {
	cause := func(promoted bool) string {
		in := advised("mine", "", func(s *script) {
			twoHolders(s)
			s.fault(history.Inject, "kill", "sentinel-1", 100, 101, history.OK, "down", "")
			if promoted {
				s.observe(150, "redis-2", history.ObserveRole, "master")
				s.observe(150, "redis-1", history.ObserveRole, "replica")
				for i := range s.events {
					if e := &s.events[i]; e.Time == ms(201) {
						e.Node = "redis-2"
					}
				}
			}
		}, "", "")
		r := reports.Summarize(in)
		require.Len(t, r.Causes, 1)
		return r.Causes[0].Title
	}
	require.Contains(t, cause(false), "without any fault")
	require.Contains(t, cause(true), "kill sentinel-1")
}

// shards are two masters with a replica each.
func shards() history.Topology {
	return history.Topology{Name: "cluster", Nodes: []history.Node{
		{Name: "redis-1", Kind: "redis", Role: "master"},
		{Name: "redis-2", Kind: "redis", Role: "master"},
		{Name: "redis-3", Kind: "redis", Role: "replica", Of: "redis-1"},
		{Name: "redis-4", Kind: "redis", Role: "replica", Of: "redis-2"},
	}}
}

// A partition during which no other server became a master explains nothing as a new master
// does, and what helps against one is no cure.
func TestAPartitionWithoutANewMasterIsNoSplitBrain(t *testing.T) {
	t.Parallel()
	partitioned := func(promoted bool) reports.Results {
		s := &script{}
		s.observe(0, "redis-1", history.ObserveRole, "master")
		s.fault(history.Inject, "partition-bridge", "redis-1", 5, 8, history.OK, "4 links refusing", "")
		if promoted {
			s.observe(9, "redis-3", history.ObserveRole, "master")
		}
		tooManyPermits(s)
		for i := range s.events {
			switch e := &s.events[i]; e.Op {
			case history.Acquire:
				e.Node = "" // which of the masters granted it is not recorded
			case history.Inject:
				e.Effects = []history.Effect{history.Isolates, history.Cuts}
			default:
			}
		}
		r := run()
		r.Topology = shards()
		return reports.Summarize(judged(r, s.history()))
	}
	const acks, lock = "count a grant only after replicas acknowledged it", "Most locks withstand such a fault."
	told := partitioned(true).Story.String()
	require.Contains(t, told, acks)
	require.NotContains(t, told, lock)
	told = partitioned(false).Story.String()
	require.NotContains(t, told, acks)
	require.Contains(t, told, lock)
}

// A lock that gives out a permit too many all the time does so during a fault, too: that does
// not explain it, though it could. A fault that comes with more of them does.
func TestAFaultIsNoCauseOfWhatComesAsOftenWithoutIt(t *testing.T) {
	t.Parallel()
	leaky := func(during int) reports.Results {
		s := &script{}
		s.declareAs("orders", history.Event{Kind: history.KindSemaphore, Capacity: 1})
		p := 0
		pair := func(at float64) {
			for i := range 2 {
				p++
				owner := fmt.Sprintf("c%d#1", p)
				s.acquire(p, "orders", owner, "redis-1", at+float64(i), at+float64(i)+0.5, 5000)
				s.mode(history.Permit)
				s.release(p, "orders", owner, "redis-1", at+3+float64(i), at+3.5+float64(i))
				s.mode(history.Permit)
			}
		}
		for i := range 20 {
			pair(100 * float64(i))
		}
		for i := range during {
			pair(2001 + 10*float64(i))
		}
		s.fault(history.Inject, "evict", "redis-1", 2000, 2002, history.OK, "redis-1 threw out 4 keys", "")
		s.fault(history.Heal, "evict", "redis-1", 2100, 2101, history.OK, "", "")
		for i := range 20 {
			pair(2200 + 100*float64(i))
		}
		return reports.Summarize(judged(run(), s.history()))
	}
	r := leaky(1)
	require.Len(t, r.Causes, 1)
	require.Empty(t, r.Causes[0].Fault, r.Causes[0].Title)
	r = leaky(10)
	require.Len(t, r.Causes, 2)
	require.Equal(t, "evict", r.Causes[1].Fault)
	require.Equal(t, 10, r.Causes[1].Violations[checker.OverCapacity])
}

// A server that was killed has forgotten the grants of before. It explains no double grant of
// two requests that were sent later, if the lock is granted twice without any fault, too. One that
// throws keys out until it is healed does.
func TestAServerForgetsOnlyWhatItGrantedBefore(t *testing.T) {
	t.Parallel()
	causes := func(fault string, sent float64) (faults []string) {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "a#1", "redis-1", 1, 2, 8)
		s.acquire(2, "orders", "b#1", "redis-2", 3, 4, 6)
		s.fault(history.Inject, fault, "redis-1", 20, 22, history.OK, "seen", "")
		s.acquire(1, "orders", "a#2", "redis-1", sent, sent+1, 3000)
		s.acquire(2, "orders", "b#2", "redis-2", 40, 41, 3000)
		s.observe(4000, "redis-1", history.ObserveEpoch, "1")
		r := run()
		r.Topology = history.Topology{Name: "independent"}
		for _, name := range []string{"redis-1", "redis-2", "redis-3"} {
			r.Topology.Nodes = append(r.Topology.Nodes, history.Node{Name: name, Kind: "redis", Role: "master"})
		}
		for _, c := range reports.Summarize(judged(r, s.history())).Causes {
			faults = append(faults, c.Fault)
		}
		return faults
	}
	require.Equal(t, []string{"", "kill"}, causes("kill", 15))
	require.Equal(t, []string{""}, causes("kill", 30))
	require.Equal(t, []string{"", "evict"}, causes("evict", 30))
}

// A lost update belongs to the two grants that made it, and not to a later one beside one of them.
func TestALostUpdateIsOfTheGrantsThatMadeIt(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 3000)
	s.fault(history.Inject, "restart", "redis-1", 20, 25, history.OK, "redis-1 restarted", "")
	s.acquire(2, "orders", "b#1", "redis-1", 100, 101, 3000)
	s.acquire(3, "orders", "c#1", "redis-1", 110, 111, 3000)
	s.access(1, "orders", "a#1", "stock", "1>2", 120, 150)
	s.access(2, "orders", "b#1", "stock", "1>2", 120, 160)
	r := run()
	r.Topology = history.Topology{Name: "single", Nodes: []history.Node{{Name: "redis-1", Kind: "redis", Role: "master"}}}
	causes := reports.Summarize(judged(r, s.history())).Causes
	require.Len(t, causes, 2)
	require.Empty(t, causes[0].Fault)
	require.Zero(t, causes[0].Violations[checker.LostUpdate])
	require.Equal(t, "restart", causes[1].Fault)
	require.Equal(t, 1, causes[1].Violations[checker.LostUpdate])
}

// That a release of a client that does not hold is confirmed explains double grants only if none
// came before the first such release.
func TestAReleaseExplainsNoDoubleGrantOfBefore(t *testing.T) {
	t.Parallel()
	story := func(before bool) string {
		s := &script{}
		s.declare("orders")
		if before {
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 3000)
			s.acquire(2, "orders", "b#1", "redis-1", 20, 21, 3000)
		}
		s.acquire(1, "orders", "a#2", "redis-1", 5000, 5001, 100)
		s.acquire(2, "orders", "b#2", "redis-1", 5110, 5111, 5000)
		s.release(1, "orders", "a#2", "redis-1", 5200, 5201)
		s.acquire(3, "orders", "c#1", "redis-1", 5210, 5211, 5000)
		return reports.Summarize(judged(run(), s.history())).Story.String()
	}
	const compare = "What may prevent it: compare the owner and delete in one step"
	require.Contains(t, story(false), compare)
	require.NotContains(t, story(true), compare)
	require.Contains(t, story(true), "this is a bug of the lock")
}

// Nor does it explain an update that is lost between two such holds, where the double grant itself
// is not among the violations that are listed.
func TestAServerForgotNoHoldOfALostUpdate(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.declare("orders")
	for i, at := range []float64{10, 210} {
		a, b := fmt.Sprint("a#", i), fmt.Sprint("b#", i)
		s.acquire(1, "orders", a, "", at, at+1, 3000)
		s.acquire(2, "orders", b, "", at+30, at+31, 3000)
		s.access(1, "orders", a, "stock", "1>2", at+32, at+33)
		s.access(2, "orders", b, "stock", "1>2", at+32, at+34)
		s.release(2, "orders", b, "", at+40, at+41)
		s.release(1, "orders", a, "", at+50, at+51)
	}
	s.fault(history.Inject, "kill", "redis-2", 100, 102, history.OK, "down", "")
	r := run()
	r.Topology = history.Topology{Name: "independent"}
	for _, name := range []string{"redis-1", "redis-2", "redis-3"} {
		r.Topology.Nodes = append(r.Topology.Nodes, history.Node{Name: name, Kind: "redis", Role: "master"})
	}
	in := reports.Input{Run: r, History: s.history()}
	var lost []checker.Violation
	for i, at := range []float64{10, 210} {
		lost = append(lost, checker.Violation{
			Kind: checker.LostUpdate, Lock: "orders", Resource: "stock", From: ms(at + 33), Until: ms(at + 34),
			Events: []int64{find(in.History, history.Access, history.OK, fmt.Sprint("a#", i)), find(in.History, history.Access, history.OK, fmt.Sprint("b#", i))},
		})
	}
	in.Report = report(broken("protected-resource", "", "", lost...))
	causes := reports.Summarize(in).Causes
	require.Len(t, causes, 1)
	require.Empty(t, causes[0].Fault)
	require.Equal(t, 2, causes[0].Violations[checker.LostUpdate])
}
