//go:build linux

package simredis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// Slots of the cluster of the test, by the tags that are in them.
const (
	lastOfA  = 9999 // the other node has those that follow
	unserved = "k"
)

var tags = []string{"b", "c", "e", unserved}

// A node of a cluster answers as a real one does: keys of its own slots, of those of
// the other, and of one that no node has.
func TestDifferentialOfClusters(t *testing.T) {
	for _, tag := range tags {
		require.Equal(t, tag == "e", traffic.KeySlot(tag) > lastOfA, tag)
	}
	ports := freePorts(t, 4)
	options := func(i int) []string {
		return []string{"--port", ports[i], "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-port", ports[2+i]}
	}
	p := newPair(t, options(0)...)
	p.replica = startReal(t, options(1)...) // the other node; its clock goes along
	other := p.replica.dial(t)
	slots(t, p, other)
	limit, first := budget(t)
	down := false
	p.cluster = &simredis.Cluster{
		Slot: func(n int) simredis.Slot {
			if n == traffic.KeySlot(unserved) {
				return simredis.Slot{}
			}
			return simredis.Slot{Mine: n <= lastOfA, Owner: "127.0.0.1:" + ports[1]}
		},
		Down: func() bool { return down },
	}
	for _, down = range []bool{false, true} {
		if down {
			require.Equal(t, "+OK\r\n", p.control.do(t, "CONFIG", "SET", "cluster-require-full-coverage", "yes"))
			require.Equal(t, "+OK\r\n", p.control.do(t, "CLUSTER", "DELSLOTS", "1")) // has it look anew
			clusterIs(t, p, "cluster_state:fail")
		}
		end := time.Now().Add(limit / 2)
		for seed := first; time.Now().Before(end) && !t.Failed(); seed++ {
			steps := newGenerator(seed).steps(60)
			for i := range steps {
				steps[i] = clusterStep(steps[i], seed+uint64(i))
			}
			if d := p.play(t, steps); d != nil {
				p.fail(t, seed, steps, d)
			}
		}
	}
	if !t.Failed() {
		t.Logf("%d commands, none answered otherwise", p.steps)
	}
}

// clusterStep spreads the keys over the slots.
func clusterStep(s step, seed uint64) step {
	g := newGenerator(seed)
	tag := g.one(tags...)
	for i, a := range s.args {
		if g.IntN(10) == 0 {
			tag = g.one(tags...)
		}
		if strings.HasPrefix(a, "{l}") {
			s.args[i] = "{" + tag + "}" + a[3:]
		}
	}
	switch strings.ToLower(s.args[0]) {
	case "keys", "flushall", "flushdb": // what there is of the cluster is the same, but not in what order
		s.args = words("PING")
	}
	return s
}

// slots makes a cluster of the two.
func slots(t *testing.T, p *pair, other *realConn) {
	t.Helper()
	do := func(c *realConn, args ...string) string {
		t.Helper()
		r := c.do(t, args...)
		require.NotContains(t, r, "-ERR", "%q", args)
		return r
	}
	u := traffic.KeySlot(unserved)
	do(p.control, "CLUSTER", "ADDSLOTSRANGE", "0", strconv.Itoa(u-1), strconv.Itoa(u+1), strconv.Itoa(lastOfA))
	do(other, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(lastOfA+1), "16383")
	do(other, "CLUSTER", "SET-CONFIG-EPOCH", "2")
	address := strings.Split(do(p.control, "CONFIG", "GET", "port"), "\r\n")[4]
	bus := strings.Split(do(p.control, "CONFIG", "GET", "cluster-port"), "\r\n")[4]
	do(other, "CLUSTER", "MEET", "127.0.0.1", address, bus)
	clusterIs(t, p, "cluster_known_nodes:2")
	clusterIs(t, p, "cluster_slots_assigned:16383")
	clusterIs(t, p, "cluster_state:ok")
}

// clusterIs waits until the node says that, while the clocks go on.
func clusterIs(t *testing.T, p *pair, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, await.Until(ctx, func() error {
		p.set(p.real.micros + 20_000)
		r := p.control.do(t, "CLUSTER", "INFO")
		if !strings.Contains(r, line+"\r\n") {
			return errors.New(line + " is not in " + r)
		}
		return nil
	}))
}
