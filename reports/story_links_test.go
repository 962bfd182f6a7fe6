package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// Of two nodes with two links the story names that which was hit, and that kept the grant.
func TestAFaultOfOneOfTwoLinks(t *testing.T) {
	t.Parallel()
	in := failover()
	for i := range in.Run.Topology.Links {
		if l := in.Run.Topology.Links[i]; l.Kind == "replication" {
			l.Name, l.Kind = l.Name+"/bus", "bus"
			in.Run.Topology.Links = append(in.Run.Topology.Links, l)
		}
	}
	for i := range in.History.Events {
		if e := &in.History.Events[i]; e.Fault == "cut" {
			e.Target = "redis-2>redis-1"
		}
	}
	told := reports.Summarize(in).Story.String()
	require.Contains(t, told, "the link redis-2>redis-1 was cut")
	require.NotContains(t, told, "/bus")
}
