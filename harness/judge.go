package harness

import (
	"context"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/workload"
)

// Judge judges a recorded run by [checker.CheckRun], with what its workload has to
// meet. Where properties are named, these alone are judged.
func Judge(ctx context.Context, run history.Run, h *history.History, properties ...string) checker.Report {
	var meets []string
	if run.Scenario == "" {
		meets = workload.Meets(run.Workload, run.Unpromised)
	}
	return checker.CheckRun(ctx, run, h, checker.RunOptions{Meets: meets, Properties: properties})
}
