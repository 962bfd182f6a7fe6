package draw

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/topologies"
)

// mapped is a deployment of two servers in which r1 is cut off, r2 takes over,
// and both have granted the lock.
func mapped() *facts.Facts {
	t := history.Topology{Name: "sentinel", Nodes: []history.Node{
		{Name: "r1", Kind: "redis", Role: "master"},
		{Name: "r2", Kind: "redis", Role: "replica", Of: "r1"},
		{Name: "s1", Kind: "sentinel"},
		{Name: "s2", Kind: "sentinel"},
		{Name: "s3", Kind: "sentinel"},
		{Name: "zone-a", Kind: "zone"},
	}}
	for _, l := range [][3]string{
		{"r1", "r2", "replication"},
		{"r2", "r1", "replication"},
		{"zone-a", "r1", "client"},
		{"zone-a", "r2", "client"},
		{"s1", "s3", "gossip"},
	} {
		t.Links = append(t.Links, history.Link{Name: l[0] + ">" + l[1], From: l[0], To: l[1], Kind: l[2]})
	}
	ms := time.Millisecond
	fault := func(at time.Duration, op history.Op, end history.Type, name, target string) history.Event {
		return history.Event{Time: at, Process: history.NoProcess, Op: op, Type: end, Fault: name, Target: target}
	}
	acquire := func(at time.Duration, end history.Type, owner, node string) history.Event {
		return history.Event{Time: at, Process: int(owner[0]), Op: history.Acquire, Type: end, Lock: "k", Owner: owner, Node: node, Lease: time.Second}
	}
	h := &history.History{Events: []history.Event{
		acquire(1*ms, history.Invoke, "a#1", ""),
		acquire(2*ms, history.OK, "a#1", "r1"),
		fault(10*ms, history.Inject, history.Invoke, "cut", "replication"),
		fault(12*ms, history.Inject, history.OK, "cut", "replication"),
		{Time: 20 * ms, Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: "r2", What: history.ObserveRole, Value: "master"},
		acquire(30*ms, history.Invoke, "b#1", ""),
		acquire(31*ms, history.OK, "b#1", "r2"),
		fault(40*ms, history.Heal, history.Invoke, "cut", "replication"),
		fault(41*ms, history.Heal, history.OK, "cut", "replication"),
		fault(50*ms, history.Inject, history.Invoke, "kill", "r1"),
		fault(51*ms, history.Inject, history.OK, "kill", "r1"),
		fault(60*ms, history.Inject, history.Invoke, "latency", "zone-a>redis"),
		fault(61*ms, history.Inject, history.OK, "latency", "zone-a>redis"),
		{Time: 70 * ms, Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: "r2", What: history.ObserveRole, Value: "master"},
	}}
	for i := range h.Events {
		h.Events[i].Index = int64(i)
	}
	return facts.Of(history.Run{Topology: t}, h, checker.Report{
		Verdict: checker.Invalid, Results: []checker.Result{{Name: "mutual-exclusion", Verdict: checker.Invalid, Violations: []checker.Violation{{
			Kind: checker.DoubleGrant, Lock: "k", Events: []int64{1, 6}, From: 31 * ms, Until: 900 * ms,
		}}}},
	}, true)
}

// statesOf are the states of the edges at an instant, by their ends in both orders.
func statesOf(r *facts.Facts, at time.Duration) map[string]string {
	places, _ := placesOf(r.Run.Topology)
	states := map[string]string{}
	for _, edge := range edgesOf(r, places, at) {
		a, b := edge.a.node.Name, edge.b.node.Name
		states[a+"-"+b], states[b+"-"+a] = edge.state, edge.state
	}
	return states
}

