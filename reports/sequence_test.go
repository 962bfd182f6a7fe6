package reports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/reports/internal/story"
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

// sequenceOf are the messages until the violation of a run that is told; nil for none.
func sequenceOf(in reports.Input) *story.Sequence {
	f := facts.Of(in.Run, in.History, in.Report, true)
	return story.Messages(f, f.Told(), reports.Summarize(in).Story)
}

func TestSequence(t *testing.T) {
	q := sequenceOf(failover())
	var actors, steps []string
	for _, a := range q.Actors {
		actors = append(actors, a.Kind+" "+a.Name)
	}
	for _, s := range q.Steps {
		steps = append(steps, strings.TrimSpace(s.Kind+" "+s.From+">"+s.To+" "+s.Text))
	}
	require.Equal(t, []string{"client a", "client b", "server redis-1", "server redis-2", "resource ledger"}, actors)
	require.Equal(t, []string{
		"fault > cut replication", "request a>redis-1 acquire orders", "reply redis-1>a granted", "fault redis-1> kill redis-1",
		"request b>redis-2 acquire orders", "note redis-2> was promoted to master", "reply redis-2>b granted", "violation > both hold (1,240 ms of it observed)",
		"note redis-2> had client b as the holder of orders", "request a>ledger begins to use it", "request b>ledger begins to use it", "reply ledger>a 41 → 42", "reply ledger>b 41 → 42",
	}, steps)

	// Every kind of violation has one, in order of time, and each step names its parties.
	for name, fixture := range fixtures() {
		q := sequenceOf(fixture())
		if q == nil {
			continue
		}
		known, at := map[string]bool{"": true}, ms(0)
		for _, a := range q.Actors {
			known[a.Name] = true
		}
		for _, s := range q.Steps {
			require.GreaterOrEqual(t, s.At, at, name)
			at = s.At
			require.True(t, known[s.From] && known[s.To], "%s: %v", name, s)
		}
	}
}
