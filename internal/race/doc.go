// Package race says whether the race detector is on, for tests that make fewer cases
// then: it multiplies by ten what the judge costs.
package race
