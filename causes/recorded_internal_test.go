package causes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// A step whose target was known only when it was injected is played again where it hit.
func TestRecordedPlan_hasWhatWasHit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ planned, hit, want string }{
		{"lock", "redis-2", "redis-2"},
		{"holder>etcd", "zone-b>etcd-1 zone-b>etcd-2", "zone-b>etcd"},
		{"holder", "{zone-b}", "zone-b"},
		{"zone-a>etcd", "zone-a>etcd-1 zone-a>etcd-2", "zone-a>etcd"},
	} {
		in := reports.Input{
			Run:     history.Run{Plan: []history.PlannedStep{{At: time.Second, For: time.Second, Fault: "stall", Target: tt.planned}}},
			History: &history.History{},
		}
		c := Cluster{Until: 5 * time.Second, Faults: []reports.Fault{{Name: "stall", Target: tt.hit, Start: 2 * time.Second, InEffect: 2 * time.Second}}}
		plan := recordedPlan(in, c, time.Second)
		require.Len(t, plan, 1)
		require.Equal(t, tt.want, plan[0].Target)
	}
}
