package harness_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A meteredDeployment counts the scripts that its clients sent.
type meteredDeployment struct {
	topologies.Deployment

	scripts *atomic.Int64
}

func (d meteredDeployment) Close() error {
	stats, err := d.Server("redis-1").Observer().InfoMap(context.Background(), "commandstats").Result()
	if err == nil {
		for _, name := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
			calls, _, _ := strings.Cut(strings.TrimPrefix(stats["Commandstats"][name], "calls="), ",")
			n, _ := redis.NewCmdResult(calls, nil).Int64()
			d.scripts.Add(n)
		}
	}
	return d.Deployment.Close()
}

// accepted are the operations of that kind that came to something.
func accepted(h *history.History, op history.Op) []history.Event {
	var all []history.Event
	for _, e := range h.Events {
		if e.Op == op && e.Type == history.OK {
			all = append(all, e)
		}
	}
	return all
}

// A grant by the server takes two scripts, one to ask for it and one to release it;
// one that is passed on in memory takes none.
func TestUnnamedCallersPassTheLockOn(t *testing.T) {
	for _, tt := range []struct {
		lock  string
		least float64 // part of the grants that is passed on
		most  float64
	}{{"mutex-unnamed", 0.1, 1}, {"mutex", -1, 0}} {
		t.Run(tt.lock, func(t *testing.T) {
			t.Parallel()
			var scripts atomic.Int64
			setup := runtest.Setup(t)
			setup.Backend = wrapped(func(d topologies.Deployment) topologies.Deployment { return meteredDeployment{d, &scripts} })
			r := harness.RandomRun{
				Topology: "single", Lock: runtest.Lock(tt.lock), Kind: "bursts", Faults: faults.MixNone, Length: 1500 * time.Millisecond,
				Workload: workload.Config{Wait: time.Second, Hold: 5 * time.Millisecond}, // of which each has a twentieth
			}
			var grants float64
			runtest.Until(t, r, setup, "", func(h *history.History, report checker.Report) bool {
				require.NotEqual(t, checker.Invalid, report.Verdict, "%+v", report)
				grants = float64(len(accepted(h, history.Acquire)))
				if report.Verdict == checker.Valid && grants > 50 {
					return true
				}
				scripts.Store(0) // those of another run do not count
				return false
			})
			passed := 1 - float64(scripts.Load())/2/grants
			t.Logf("%d scripts for %.0f grants", scripts.Load(), grants)
			require.GreaterOrEqual(t, passed, tt.least)
			require.LessOrEqual(t, passed, tt.most)
		})
	}
}
