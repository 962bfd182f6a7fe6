package facts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// A record is made of events in order of their time.
type record []history.Event

func (r *record) add(at int, e history.Event) {
	e.Time, e.Index = time.Duration(at), int64(len(*r))
	*r = append(*r, e)
}

// pair adds an operation that was asked for and ended.
func (r *record) pair(from, to int, e history.Event, end history.Type) {
	e.Type = history.Invoke
	r.add(from, e)
	e.Type = end
	r.add(to, e)
}

// fault adds what was done to a target.
func (r *record) fault(op history.Op, name, target string, from, to int, end history.Type) {
	r.pair(from, to, history.Event{Process: history.NoProcess, Op: op, Fault: name, Target: target}, end)
}

func (r *record) observe(at int, node, what, value string) {
	r.add(at, history.Event{Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: node, What: what, Value: value, Fault: "flush", Target: "redis-1"})
}

// facts are those of a run that was not judged, with these nodes and links.
func (r *record) facts(t history.Topology) *Facts {
	return Of(history.Run{Topology: t}, &history.History{Events: *r}, checker.Report{}, true)
}

// zoned is a topology of servers with roles and of two zones.
func zoned(roles ...string) history.Topology {
	t := history.Topology{Nodes: []history.Node{{Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"}}}
	for i, role := range roles {
		t.Nodes = append(t.Nodes, history.Node{Name: fmt.Sprintf("r%d", i+1), Kind: "redis", Role: role})
	}
	return t
}

// In a split brain both masters grant, each to the clients of its own side.
func TestMasterOf(t *testing.T) {
	const sides = "{r1 s1 zone-a}"
	var r record
	r.add(10, history.Event{Process: history.NoProcess, Op: history.Inject, Type: history.Invoke, Fault: "split-brain", Target: sides})
	r.observe(20, "r2", history.ObserveRole, "master")
	r.add(30, history.Event{Process: history.NoProcess, Op: history.Inject, Type: history.OK, Fault: "split-brain", Target: sides})
	r.add(40, history.Event{Process: history.NoProcess, Op: history.Heal, Type: history.OK, Fault: "split-brain", Target: sides})
	r.observe(50, "r1", history.ObserveRole, "replica")
	r.observe(60, "r1", history.ObserveRole, "replica")
	m := r.facts(zoned("master", "replica"))
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
	var r record
	for i, end := range []history.Type{history.OK, history.Fail, history.OK, history.OK} {
		r.fault(history.Inject, "flush", "redis-1", 2*i, 2*i+1, end)
	}
	r.observe(10, history.ObserveClients, history.ObserveMet, "3")
	r.observe(11, history.ObserveClients, history.ObserveMet, "0")
	faults := r.facts(history.Topology{}).Faults
	var words []string
	for i := range faults {
		words = append(words, faults[i].MetWords())
	}
	require.Equal(t, []string{"3 requests met it or came later", "", "no request met it", ""}, words)
	require.Equal(t, 2, Effective(faults), "the last one was not counted, so that it counts")
}

// Only a request that was sent after a fault, and had to pass where it was,
// shows that the lock is granted again.
func TestRecovery(t *testing.T) {
	topology := zoned("master", "master")
	for _, l := range [][2]string{{"zone-a", "r1"}, {"zone-a", "r2"}, {"zone-b", "r1"}} {
		topology.Links = append(topology.Links, history.Link{Name: l[0] + ">" + l[1], Kind: "client", From: l[0], To: l[1]})
	}
	var r record
	acquire := func(owner, lock, node string, sent, answered int, end history.Type) {
		r.pair(sent, answered, history.Event{Process: sent, Op: history.Acquire, Lock: lock, Owner: owner, Node: node}, end)
	}
	early := history.Event{Process: 9, Op: history.Acquire, Type: history.Invoke, Lock: "x", Owner: "zone-a.1#2"}
	acquire("zone-a.1#1", "x", "r1", 1, 2, history.OK)
	acquire("zone-b.2#1", "y", "r2", 3, 4, history.OK)
	r.add(8, early)
	r.fault(history.Inject, "cut", "zone-a>redis", 10, 10, history.OK)
	early.Type = history.OK
	r.add(12, early)                                     // on its way before
	acquire("zone-b.2#2", "x", "r1", 13, 14, history.OK) // another way
	acquire("zone-a.1#3", "x", "", 15, 16, history.Info)
	acquire("zone-a.1#4", "x", "r1", 17, 31, history.OK)
	r.fault(history.Heal, "cut", "zone-a>redis", 32, 33, history.OK)
	acquire("zone-b.2#3", "y", "r2", 34, 35, history.OK)
	acquire("zone-a.1#5", "y", "r2", 36, 40, history.OK)
	r.fault(history.Inject, "kill", "r2", 50, 51, history.OK)
	acquire("zone-a.1#6", "x", "r1", 52, 53, history.OK) // lives on r1
	acquire("zone-b.2#4", "y", "", 54, 55, history.Fail)
	r.fault(history.Heal, "kill", "r2", 60, 61, history.OK)

	m := r.facts(topology)
	require.Len(t, m.Faults, 2)
	require.Equal(t, time.Duration(21), m.Faults[0].Recovery, "zone-a.1#4, sent after the cut")
	require.Equal(t, time.Duration(7), m.Faults[0].HealRecovery, "zone-a.1#5")
	require.Zero(t, m.Faults[1].Recovery, "y lived on r2")
}

// In a split brain the old master may grant until the cut is complete; that is
// no recovery.
func TestRecoveryByFailover(t *testing.T) {
	var r record
	split := history.Event{Process: history.NoProcess, Op: history.Inject, Type: history.Invoke, Fault: "split-brain", Target: "{r1 zone-a}"}
	acquire := history.Event{Process: 1, Op: history.Acquire, Lock: "k", Owner: "zone-b.1#1"}
	r.add(10, split)
	r.pair(11, 12, acquire, history.OK)
	r.observe(20, "r2", history.ObserveRole, "master")
	r.pair(21, 22, acquire, history.OK)
	split.Type = history.OK
	r.add(30, split)
	require.Equal(t, time.Duration(12), r.facts(zoned("master", "replica")).Faults[0].Recovery)
}

// A hold may end in every way.
func TestHeldFor(t *testing.T) {
	const unit = 1_000_000 // a millisecond
	var rec record
	request := func(p, from, to int, op history.Op, owner string, end history.Type, expires int) {
		e := history.Event{Process: p, Type: history.Invoke, Op: op, Lock: owner, Owner: owner}
		rec.add(from*unit, e)
		e.Type, e.Expires = end, time.Duration(expires)*unit
		rec.add(to*unit, e)
	}
	request(1, 10, 20, history.Acquire, "released", history.OK, 900)
	request(2, 21, 30, history.Acquire, "expired", history.OK, 300)
	request(3, 31, 40, history.Acquire, "lost", history.OK, 900)
	request(4, 41, 50, history.Acquire, "unknown", history.OK, 900)
	request(5, 51, 60, history.Acquire, "time left", history.OK, 90000)
	request(6, 61, 70, history.Acquire, "open", history.OK, 0)
	request(1, 120, 121, history.Release, "released", history.OK, 0)
	request(4, 130, 135, history.Release, "unknown", history.Info, 0)
	rec.add(240*unit, history.Event{Process: 3, Type: history.OK, Op: history.Lost, Lock: "lost", Owner: "lost"})
	request(8, 941, 945, history.Acquire, "cut", history.OK, 900)
	last := history.Event{Process: 7, Type: history.Invoke, Op: history.Acquire, Lock: "last", Owner: "last"}
	rec.add(950*unit, last)
	request(8, 960, 961, history.Release, "cut", history.OK, 0) // as the clients stop
	last.Type = history.Fail
	rec.add(1000*unit, last)

	ms := func(at, took int) Duration { return Duration{time.Duration(at) * unit, time.Duration(took) * unit} }
	r := rec.facts(history.Topology{})
	d := r.HeldFor()
	require.Equal(t, []Duration{ms(120, 100)}, d.Most, "from its grant to the request that released it")
	require.ElementsMatch(t, []Duration{ms(300, 270), ms(240, 200)}, d.Short, "by its lease, and lost")
	require.Equal(t, []Duration{ms(130, 80)}, d.Open)
	d = Of(history.Run{Scenario: "a script, which stops no client"}, &history.History{Events: rec}, checker.Report{}, true).HeldFor()
	require.Len(t, d.Most, 2)
}

// A fault of links concerns those between the parties that it keeps apart, or those that its target names, whether the
// history says what it does or only its name.
func TestLinks(t *testing.T) {
	for _, tt := range []struct {
		fault, target, on string
		effects           []history.Effect
		hit, spared       string
	}{
		{fault: "partition", target: "{redis-1 zone-a}", on: "sentinel", hit: "redis-1>redis-2 zone-b>redis-1 zone-a>redis-2", spared: "zone-a>redis-1 redis-2>redis-3"},
		{fault: "partition-halves", on: "sentinel", hit: "redis-1>redis-2 zone-b>redis-1 zone-a>redis-3", spared: "zone-a>redis-1 redis-2>redis-3"},
		{fault: "partition-bridge", target: "redis-3", on: "cluster", hit: "redis-1>redis-4 redis-2>redis-6", spared: "redis-1>redis-3 redis-1>redis-2"},
		{fault: "partition-ring", on: "cluster", hit: "redis-1>redis-4", spared: "redis-1>redis-2 zone-a>redis-1"},
		{fault: "flap", target: "redis-1", on: "sentinel", hit: "redis-1>redis-2 zone-a>redis-1", spared: "redis-2>redis-3"},
		{fault: "stall", target: "zone-a>redis", on: "sentinel", hit: "zone-a>redis-1", spared: "zone-b>redis-1"},
		{fault: "netsplit", target: "{redis-1}", on: "sentinel", effects: []history.Effect{history.Isolates, history.Cuts}, hit: "redis-1>redis-2 zone-a>redis-1", spared: "redis-2>redis-3"},
	} {
		top, err := topologies.ByName(tt.on)
		require.NoError(t, err)
		f := Fault{Name: tt.fault, Target: tt.target, Effects: tt.effects}
		var names []string
		for _, l := range f.Links(top) {
			names = append(names, l.From+">"+l.To)
		}
		require.Subset(t, names, strings.Fields(tt.hit), tt.fault)
		for other := range strings.FieldsSeq(tt.spared) {
			require.NotContains(t, names, other, tt.fault)
		}
	}
}
