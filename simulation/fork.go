package simulation

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A Fork has a run go on otherwise from an instant on: what comes before is the run of the case without it, and what
// the network and the clients draw from then on is of another seed. Messages that are under way then arrive as before,
// and the plan stays.
type Fork struct {
	At   time.Duration `json:"at"`
	Seed uint64        `json:"seed"`
}

// A forkable is random numbers that a fork draws anew.
type forkable struct {
	mu     sync.Mutex
	stream uint64
	pcg    *rand.PCG
}

// Uint64 draws a number.
func (f *forkable) Uint64() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pcg.Uint64()
}

func (f *forkable) reseed(seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pcg = rand.NewPCG(seed, f.stream)
}

// forkables are the random numbers of all clients.
type forkables struct {
	mu   sync.Mutex
	seed uint64 // of now
	all  []*forkable
}

// source is the random numbers of a client, for [workload.Config.Source].
func (s *forkables) source(stream uint64) rand.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &forkable{stream: stream}
	f.reseed(s.seed)
	s.all = append(s.all, f)
	return f
}

func (s *forkables) reseed(seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seed = seed
	for _, f := range s.all {
		f.reseed(seed)
	}
}

// forks has the run fork when it is time. It returns the random numbers of its clients, and what ends that.
func (d *deployment) forks(reseed func(uint64)) (clients *forkables, end func()) {
	clients = &forkables{seed: d.Seed}
	fork := func() {
		reseed(d.Fork.Seed)
		d.Reseed(d.Fork.Seed)
		clients.reseed(d.Fork.Seed)
	}
	if d.Fork.At == 0 { // a timer would fire once every client has made its first choices
		fork()
		return clients, func() {}
	}
	timer := time.AfterFunc(d.Fork.At, fork)
	return clients, func() { timer.Stop() }
}
