package facts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// of are the facts of a run that was not judged.
func of(run history.Run, events ...history.Event) *Facts {
	return Of(run, &history.History{Events: events}, checker.Report{}, true)
}

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
	m := of(history.Run{Topology: history.Topology{Nodes: []history.Node{
		{Name: "r1", Role: "master"}, {Name: "r2", Role: "replica"}, {Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"},
	}}},
		event(10, asked), event(20, role("r2", "master")), event(30, landed),
		event(40, healing), event(50, role("r1", "replica")), event(60, role("r1", "replica")),
	)
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
		require.Equal(t, tt.want, m.MasterOf(tt.owner, tt.at), "%s at %d", tt.owner, tt.at)
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
	faults := of(history.Run{}, events...).Faults
	var words []string
	for i := range faults {
		words = append(words, faults[i].MetWords())
	}
	require.Equal(t, []string{"3 requests met it or came later", "", "no request met it", ""}, words)
	require.Equal(t, 2, Effective(faults), "the last one was not counted, so that it counts")
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
	faults := of(history.Run{}, events...).Faults
	require.Len(t, faults, 2)
	require.False(t, faults[0].OK)
	require.False(t, faults[0].Healed)
	require.True(t, faults[1].Healed)
	require.Equal(t, time.Duration(8), faults[1].End)
	require.Empty(t, faults[1].HealError)
}

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

	m := of(history.Run{Topology: topology}, events...)
	require.Len(t, m.Faults, 2)
	require.Equal(t, time.Duration(21), m.Faults[0].Recovery, "zone-a.1#4, sent after the cut")
	require.Equal(t, time.Duration(7), m.Faults[0].HealRecovery, "zone-a.1#5")
	require.Zero(t, m.Faults[1].Recovery, "y lived on r2")
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
	m := of(history.Run{Topology: history.Topology{Nodes: []history.Node{
		{Name: "r1", Kind: "redis", Role: "master"},
		{Name: "r2", Kind: "redis", Role: "replica"},
		{Name: "zone-a", Kind: "zone"},
		{Name: "zone-b", Kind: "zone"},
	}}},
		event(10, asked), event(11, acquire(1, history.Invoke)), event(12, acquire(1, history.OK)),
		event(20, history.Event{Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: "r2", What: history.ObserveRole, Value: "master"}),
		event(21, acquire(2, history.Invoke)), event(22, acquire(2, history.OK)), event(30, landed),
	)
	require.Equal(t, time.Duration(12), m.Faults[0].Recovery)
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
		names := []string{} // in any order
		for _, l := range (&Fault{Target: target}).Links(planned(topology)) {
			names = append(names, l.Name())
		}
		require.ElementsMatch(t, want, names, target)
	}
}

// heldOnce is a history in which holds end in every way.
func heldOnce() *history.History {
	h := &history.History{}
	add := func(ms int, e history.Event) {
		e.Time, e.Index = time.Duration(ms)*time.Millisecond, int64(len(h.Events))
		h.Events = append(h.Events, e)
	}
	request := func(p, from, to int, op history.Op, owner string, end history.Type, expires int) {
		e := history.Event{Process: p, Type: history.Invoke, Op: op, Lock: owner, Owner: owner}
		add(from, e)
		e.Type, e.Expires = end, time.Duration(expires)*time.Millisecond
		add(to, e)
	}
	request(1, 10, 20, history.Acquire, "released", history.OK, 900)
	request(2, 21, 30, history.Acquire, "expired", history.OK, 300)
	request(3, 31, 40, history.Acquire, "lost", history.OK, 900)
	request(4, 41, 50, history.Acquire, "unknown", history.OK, 900)
	request(5, 51, 60, history.Acquire, "time left", history.OK, 90000)
	request(6, 61, 70, history.Acquire, "open", history.OK, 0)
	request(1, 120, 121, history.Release, "released", history.OK, 0)
	request(4, 130, 135, history.Release, "unknown", history.Info, 0)
	add(240, history.Event{Process: 3, Type: history.OK, Op: history.Lost, Lock: "lost", Owner: "lost"})
	request(8, 941, 945, history.Acquire, "cut", history.OK, 900)
	last := history.Event{Process: 7, Type: history.Invoke, Op: history.Acquire, Lock: "last", Owner: "last"}
	add(950, last)
	request(8, 960, 961, history.Release, "cut", history.OK, 0) // as the clients stop
	last.Type = history.Fail
	add(1000, last)
	return h
}

func TestHeldFor(t *testing.T) {
	r := Of(history.Run{}, heldOnce(), checker.Report{}, true)
	ms := func(at, took int) Duration {
		return Duration{time.Duration(at) * time.Millisecond, time.Duration(took) * time.Millisecond}
	}
	d := r.HeldFor()
	require.Equal(t, []Duration{ms(120, 100)}, d.Most, "from its grant to the request that released it")
	require.ElementsMatch(t, []Duration{ms(300, 270), ms(240, 200)}, d.Short, "by its lease, and lost")
	require.Equal(t, []Duration{ms(130, 80)}, d.Open)
	l, ok := r.HeldLatency()
	require.True(t, ok)
	require.Equal(t, Latency{Count: 1, Mean: 100 * time.Millisecond, Min: 100 * time.Millisecond, Max: 100 * time.Millisecond}, l)
	l, _ = Of(history.Run{Scenario: "a script, which stops no client"}, heldOnce(), checker.Report{}, true).HeldLatency()
	require.Equal(t, 2, l.Count)
	_, ok = of(history.Run{}).HeldLatency()
	require.False(t, ok)
}
