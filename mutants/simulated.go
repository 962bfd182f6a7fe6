package mutants

import (
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/mutants/broken"
)

// Simulated is the lock with the bug, or its twin, for runs in a simulation, in which
// each client may have a wrong clock and a second way to the servers of its own: prepare
// sets these. The acknowledgements that the bug needs are those of the mutant.
func (m Mutant) Simulated(twin bool, prepare func(*broken.Setup)) harness.LockSpec {
	spec := m.Spec()
	locks := m.bug
	if twin {
		spec.Name, locks = spec.Name+"-twin", m.twin
	}
	spec.Open = OpenBroken(func(s broken.Setup) *broken.Lock {
		prepare(&s)
		return locks(s)
	})
	return spec
}

// Acks is how many replicas must acknowledge a grant of the mutant.
func (m Mutant) Acks() int { return m.acks }
