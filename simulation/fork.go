package simulation

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A Fork has a run go on otherwise from an instant on: what comes before is the run of the case without it, and what
// the network and the clients draw from then on is of another seed. Messages that are under way then arrive as before,
// and the plan stays.
type Fork struct {
	At   time.Duration `json:"at"`
	Seed uint64        `json:"seed"`
}

// A forkable is the random numbers of a client, which are others once the seed is another.
type forkable struct {
	now    *atomic.Pointer[uint64] // the seed
	seed   *uint64                 // that of pcg
	stream uint64
	pcg    *rand.PCG
}

// Uint64 draws a number.
func (f *forkable) Uint64() uint64 {
	if now := f.now.Load(); now != f.seed {
		f.seed, f.pcg = now, rand.NewPCG(*now, f.stream)
	}
	return f.pcg.Uint64()
}

// forks has the run fork when it is time. It returns the random numbers of its clients, for
// [workload.Config.Source], and what ends that.
func (d *deployment) forks(reseed func(uint64)) (source func(stream uint64) rand.Source, end func()) {
	var now atomic.Pointer[uint64]
	now.Store(&d.Seed)
	source = func(stream uint64) rand.Source { return &forkable{now: &now, stream: stream} }
	fork := func() {
		reseed(d.Fork.Seed)
		d.Reseed(d.Fork.Seed)
		now.Store(&d.Fork.Seed)
	}
	if d.Fork.At == 0 { // a timer would fire once every client has made its first choices
		fork()
		return source, func() {}
	}
	timer := time.AfterFunc(d.Fork.At, fork)
	return source, func() { timer.Stop() }
}
