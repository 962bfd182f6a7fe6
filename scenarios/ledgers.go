package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
)

// Where a scenario names a resource, fencedPrefix begins the names of those that
// refuse stale tokens, and checkedPrefix of those that a write is compared and
// set in.
const (
	fencedPrefix  = "fenced"
	checkedPrefix = "checked"
)

// resourceConfig is the resource of a scenario.
func (s Scenario) resourceConfig() harness.ResourceConfig {
	rest, fencing := strings.CutPrefix(s.Resource, fencedPrefix)
	rest, checked := strings.CutPrefix(rest, checkedPrefix)
	return harness.ResourceConfig{Kind: cmp.Or(strings.TrimPrefix(rest, "-"), harness.ResourceRegister), Fencing: fencing, Checked: checked}
}

// resourceFits says what is wrong with the resource of a scenario.
func (s Scenario) resourceFits() error {
	known := append(harness.ResourceNames(), fencedPrefix, checkedPrefix)
	for _, name := range harness.ResourceNames() {
		known = append(known, fencedPrefix+"-"+name, checkedPrefix+"-"+name)
	}
	if s.Resource != "" && !slices.Contains(known, s.Resource) {
		return names.Unknown("resource", s.Resource, known)
	}
	return s.resourceConfig().Validate(s.Lock)
}

// ofLedger reports whether the step requires something of a ledger, and not of
// servers.
func (step ScriptStep) ofLedger() bool {
	return step.Require == requireWritten || step.Require == requireUnwritten
}

// ledgerFits refuses steps that ask a ledger where there is none, of a scenario
// as one variant has it.
func (s Scenario) ledgerFits() error {
	if s.resourceConfig().Kind != harness.ResourceLedger && slices.ContainsFunc(s.Steps, ScriptStep.ofLedger) {
		return fmt.Errorf("%s: require %s and %s need resource: %s, or one of its kind, which keeps every change",
			s.Name, requireWritten, requireUnwritten, harness.ResourceLedger)
	}
	for _, step := range s.Steps {
		if step.ofLedger() && !slices.ContainsFunc(s.Steps, func(other ScriptStep) bool {
			return slices.Contains([]string{other.Read, other.Write, other.Access}, step.In)
		}) {
			return fmt.Errorf("%s: require %s in %s: no step reads, writes or accesses it", s.Name, step.Require, step.In)
		}
	}
	return nil
}
