package reports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// In a split brain both masters grant, each to the clients of its own side.
func TestMasterOf(t *testing.T) {
	event := func(at int, e history.Event) history.Event {
		e.Time, e.Process = time.Duration(at), history.NoProcess
		return e
	}
	split := history.Event{Op: history.Inject, Fault: "split-brain", Target: "{r1 s1 zone-a}"}
	asked, landed := split, split
	asked.Type, landed.Type = history.Invoke, history.OK
	healing := history.Event{Op: history.Heal, Type: history.OK, Fault: split.Fault, Target: split.Target}
	role := func(node, role string) history.Event {
		return history.Event{Op: history.Observe, Type: history.OK, Node: node, What: history.ObserveRole, Value: role}
	}
	m := newModel(Input{
		Run: history.Run{Topology: history.Topology{Nodes: []history.Node{
			{Name: "r1", Role: "master"}, {Name: "r2", Role: "replica"}, {Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"},
		}}},
		History: &history.History{Events: []history.Event{
			event(10, asked), event(20, role("r2", "master")), event(30, landed),
			event(40, healing), event(50, role("r1", "replica")), event(60, role("r1", "replica")),
		}},
	})
	for _, tt := range []struct {
		owner string
		at    time.Duration
		want  string
	}{
		{"zone-a.1#1", 5, "r1"},
		{"zone-b.2#1", 5, "r1"},
		{"zone-b.2#1", 15, ""},   // cut off from r1, and r2 is no master yet
		{"zone-a.1#1", 35, "r1"}, // each on its side
		{"zone-b.2#1", 35, "r2"},
		{"zone-b.2#1", 45, ""}, // healed, and both are still masters
		{"zone-b.2#1", 55, "r2"},
		{"py-b.2#1", 5, "r1"}, // of a zone that is not known
		{"py-b.2#1", 15, ""},
		{"py-b.2#1", 35, ""},
		{"py-b.2#1", 55, "r2"},
	} {
		require.Equal(t, tt.want, m.masterOf(tt.owner, tt.at), "%s at %d", tt.owner, tt.at)
	}
}

// The counts of faults of one name and target come in the order in which these took
// effect. One that no request met counts as one without an effect.
func TestAFaultThatNoRequestMetDoesNotCount(t *testing.T) {
	var events []history.Event
	add := func(op history.Op, typ history.Type, what, value string) {
		e := history.Event{Time: time.Duration(len(events) + 1), Process: history.NoProcess, Op: op, Type: typ, Fault: "flush", Target: "redis-1"}
		if e.What, e.Value = what, value; what != "" {
			e.Node = history.ObserveClients
		}
		events = append(events, e)
	}
	for _, typ := range []history.Type{history.OK, history.Fail, history.OK, history.OK} {
		add(history.Inject, history.Invoke, "", "")
		add(history.Inject, typ, "", "")
	}
	add(history.Observe, history.OK, history.ObserveMet, "3")
	add(history.Observe, history.OK, history.ObserveMet, "0")
	h := &history.History{Events: events}
	faults := faultsOf(notes(h), h.End())
	var words []string
	for i := range faults {
		words = append(words, faults[i].metWords())
	}
	require.Equal(t, []string{"3 requests met it or came later", "", "no request met it", ""}, words)
	require.Equal(t, 2, effective(faults), "the last one was not counted, so that it counts")
	d := &model{Input: Input{History: h}, faults: faults}
	require.Contains(t, d.faultWords(), "2 of 4 faults took effect")
	require.Contains(t, d.faultWords(), "flush redis-1 (no request met it)")
}

// A fault that took no effect has nothing that a later heal could end.
func TestAHealEndsTheFaultThatTookEffect(t *testing.T) {
	var events []history.Event
	add := func(op history.Op, types ...history.Type) {
		for _, typ := range types {
			events = append(events, history.Event{
				Time: time.Duration(len(events) + 1), Process: history.NoProcess, Op: op, Type: typ, Fault: "cut", Target: "a>b",
			})
		}
	}
	add(history.Inject, history.Invoke, history.Fail)
	add(history.Inject, history.Invoke, history.OK)
	add(history.Heal, history.Invoke, history.Fail) // and is tried again
	add(history.Heal, history.Invoke, history.OK)
	add(history.Observe, history.OK)
	h := &history.History{Events: events}
	faults := faultsOf(notes(h), h.End())
	require.Len(t, faults, 2)
	require.False(t, faults[0].OK)
	require.False(t, faults[0].Healed)
	require.True(t, faults[1].Healed)
	require.Equal(t, time.Duration(8), faults[1].End)
	require.Empty(t, faults[1].HealError)
}
