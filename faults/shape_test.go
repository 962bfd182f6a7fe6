package faults_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// A partition is seen by its links: those that it cuts.
func TestPartitionsHaveTheirShape(t *testing.T) {
	for _, tt := range []struct {
		topology, fault, target string
		apart, together         []string // two parties each
	}{
		{
			topologies.Cluster, "partition", "redis-1 zone-a",
			[]string{"redis-1 redis-2", "zone-b redis-1", "zone-a redis-2"},
			[]string{"zone-a redis-1", "redis-2 redis-3"},
		},
		{
			// A minority of the sentinels is on the first side.
			topologies.Sentinels, "partition-halves", "",
			[]string{"redis-1 redis-2", "zone-a redis-3", "zone-b redis-1", "sentinel-1 sentinel-2"},
			[]string{"sentinel-2 sentinel-3", "sentinel-1 redis-1", "redis-2 redis-3"},
		},
		{
			topologies.Cluster, "partition-bridge", "redis-3",
			[]string{"redis-1 redis-4", "redis-2 redis-6"},
			[]string{"redis-3 redis-1", "redis-3 redis-2", "redis-3 redis-4", "redis-3 redis-5", "redis-3 redis-6", "redis-1 redis-2", "redis-4 redis-5"},
		},
		{
			// Each sees a majority, and no two the same one: itself, and two to one side and one to the other.
			topologies.Cluster, "partition-ring", "",
			[]string{"redis-1 redis-4", "redis-2 redis-5", "redis-3 redis-6"},
			[]string{"redis-1 redis-2", "redis-1 redis-3", "redis-1 redis-5", "redis-1 redis-6", "zone-a redis-1"},
		},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			topology, err := topologies.ByName(tt.topology)
			require.NoError(t, err)
			spec, err := faults.ByName(tt.fault)
			require.NoError(t, err)
			links, err := spec.LinksOf(topology, faults.Step{Fault: tt.fault, Target: tt.target})
			require.NoError(t, err)
			cut := func(pair string) bool {
				a, b, _ := strings.Cut(pair, " ")
				return slices.ContainsFunc(links, func(l topologies.Link) bool { return l.From == a && l.To == b || l.From == b && l.To == a })
			}
			for _, pair := range tt.apart {
				require.True(t, cut(pair), pair)
			}
			for _, pair := range tt.together {
				require.False(t, cut(pair), pair)
			}
		})
	}
}
