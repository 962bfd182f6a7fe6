//go:build !lockchaos_exact

package simulation

// seedRuntime does nothing: see the other build.
func seedRuntime(uint64) {}

// Exact reports whether this is the exact build, in which the same case is always the same
// run: the Go runtime takes its random choices from the case's seed.
func Exact() bool { return false }
