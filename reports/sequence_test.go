package reports_test

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	diagram "github.com/lockchaos/lockchaos/reports/internal/chart"
)

// independent is a topology of five masters that know nothing of each other.
func independent() history.Topology {
	t := history.Topology{Name: "independent", Nodes: []history.Node{{Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"}}}
	for i := range 5 {
		t.Nodes = append(t.Nodes, history.Node{Name: fmt.Sprintf("redis-%d", i+1), Kind: "redis", Role: "master"})
	}
	return t
}

// looked records what five servers were seen to have.
func (s *script) looked(t float64, lock string, owners ...string) {
	for i, owner := range owners {
		s.observe(t+float64(i)/10, fmt.Sprintf("redis-%d", i+1), history.ObserveKey, strings.TrimSpace(lock+" "+owner))
	}
}

// twoMajorities is a Redlock of which one server voted twice, or if both majorities are
// whole, three did.
func twoMajorities(owners ...string) reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "", 10, 14, 3000)
	s.looked(15, "orders", "a#1", "a#1", "a#1", "", "")
	s.fault(history.Inject, "clock-forward", "redis-3", 20, 21, history.OK, "redis-3 is 31s ahead of the true time", "")
	s.acquire(2, "orders", "b#1", "", 30, 34, 3000)
	s.looked(35, "orders", owners...)
	s.observe(90, "redis-1", history.ObserveEpoch, "1")
	r := run()
	r.Lock, r.Topology = "redlock", independent()
	return judged(r, s.history())
}

func TestVotes(t *testing.T) {
	r := reports.Summarize(twoMajorities("a#1", "a#1", "b#1", "b#1", "b#1"))
	text := r.Story.String()
	require.Contains(t, text, "client a was granted orders by redis-1, redis-2 and redis-3 and")
	require.Contains(t, text, "client b was granted orders by redis-3, redis-4 and redis-5 and")
	require.Contains(t, text, "redis-3 voted for both: without that, client b had 2 of 5 votes, and no majority.")
	require.Equal(t, []string{"redis-1", "redis-2", "redis-3", "redis-4", "redis-5"}, r.Causes[0].Servers)
	require.Contains(t, told(r.Causes[0].Why), "redis-3 granted it to both")

	// With a majority of its own the second needed no vote twice.
	text = reports.Summarize(twoMajorities("b#1", "b#1", "b#1", "b#1", "b#1")).Story.String()
	require.Contains(t, text, "redis-1, redis-2 and redis-3 voted for both: without that, client b had 2 of 5 votes")
	in := twoMajorities("a#1", "b#1", "b#1", "b#1", "b#1")
	require.Contains(t, reports.Summarize(in).Story.String(), "redis-2 and redis-3 voted for both: without that, client b had 2 of 5 votes")

	// Nothing is said of votes that were not seen, or of a copy on a replica.
	require.NotContains(t, reports.Summarize(twoMajorities("", "", "", "b#1", "b#1")).Story.String(), "voted")
	require.NotContains(t, reports.Summarize(failover()).Story.String(), "voted")
}

// told are the words of a Why and of what it followed from.
func told(w *reports.Why) string {
	if w == nil {
		return ""
	}
	words := w.Text + "\n"
	for _, of := range w.Because {
		words += told(of)
	}
	return words
}

// blocked is a lock that nobody gets, and what the server was last seen to have.
func blocked(last string) reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 12, 1000)
	s.attempt(2, history.Acquire, "orders", "b#1", 1200, 19000, history.Fail, "not acquired")
	s.observe(18990, "redis-1", history.ObserveKey, strings.TrimSpace("orders "+last))
	s.observe(19500, "redis-1", history.ObserveEpoch, "1")
	return judged(run(), s.history())
}

// What blocks a stuck lock is said where it was seen, and only there.
func TestStuckSaysWhatBlocks(t *testing.T) {
	r := reports.Summarize(blocked("a#1"))
	require.Contains(t, r.Story.Headline, "No client could acquire")
	require.Contains(t, r.Story.String(), "At 18.990 s redis-1 still had the key of client a, whose hold was over at 1.010 s: while the key is there, orders is not granted.")
	require.Contains(t, told(r.Causes[0].Why), "still had the key")
	for _, last := range []string{"", "c#1"} { // none, or that of a client of whose hold nothing is known
		r := reports.Summarize(blocked(last))
		require.Contains(t, r.Story.Headline, "No client could acquire")
		require.NotContains(t, r.Story.String(), "still had the key", last)
	}
}

