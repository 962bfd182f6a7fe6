package mutants

import "github.com/lockchaos/lockchaos/harness"

// Twin is the correct twin of the lock with the bug, to be put under test like any other.
func (m Mutant) Twin() harness.LockSpec {
	spec := m.Spec()
	spec.Name, spec.About, spec.Open = spec.Name+"-twin", "the correct twin of "+m.Lock(), OpenBroken(m.twin)
	return spec
}

// Acks is how many replicas must acknowledge a grant of the mutant.
func (m Mutant) Acks() int { return m.acks }
