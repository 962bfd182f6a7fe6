package causes_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/causes"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/topologies"
)

// The control lock does what the clients of a run ask for, wherever a correct lock of the program can.
func TestControlFor(t *testing.T) {
	for _, tt := range []struct{ topology, workload, kind, want string }{
		{topologies.Single, "contended", checker.DoubleGrant, "correct-key"},
		{topologies.Sentinels, "watchdog", checker.Stuck, "correct-key"},
		{topologies.Single, "contended,release-twice,late-release,re-entrant,watchdog", checker.DoubleGrant, "mutex"}, // the default of a driver that promises them
		{topologies.Independent, "watchdog,re-entrant", checker.DoubleGrant, "redlock"},
		{topologies.Sentinels, "contended", checker.FenceDuplicate, "mutex-fenced"},
		{topologies.Cluster, "contended", checker.Overtaken, "mutex-fair"},
		{topologies.Single, "readers-writers", checker.DoubleGrant, "rwmutex"},
		{topologies.Sentinels, "permits", checker.OverCapacity, "semaphore-permit"},
	} {
		under, err := locks.All().ByName(locks.Default(tt.topology))
		require.NoError(t, err)
		r := harness.RandomRun{Topology: tt.topology, Lock: under, Kind: tt.workload, Length: time.Second}
		control, err := locks.ControlFor(locks.All(), tt.topology, func(l harness.LockSpec) error {
			_, unsuited := r.Control(history.Run{}, l)
			return errors.Join(unsuited, causes.Shows(l, tt.kind))
		})
		require.NoError(t, err)
		require.Equal(t, tt.want, control.Name, tt.workload)
	}
}
