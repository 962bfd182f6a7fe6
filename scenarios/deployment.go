package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// fits refuses a deployment on which the script can't be played to its end. One
// that was started for it is as the script was validated for; a deployment of
// the user has other servers, links and settings.
func (s Scenario) fits(d topologies.Deployment) (faults.Plan, error) {
	t := d.Topology()
	var injected []faults.Step
	for _, step := range s.Steps {
		if step.Inject != "" {
			injected = append(injected, step.fault())
		}
	}
	plan, _, cant := s.environment(t).Given(d, injected)
	errs := []error{harness.CheckServers(s.ReplicaAcks, s.Servers, t), s.forgets(t, plan)}
	for _, client := range slices.Sorted(maps.Keys(s.Clients)) {
		if zones := t.Of(topologies.Zone); !slices.Contains(zones, s.Clients[client]) {
			errs = append(errs, fmt.Errorf("client %s: %w", client, names.Unknown("zone", s.Clients[client], zones)))
		}
	}
	for i, step := range s.Steps {
		if err := step.validate(s, t); err != nil {
			errs = append(errs, stepError{i, err})
		}
	}
	return plan, cmp.Or(cant, faults.Impossible(errs...))
}

// forgets refuses servers that keep their data, where the script kills some that
// are to forget it.
func (s Scenario) forgets(t topologies.Topology, plan faults.Plan) error {
	have := t.Options.Persistence
	if s.Servers.Persistence != "" || have == "" || have == topologies.PersistNone {
		return nil
	}
	for _, step := range plan {
		if step.Spec.Family == faults.Process && step.Spec.Has(history.Restarts) && !step.Spec.Has(history.Forgets) {
			return fmt.Errorf("%s is to make a server forget what it held, and the servers have persistence %s", step.Fault, have)
		}
	}
	return nil
}
