// Package chance draws numbers that need not be secret, such as the lengths of pauses.
// A simulation gives it a seed, so that they are drawn again when it is repeated.
package chance

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

var seeded atomic.Pointer[source] //nolint:gochecknoglobals // it stands for the functions of math/rand/v2, which are global

type source struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// Seed fixes what is drawn from now on, in the whole process, until the function that
// it returns is called.
func Seed(seed uint64) (restore func()) {
	before := seeded.Swap(&source{rng: rand.New(rand.NewPCG(seed, seed))}) //nolint:gosec // it is no secret
	return func() { seeded.Store(before) }
}

// N draws a number from 0 up to n, without n. It panics if n is not above 0.
func N[Int ~int | ~int64](n Int) Int {
	s := seeded.Load()
	if s == nil {
		return rand.N(n) //nolint:gosec // it is no secret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Int(s.rng.Int64N(int64(n)))
}

// Pause draws the pause before try number tries, counted from 0: from between half and all of least, which is doubled
// with each try up to most.
func Pause(least, most time.Duration, tries int) time.Duration {
	longest := most
	if least <= most>>tries { // so that the other shift doesn't overflow
		longest = least << tries
	}
	return longest - N(longest/2+1)
}