// givenUp is a lock whose server has the key of a request that ended without a grant.
func givenUp(waited history.Type) reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 12, 9000)
	s.attempt(2, history.Acquire, "orders", "b#1", 20, 200, waited, "not acquired")
	s.release(1, "orders", "a#1", "redis-1", 1100, 1101)
	s.attempt(1, history.Acquire, "orders", "a#2", 1200, 19000, history.Fail, "not acquired")
	s.observe(18990, "redis-1", history.ObserveKey, "orders b#1")
	s.observe(19500, "redis-1", history.ObserveEpoch, "1")
	return judged(run(), s.history())
}

// The key of a client that gave up waiting blocks a lock too.
func TestStuckSaysWhoseRequestBlocks(t *testing.T) {
	require.Contains(t, reports.Summarize(givenUp(history.Fail)).Story.String(),
		"At 18.990 s redis-1 still had the key of client b, whose request was refused at 0.200 s: while the key is there, orders is not granted.")
	require.NotContains(t, reports.Summarize(givenUp(history.Info)).Story.String(), "still had the key", "it may hold the lock")
}

func TestSequence(t *testing.T) {
	q := reports.Summarize(failover()).Causes[0].Sequence
	require.Equal(t, []diagram.Actor{
		{Name: "a", Kind: "client"},
		{Name: "b", Kind: "client"},
		{Name: "redis-1", Kind: "server"},
		{Name: "redis-2", Kind: "server"},
		{Name: "sentinels", Kind: "sentinels"},
		{Name: "ledger", Kind: "resource"},
	}, q.Actors)
	steps := func(q *reports.Sequence, kind string) (texts []string) {
		for _, s := range q.Steps {
			if s.Kind == kind {
				texts = append(texts, strings.TrimSpace(s.From+">"+s.To+" "+s.Text))
			}
		}
		return texts
	}
	require.Equal(t, []string{"redis-1>redis-2 the key of a never got there"}, steps(q, diagram.StepLost))
	require.Len(t, steps(q, diagram.StepViolation), 1)
	require.Contains(t, steps(q, diagram.StepRequest), "sentinels>redis-2 promotion to master")

	// A fault stands over the parties that it concerns.
	over := func(in reports.Input) (all []string) {
		q := reports.Summarize(in).Causes[0].Sequence
		for _, s := range q.Steps {
			if s.Kind == diagram.StepFault && s.From == "" {
				all = append(all, s.Text+": "+strings.Join(s.Over, " "))
			}
		}
		return all
	}
	require.Equal(t, []string{"cut replication: redis-1 redis-2"}, over(failover()))
	zoned := failover()
	for i := range zoned.History.Events {
		if e := &zoned.History.Events[i]; e.Fault == "cut" {
			e.Target = "zone-a>redis-1"
		}
	}
	require.Equal(t, []string{"cut zone-a>redis-1: a b redis-1"}, over(zoned), "where the clients are is not known")
	zoned.Run.Clients = map[string]string{"a": "zone-b", "b": "zone-a"}
	require.Equal(t, []string{"cut zone-a>redis-1: b redis-1"}, over(zoned))
	require.Contains(t, string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, reports.Summarize(zoned)) })), "Note over p1,p2: 0.402 s cut zone-a→redis-1")
	zoned.Run.Clients = map[string]string{"a": "zone-b", "b": "zone-b"}
	require.Equal(t, []string{"cut zone-a>redis-1: redis-1"}, over(zoned))
	for i := range zoned.History.Events {
		if e := &zoned.History.Events[i]; e.Fault == "cut" {
			e.Target = "zone-a>redis-3"
		}
	}
	zoned.Run.Topology.Links = append(zoned.Run.Topology.Links, history.Link{Name: "zone-a>redis-3", Kind: "client", From: "zone-a", To: "redis-3"})
	require.Empty(t, over(zoned), "it concerns none of them")

	// Two cuts with a grant between them are two, however close they are.
	cuts := func(second float64) []string {
		s := &script{}
		s.declare("orders")
		s.fault(history.Inject, "cut", "zone-a>redis-1", 1, 2, history.OK, "", "")
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 3000)
		s.fault(history.Inject, "cut", "zone-b>redis-1", second, second+1, history.OK, "", "")
		s.acquire(2, "orders", "b#1", "redis-1", 40, 41, 3000)
		s.observe(900, "redis-1", history.ObserveEpoch, "1")
		in := judged(run(), s.history())
		in.Run.Clients = map[string]string{"a": "zone-a", "b": "zone-b"}
		return over(in)
	}
	require.Equal(t, []string{"cut zone-a>redis-1 zone-b>redis-1: "}, cuts(3), "it is over all")
	require.Equal(t, []string{"cut zone-a>redis-1: a redis-1", "cut zone-b>redis-1: b redis-1"}, cuts(20))

	// A server that was promoted before the first grant is none that missed it.
	in := failover()
	for i := range in.History.Events {
		if e := &in.History.Events[i]; e.Op == history.Observe && e.What == history.ObserveRole {
			e.Time = ms(405)
		}
	}
	require.Empty(t, steps(reports.Summarize(in).Causes[0].Sequence, diagram.StepLost))

	// Every kind of violation has one, in order of time, and each step names its parties.
	for name, fixture := range fixtures() {
		for _, c := range reports.Summarize(fixture()).Causes {
			require.NotNil(t, c.Why, name)
			if c.Sequence == nil {
				continue
			}
			known := map[string]bool{"": true}
			for _, a := range c.Sequence.Actors {
				known[a.Name] = true
			}
			at := ms(0)
			for _, s := range c.Sequence.Steps {
				require.GreaterOrEqual(t, s.At, at, name)
				at = s.At
				require.True(t, known[s.From] && known[s.To], "%s: %v", name, s)
				if s.Event != nil {
					require.Less(t, *s.Event, int64(len(fixture().History.Events)))
				}
			}
		}
	}
}

