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
func (s Scenario) fits(d topologies.Deployment) error {
	t := d.Topology()
	errs := []error{harness.CheckServers(s.ReplicaAcks, s.Servers, t), s.forgets(t)}
	for _, client := range slices.Sorted(maps.Keys(s.Clients)) {
		if zones := t.Of(topologies.Zone); !slices.Contains(zones, s.Clients[client]) {
			errs = append(errs, fmt.Errorf("client %s: %w", client, names.Unknown("zone", s.Clients[client], zones)))
		}
	}
	var injected []faults.Step
	for i, step := range s.Steps {
		if err := step.validate(s, t); err != nil {
			errs = append(errs, stepError{i, err})
		}
		if step.Inject != "" {
			injected = append(injected, step.fault())
		}
	}
	return cmp.Or(harness.Possible(d, injected...), harness.Impossible(errs...))
}

// forgets refuses servers that keep their data, where the script kills some that
// are to forget it.
func (s Scenario) forgets(t topologies.Topology) error {
	have := t.Options.Persistence
	if s.Servers.Persistence != "" || have == "" || have == topologies.PersistNone {
		return nil
	}
	for _, step := range s.Steps {
		spec, err := faults.ByName(step.Inject)
		if err == nil && spec.Family == faults.Process && spec.Has(history.Restarts) && !spec.Has(history.Forgets) {
			return fmt.Errorf("%s is to make a server forget what it held, and the servers have persistence %s", step.Inject, have)
		}
	}
	return nil
}
