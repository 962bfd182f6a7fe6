//go:build lockchaos_exact

package simulation

import _ "unsafe" // for linkname

//go:linkname simulationSeed runtime.SimulationSeed
var simulationSeed uint64

// seedRuntime fixes what the runtime chooses in the next bubble.
func seedRuntime(seed uint64) { simulationSeed = seed }

// Exact reports whether this is the exact build, in which the same case is always the same
// run: the Go runtime takes its random choices from the case's seed.
func Exact() bool { return true }
