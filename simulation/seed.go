package simulation

import (
	crand "crypto/rand"
	"encoding/binary"
	mrand "math/rand" //nolint:depguard // go-redis and locks of others draw from it
	"math/rand/v2"
	"sync"

	"github.com/lockchaos/lockchaos/lock/chance"
)

// seedProcess fixes the random numbers that clients draw: those of package crypto/rand,
// of lockchaos' own locks, and of package math/rand. The last takes a seed only with
// GODEBUG=randseednop=0, and math/rand/v2 takes none but in
// the exact build: where a lock draws from those, a run may not replay. Reseed gives them another seed.
func seedProcess(seed uint64) (reseed func(uint64), restore func()) {
	was, secrets := crand.Reader, &stream{}
	crand.Reader = secrets
	pauses := chance.Seed(seed)
	reseed = func(seed uint64) {
		secrets.reseed(seed)
		mrand.Seed(int64(seed)) //nolint:gosec,staticcheck,forbidigo // others draw from it, and there is no other way to seed it
		chance.Seed(seed)
		seedRuntime(seed)
	}
	reseed(seed)
	return reseed, func() {
		pauses()
		crand.Reader = was
	}
}

// A stream is a source of bytes that several goroutines may read.
type stream struct {
	mu  sync.Mutex
	rng *rand.ChaCha8
}

func (s *stream) reseed(seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b [32]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	s.rng = rand.NewChaCha8(b)
}

// Read fills b.
func (s *stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Read(b)
}
