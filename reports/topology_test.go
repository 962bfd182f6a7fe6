package reports

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// mapped is a deployment of two servers in which r1 is cut off, r2 takes over,
// and both have granted the lock.
func mapped() *digest {
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
		return history.Event{Time: at, Process: history.Nobody, Op: op, Type: end, Fault: name, Target: target}
	}
	acquire := func(at time.Duration, end history.Type, owner, node string) history.Event {
		return history.Event{Time: at, Process: int(owner[0]), Op: history.Acquire, Type: end, Lock: "k", Owner: owner, Node: node, Lease: time.Second}
	}
	h := &history.History{Events: []history.Event{
		acquire(1*ms, history.Invoke, "a#1", ""),
		acquire(2*ms, history.OK, "a#1", "r1"),
		fault(10*ms, history.Inject, history.Invoke, "cut", "replication"),
		fault(12*ms, history.Inject, history.OK, "cut", "replication"),
		{Time: 20 * ms, Process: history.Nobody, Op: history.Observe, Type: history.OK, Node: "r2", What: history.ObserveRole, Value: "master"},
		acquire(30*ms, history.Invoke, "b#1", ""),
		acquire(31*ms, history.OK, "b#1", "r2"),
		fault(40*ms, history.Heal, history.Invoke, "cut", "replication"),
		fault(41*ms, history.Heal, history.OK, "cut", "replication"),
		fault(50*ms, history.Inject, history.Invoke, "kill", "r1"),
		fault(51*ms, history.Inject, history.OK, "kill", "r1"),
		fault(60*ms, history.Inject, history.Invoke, "latency", "zone-a>redis"),
		fault(61*ms, history.Inject, history.OK, "latency", "zone-a>redis"),
		{Time: 70 * ms, Process: history.Nobody, Op: history.Observe, Type: history.OK, Node: "r2", What: history.ObserveRole, Value: "master"},
	}}
	for i := range h.Events {
		h.Events[i].Index = int64(i)
	}
	return newDigest(Input{Run: history.Run{Topology: t}, History: h, Report: checker.Report{
		Verdict: checker.Invalid, Results: []checker.Result{{Name: "mutual-exclusion", Verdict: checker.Invalid, Violations: []checker.Violation{{
			Kind: checker.DoubleGrant, Lock: "k", Events: []int64{1, 6}, From: 31 * ms, Until: 900 * ms,
		}}}},
	}})
}

// The state of each edge and server follows what was done to it.
func TestLives(t *testing.T) {
	d := mapped()
	places, _ := d.places()
	byName := map[string]*place{}
	for _, p := range places {
		byName[p.node.Name] = p
	}
	lives := map[string]life{}
	for _, e := range d.edges(byName) {
		lives[e.a.node.Name+"-"+e.b.node.Name] = lifeOf(d.changes(), e.states(d))
	}
	for _, tt := range []struct {
		edge string
		at   time.Duration
		want string
	}{
		{"r1-r2", 5, "replicates"},
		{"r1-r2", 15, "cut"},
		{"r1-r2", 45, ""}, // both are masters
		{"zone-a-r2", 15, ""},
		{"zone-a-r2", 65, "slow"},
		{"s1-s3", 65, ""},
	} {
		require.Equal(t, tt.want, lives[tt.edge].at(tt.at*time.Millisecond), "%s at %d ms", tt.edge, tt.at)
	}
	require.Equal(t, "granted to a", d.grantsLife("r1").at(31*time.Millisecond))
	require.Equal(t, "granted to b", d.grantsLife("r2").at(31*time.Millisecond))
	require.Empty(t, d.grantsLife("r2").at(30*time.Millisecond))
}

// Without a script the drawing shows the instant of the violation.
func TestTopologyAtTheViolation(t *testing.T) {
	d := mapped()
	require.Equal(t, 31*time.Millisecond, d.moment())
	svg := d.topologyFigure(d.moment())
	require.Equal(t, 2, strings.Count(svg, "map-server is-master"))
	require.Equal(t, 1, strings.Count(svg, "map-link is-cut"))
	require.Contains(t, svg, ">granted to a</text>")
	require.Contains(t, svg, ">granted to b</text>")
	require.Contains(t, d.topologyFigure(65*time.Millisecond), "map-server is-down")
	require.Empty(t, newDigest(Input{}).topologyFigure(0), "nothing is known of it")
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
		d := newDigest(Input{Run: history.Run{Topology: top}})
		places, height := d.places()
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