// A fault of links shows on the links that it concerns, and on no other, whether the
// history says what it does or only its name.
func TestEdge_hitBy(t *testing.T) {
	recorded := func(name string) history.Topology {
		from, err := topologies.ByName(name)
		require.NoError(t, err)
		var to history.Topology
		for _, n := range from.Nodes {
			to.Nodes = append(to.Nodes, history.Node{Name: n.Name, Kind: string(n.Kind), Role: n.Role, Of: n.Of})
		}
		for _, l := range from.Links {
			to.Links = append(to.Links, history.Link{Name: l.Name(), Kind: string(l.Kind), From: l.From, To: l.To})
		}
		return to
	}
	isolates := []history.Effect{history.Isolates, history.Cuts}
	for _, tt := range []struct {
		fault, target, on string
		params            map[string]string
		effects           []history.Effect
		want              string
		hit, spared       string // "a-b", several separated by spaces
	}{
		{fault: "partition", target: "{redis-1 zone-a}", on: "sentinel", want: "cut", hit: "redis-1-redis-2 zone-b-redis-1 zone-a-redis-2", spared: "zone-a-redis-1 redis-2-redis-3"},
		{fault: "partition-halves", on: "sentinel", want: "cut", hit: "redis-1-redis-2 zone-b-redis-1 zone-a-redis-3", spared: "zone-a-redis-1 redis-2-redis-3"},
		{fault: "partition-halves", on: "sentinel", params: map[string]string{"how": "stall"}, want: "hold", hit: "redis-1-redis-2", spared: "redis-2-redis-3"},
		{fault: "partition-bridge", target: "redis-3", on: "cluster", want: "cut", hit: "redis-1-redis-4 redis-2-redis-6", spared: "redis-1-redis-3 redis-1-redis-2"},
		{fault: "partition-ring", on: "cluster", want: "cut", hit: "redis-1-redis-4", spared: "redis-1-redis-2 zone-a-redis-1"},
		{fault: "flap", target: "redis-1", on: "sentinel", want: "cut", hit: "redis-1-redis-2 zone-a-redis-1", spared: "redis-2-redis-3"},
		{fault: "stall", target: "zone-a>redis", on: "sentinel", want: "hold", hit: "zone-a-redis-1", spared: "zone-b-redis-1"},
		{fault: "bandwidth", target: "zone-a>redis", on: "sentinel", want: "slow", hit: "zone-a-redis-1", spared: "zone-b-redis-1"},
		{fault: "netsplit", target: "{redis-1}", on: "sentinel", effects: isolates, want: "cut", hit: "redis-1-redis-2 zone-a-redis-1", spared: "redis-2-redis-3"},
		{fault: "netsplit", target: "{redis-1}", on: "sentinel", spared: "redis-1-redis-2 zone-a-redis-1 redis-2-redis-3"},
	} {
		t.Run(tt.fault+" "+tt.target, func(t *testing.T) {
			e := history.Event{Process: history.NoProcess, Op: history.Inject, Type: history.Invoke, Fault: tt.fault, Target: tt.target, Params: tt.params, Effects: tt.effects}
			landed := e
			landed.Time, landed.Type, landed.Index = time.Millisecond, history.OK, 1
			r := facts.Of(history.Run{Topology: recorded(tt.on)}, &history.History{Events: []history.Event{e, landed}}, checker.Report{}, true)
			states := statesOf(r, time.Millisecond)
			for edge := range strings.FieldsSeq(tt.hit) {
				require.Equal(t, tt.want, states[edge], edge)
			}
			for edge := range strings.FieldsSeq(tt.spared) {
				require.Contains(t, []string{"", "replicates"}, states[edge], edge)
			}
		})
	}
}

// No topology is drawn outside of its frame, and no two parties in one place.
func TestPlaces(t *testing.T) {
	for _, size := range []struct{ masters, replicas, sentinels int }{{1, 0, 0}, {1, 2, 3}, {3, 3, 0}, {15, 0, 0}} {
		top := history.Topology{Nodes: []history.Node{{Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"}}}
		add := func(n int, kind, role string) {
			for i := range n {
				top.Nodes = append(top.Nodes, history.Node{Name: kind + role + string(rune('a'+i)), Kind: kind, Role: role})
			}
		}
		add(size.masters, "redis", "master")
		add(size.replicas, "redis", "replica")
		add(size.sentinels, "sentinel", "")
		places, height := placesOf(top)
		require.Len(t, places, len(top.Nodes))
		for i, p := range places {
			require.GreaterOrEqual(t, p.x, 0.0)
			require.LessOrEqual(t, p.x+p.w, mapWidth)
			require.LessOrEqual(t, p.y+p.h, height)
			for _, q := range places[:i] {
				require.False(t, p.x < q.x+q.w && q.x < p.x+p.w && p.y < q.y+q.h && q.y < p.y+p.h, "%s on %s", p.node.Name, q.node.Name)
			}
		}
	}
}

// The topology is drawn as it is at an instant: the roles, whom each server granted the lock, and the links.
func TestTopologyAtAnInstant(t *testing.T) {
	r := mapped()
	at := func(ms time.Duration) string { return Topology(r, ms*time.Millisecond) }
	svg := at(31)
	require.Equal(t, 2, strings.Count(svg, "map-server is-master"))
	require.Equal(t, 1, strings.Count(svg, "map-link is-cut"))
	require.Contains(t, svg, ">granted to a</text>")
	require.Contains(t, svg, ">granted to b</text>")
	require.NotContains(t, at(30), ">granted to b</text>")
	require.Contains(t, at(65), "map-server is-down")
	require.Contains(t, at(65), ">granted to a</text>", "it is not known that it copied another")
	require.Empty(t, Topology(facts.Of(history.Run{}, nil, checker.Report{}, true), 0), "nothing is known of it")
	for _, tt := range []struct {
		edge string
		at   time.Duration
		want string
	}{{"r1-r2", 5, "replicates"}, {"r1-r2", 15, "cut"}, {"r1-r2", 45, ""}, {"zone-a-r2", 15, ""}, {"zone-a-r2", 65, "slow"}, {"s1-s3", 65, ""}} {
		require.Equal(t, tt.want, statesOf(r, tt.at*time.Millisecond)[tt.edge], "%s at %d ms", tt.edge, tt.at)
	}
}
