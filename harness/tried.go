package harness

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// What becomes of a message that is kept: it arrives within the lease that clients ask for, or a watchdog renews, or past it.
const withinLease, pastLease = "within the lease", "past the lease"

// Tries are the faults of one message that plans of the run may have, each with the request that it
// meets and what becomes of that: "hold-command of release, past the lease". They are those of a
// lock of the user's own, whose requests are learnt; for another one there are none.
func (r RandomRun) Tries() ([]string, error) {
	r.Plan = nil
	x, err := r.resolve()
	if err != nil || x.draws.Lease == 0 {
		return nil, err
	}
	var all []string
	for _, c := range x.chosen {
		if !c.Brief {
			continue
		}
		moments := []string{withinLease, pastLease}
		if then := c.Params["then"]; then != "" {
			moments = strings.Split(then, "|")
		}
		request, _, _ := strings.Cut(c.Params[ParamCommand], "|")
		for _, m := range moments {
			all = append(all, try(c.Spec.Name, request, m))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func try(fault, request, moment string) string {
	return fault + " of " + strings.TrimSuffix(request, "-last") + ", " + moment
}

// Tried are those of the [RandomRun.Tries] that took effect in a recorded run, as often as they did.
func Tried(run history.Run, h *history.History) []string {
	var s settings
	if json.Unmarshal(run.Settings, &s) != nil {
		return nil
	}
	lease := cmp.Or(s.Lease, s.Watchdog)
	var all []string
	var step history.PlannedStep // that was injected last: they follow each other, as planned
	var fired time.Duration
	next := 0
	for _, e := range h.Events {
		switch {
		case e.Op == history.Inject && e.Type == history.Invoke && next < len(run.Plan):
			step, fired = run.Plan[next], -1
			next++
		case e.Fault != step.Fault || step.Params[ParamCommand] == "":
		case e.Op == history.Inject && e.Type == history.OK:
			if then := step.Params["then"]; then != "" {
				all = append(all, try(step.Fault, step.Params[ParamCommand], then))
			} else if ms, err := strconv.Atoi(step.Params["for"]); err == nil {
				all = append(all, kept(step, time.Duration(ms)*time.Millisecond, lease))
			} else {
				fired = e.Time // it is kept until the heal
			}
		case e.Op == history.Heal && e.Type == history.OK && fired >= 0:
			all = append(all, kept(step, e.Time-fired, lease))
			fired = -1
		}
	}
	return all
}

// kept is a try whose message arrived so much later.
func kept(step history.PlannedStep, late, lease time.Duration) string {
	moment := withinLease
	if late > lease {
		moment = pastLease
	}
	return try(step.Fault, step.Params[ParamCommand], moment)
}
