package reports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// Only a request that was sent after a fault, and had to pass where it was,
// shows that the lock is granted again.
func TestRecovery(t *testing.T) {
	topology := history.Topology{
		Nodes: []history.Node{
			{Name: "r1", Kind: "redis", Role: "master"},
			{Name: "r2", Kind: "redis", Role: "master"},
			{Name: "zone-a", Kind: "zone"},
			{Name: "zone-b", Kind: "zone"},
		},
		Links: []history.Link{
			{Name: "zone-a>r1", Kind: "client", From: "zone-a", To: "r1"},
			{Name: "zone-a>r2", Kind: "client", From: "zone-a", To: "r2"},
			{Name: "zone-b>r1", Kind: "client", From: "zone-b", To: "r1"},
		},
	}
	var events []history.Event
	add := func(at int, e history.Event) {
		e.Time = time.Duration(at)
		e.Index = int64(len(events))
		events = append(events, e)
	}
	process := 0
	acquire := func(owner, lock, node string, sent, answered int, end history.Type) {
		process++
		add(sent, history.Event{Process: process, Op: history.Acquire, Type: history.Invoke, Lock: lock, Owner: owner})
		add(answered, history.Event{Process: process, Op: history.Acquire, Type: end, Lock: lock, Owner: owner, Node: node})
	}
	fault := func(op history.Op, name, target string, from, to int) {
		for _, e := range []history.Event{{Type: history.Invoke, Time: time.Duration(from)}, {Type: history.OK, Time: time.Duration(to)}} {
			e.Op, e.Process, e.Fault, e.Target = op, history.NoProcess, name, target
			add(int(e.Time), e)
		}
	}
	acquire("zone-a.1#1", "x", "r1", 1, 2, history.OK)
	acquire("zone-b.2#1", "y", "r2", 3, 4, history.OK)
	process = 100
	add(8, history.Event{Process: 9, Op: history.Acquire, Type: history.Invoke, Lock: "x", Owner: "zone-a.1#2"})
	fault(history.Inject, "cut", "zone-a>redis", 9, 10)
	add(12, history.Event{Process: 9, Op: history.Acquire, Type: history.OK, Lock: "x", Owner: "zone-a.1#2"}) // on its way before
	acquire("zone-b.2#2", "x", "r1", 13, 14, history.OK)                                                      // another way
	acquire("zone-a.1#3", "x", "", 15, 16, history.Info)
	acquire("zone-a.1#4", "x", "r1", 17, 31, history.OK)
	fault(history.Heal, "cut", "zone-a>redis", 32, 33)
	acquire("zone-b.2#3", "y", "r2", 34, 35, history.OK)
	acquire("zone-a.1#5", "y", "r2", 36, 40, history.OK)
	fault(history.Inject, "kill", "r2", 50, 51)
	acquire("zone-a.1#6", "x", "r1", 52, 53, history.OK) // lives on r1
	acquire("zone-b.2#4", "y", "", 54, 55, history.Fail)
	fault(history.Heal, "kill", "r2", 60, 61)

	m := newModel(Input{Run: history.Run{Topology: topology}, History: &history.History{Events: events}})
	require.Len(t, m.faults, 2)
	require.Equal(t, time.Duration(21), m.faults[0].Recovery, "zone-a.1#4, sent after the cut")
	require.Equal(t, time.Duration(7), m.faults[0].HealRecovery, "zone-a.1#5")
	require.Zero(t, m.faults[1].Recovery, "y lived on r2")
}

// In a split brain the old master may grant until the cut is complete; that is
// no recovery.
func TestRecoveryByFailover(t *testing.T) {
	event := func(at int, e history.Event) history.Event {
		e.Time = time.Duration(at)
		return e
	}
	split := history.Event{Process: history.NoProcess, Op: history.Inject, Fault: "split-brain", Target: "{r1 zone-a}"}
	asked, landed := split, split
	asked.Type, landed.Type = history.Invoke, history.OK
	acquire := func(process int, end history.Type) history.Event {
		return history.Event{Process: process, Op: history.Acquire, Type: end, Lock: "k", Owner: "zone-b.1#1"}
	}
	m := newModel(Input{
		Run: history.Run{Topology: history.Topology{Nodes: []history.Node{
			{Name: "r1", Kind: "redis", Role: "master"},
			{Name: "r2", Kind: "redis", Role: "replica"},
			{Name: "zone-a", Kind: "zone"},
			{Name: "zone-b", Kind: "zone"},
		}}},
		History: &history.History{Events: []history.Event{
			event(10, asked), event(11, acquire(1, history.Invoke)), event(12, acquire(1, history.OK)),
			event(20, history.Event{Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: "r2", What: history.ObserveRole, Value: "master"}),
			event(21, acquire(2, history.Invoke)), event(22, acquire(2, history.OK)), event(30, landed),
		}},
	})
	require.Equal(t, time.Duration(12), m.faults[0].Recovery)
}

func TestLinksOf(t *testing.T) {
	topology := history.Topology{
		Nodes: []history.Node{{Name: "r1", Kind: "redis"}, {Name: "r2", Kind: "redis"}, {Name: "z", Kind: "zone"}},
		Links: []history.Link{
			{Name: "r1>r2", Kind: "replication", From: "r1", To: "r2"},
			{Name: "r1>r2/bus", Kind: "bus", From: "r1", To: "r2"},
			{Name: "r2>r1", Kind: "replication", From: "r2", To: "r1"},
			{Name: "z>r1", Kind: "client", From: "z", To: "r1"},
			{Name: "z>r2", Kind: "client", From: "z", To: "r2"},
		},
	}
	for target, want := range map[string][]string{
		"replication":      {"r1>r2", "r2>r1"},
		"z>redis":          {"z>r1", "z>r2"},
		"*>r1":             {"r2>r1", "z>r1"},
		"r1>r2":            {"r1>r2"},
		"r1>r2 r1>r2/bus":  {"r1>r2", "r1>r2/bus"},
		"r1>r2/bus":        {"r1>r2/bus"},
		"z>r1 r2>r1":       {"r2>r1", "z>r1"},
		"{z>r1,r2>r1}":     {"r2>r1", "z>r1"},
		"nowhere":          {},
		"nowhere>nowhere2": {},
	} {
		names := []string{}
		for _, l := range linksOf(target, topology) {
			names = append(names, l.Name)
		}
		require.Equal(t, want, names, target)
	}
}
