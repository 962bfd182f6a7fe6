package scenarios

import (
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/workload"
)

// ofLedger reports whether the step requires something of a ledger, and not of
// servers.
func (step ScriptStep) ofLedger() bool {
	return step.Require == requireWritten || step.Require == requireUnwritten
}

// fitsLedger says what is wrong with a step that requires something of a ledger.
func (step ScriptStep) fitsLedger() error {
	if step.In == "" || len(step.On) > 0 {
		return fmt.Errorf(`require %s needs a resource in "in", and no servers in "on"`, step.Require)
	}
	return nil
}

// ledgerFits refuses steps that ask a ledger where there is none, of a scenario
// as one variant has it.
func (s Scenario) ledgerFits() error {
	if s.protected().Resource != ResourceLedger && slices.ContainsFunc(s.Steps, ScriptStep.ofLedger) {
		return fmt.Errorf("%s: require %s and %s need resource: %s, or one of its kind, which keeps every change",
			s.Name, requireWritten, requireUnwritten, ResourceLedger)
	}
	for _, step := range s.Steps {
		if step.ofLedger() && !slices.ContainsFunc(s.Steps, func(other ScriptStep) bool { return other.uses(step.In) }) {
			return fmt.Errorf("%s: require %s in %s: no step reads, writes or accesses it", s.Name, step.Require, step.In)
		}
	}
	return nil
}

// uses reports whether the step uses a resource of that name.
func (step ScriptStep) uses(resource string) bool {
	return resource != "" && slices.Contains([]string{step.Read, step.Write, step.Access}, resource)
}

// require demands of a ledger that it has a change by the owner, or none. It does
// not wait: what was written is there, and what was not written never will be
// without a step that writes it.
func (r *resources) require(step ScriptStep, owner string) error {
	if owner == "" {
		return fmt.Errorf("client %s has asked for no lock", step.Of)
	}
	r.mu.Lock()
	l := r.ledgers[step.In]
	r.mu.Unlock()
	written := l != nil && slices.ContainsFunc(l.Changes(), func(c workload.Change) bool { return c.Owner == owner })
	if written != (step.Require == requireWritten) {
		return fmt.Errorf("%s has a change by %s: %t", step.In, owner, written)
	}
	return nil
}