// A leaf of a Why is an event, or says how servers work.
func TestWhyEndsInEvents(t *testing.T) {
	for name, fixture := range fixtures() {
		in := fixture()
		for _, c := range reports.Summarize(in).Causes {
			var leaves func(w *reports.Why)
			leaves = func(w *reports.Why) {
				for _, of := range w.Because {
					leaves(of)
				}
				if len(w.Because) > 0 || strings.Contains(w.Text, "asynchronous") || strings.Contains(w.Text, "still had the key") {
					return
				}
				require.NotNil(t, w.Event, "%s: %s", name, w.Text)
				require.Equal(t, in.History.Events[*w.Event].Time, *w.At)
			}
			leaves(c.Why)
		}
	}
	why := told(reports.Summarize(failover()).Causes[0].Why)
	require.Contains(t, why, "redis-2 did not know of the first grant")
	require.Contains(t, why, "the replication links redis-2>redis-1 and redis-3>redis-1 were cut")
	require.NotContains(t, why, "asynchronous", "a fault explains it")
}

// What a diagram in Markdown says can't end a statement of it, or its block.
func TestMermaidKeepsToItsBlock(t *testing.T) {
	in := hostile("x;y#z`\n```<b>\"end\n")
	text := string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, reports.Summarize(in)) }))
	require.Equal(t, 2, strings.Count("\n"+text, "\n```"))
	_, diagram, _ := strings.Cut(text, "```mermaid\n")
	diagram, _, _ = strings.Cut(diagram, "```")
	for line := range strings.Lines(diagram) {
		require.Regexp(t, `^(sequenceDiagram|  (participant p\d+ as .*|p\d+(->>|-->>|--x)p\d+: .*|Note over p\d+(,p\d+)?: .*|rect rgba\(196,22,28,0\.15\)|end))\n$`, line)
		require.NotRegexp(t, regexp.MustCompile("[;#`<>]"), strings.NewReplacer("->>", "", "-->>", "").Replace(line))
	}
}

// A server keeps no key of its time as a master once it has another master's data.
func TestKeysEndWhereTheirServerFollowsAnother(t *testing.T) {
	in := failover()
	require.Contains(t, htmlOf(t, in), "redis-1 had the key of a, granted at 0.412 s, until 0.415 s as far as is known", "it never came back")
	s := &script{}
	s.declare("orders")
	s.observe(1, "redis-1", history.ObserveRole, "master")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 12, 30000)
	s.fault(history.Inject, "kill", "redis-1", 20, 22, history.OK, "redis-1 exited", "")
	s.fault(history.Heal, "kill", "redis-1", 200, 250, history.OK, "", "")
	for role, want := range map[string]string{"master": "30.010 s", "replica": "0.022 s"} {
		t.Run(role, func(t *testing.T) {
			s := *s
			s.observe(220, "redis-1", history.ObserveRole, role)
			s.acquire(2, "orders", "b#1", "redis-2", 300, 305, 30000)
			s.observe(900, "redis-2", history.ObserveEpoch, "1")
			require.Contains(t, htmlOf(t, judged(run(), s.history())), "redis-1 had the key of a, granted at 0.012 s, until "+want+" as far as is known")
		})
	}
}
