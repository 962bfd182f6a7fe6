package simulation

// DeepStacks is what a worker does.
func DeepStacks() (end func()) { return deepStacks() }
