package harness

import (
	"context"
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/workload"
)

// Judge judges a recorded run by [checker.CheckRun], with what its workload has to
// meet. Where properties are named, these alone are judged.
func Judge(ctx context.Context, run history.Run, h *history.History, properties ...string) checker.Report {
	return checker.CheckRun(ctx, run, h, checker.RunOptions{Meets: meets(run), Properties: properties})
}

// meets is what a run of these workloads has to meet to show anything; of several
// workloads, each.
func meets(run history.Run) []string {
	if run.Scenario != "" {
		return nil
	}
	kinds, _ := workload.Parse(run.Workload) // one that another version knew asks for nothing here
	var all []string
	for _, k := range kinds {
		for _, m := range k.Meets {
			// A lock that never says that it is not held can't meet a refused release, for instance.
			without := map[string]string{history.MetNotHeld: promises.NoReleaseTells, history.MetDowngrades: promises.NoDowngrades}[m]
			if without == "" || !slices.Contains(run.Unpromised, without) {
				all = append(all, m)
			}
		}
	}
	return all
}
