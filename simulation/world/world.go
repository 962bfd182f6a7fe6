package world

import (
	"errors"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// A World is a deployment in virtual time. Create it with [New] in a bubble, add
// servers and zones, and call [World.Start]. It is safe for concurrent use by the
// clients.
type World struct {
	// Notice is told of faults, in the order of events. Nil: it is not. It must not call
	// the world.
	Notice func(Notice)

	mu       sync.Mutex
	begin    time.Time
	seed     uint64
	nodes    []*Node
	sentinel *Node // nil: there is none
	zones    map[string]*Zone
	links    map[string]*link
	master   string   // the name of the server that Sentinels name, or that has the slot
	cluster  *cluster // nil: there is none
	counts   Counts
	sent     []sent

	plan   []Fault
	armed  []*armed  // those that wait for an event
	active []*active // those that last

	events  []event         // in order
	used    []time.Duration // instants from now on at which something happens, in order
	timer   *time.Timer
	over    bool
	stopped chan struct{}
}

// A Notice says that a fault began, or ended; or that a Server has another Role: a master,
// since Sentinels name it or a cluster elected it, or the replica of another.
type Notice struct {
	Fault  Fault
	Began  bool
	Target string // of the fault, where it was the master
	Server string
	Role   string // "master" or "replica"
}

// Counts are how much happened.
type Counts struct {
	Messages int `json:"messages"` // either way, and between servers
	Requests int `json:"requests"` // that servers got
	Faults   int `json:"faults"`   // that began
}

// New makes a world whose random choices are fixed by the seed, in which these faults
// happen.
func New(seed uint64, plan []Fault) *World {
	return &World{begin: time.Now(), seed: seed, plan: plan, zones: map[string]*Zone{}, links: map[string]*link{}}
}

// Counts are how much happened so far.
func (w *World) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Requests are how many each link had so far, by the names of the links. What a client
// says first on a connection is none.
func (w *World) Requests() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests := map[string]int{}
	for name, l := range w.links {
		if l.requests > 0 {
			requests[name] = l.requests
		}
	}
	return requests
}

// A Sent is a command that a client sent: not what it says first on a connection.
type Sent struct {
	// At is the time since the world began.
	At   time.Duration `json:"at"`
	Link string        `json:"link"`
	// Name is the command's, in upper case, and Script the SHA-1 of the script that it
	// runs, if it does.
	Name   string `json:"name"`
	Script string `json:"script,omitempty"`
}

// A sent is a request that a client sent.
type sent struct {
	at       time.Duration
	link     string
	requests [][]string
}

// Sent are the commands that clients sent so far, in order.
func (w *World) Sent() []Sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Sent
	for _, r := range w.sent {
		for _, args := range r.requests {
			s := Sent{At: r.at, Link: r.link, Name: strings.ToUpper(args[0])}
			switch {
			case len(args) < 2:
			case s.Name == "EVALSHA":
				s.Script = strings.ToLower(args[1])
			case s.Name == "EVAL":
				s.Script = simredis.Sha(args[1])
			}
			all = append(all, s)
		}
	}
	return all
}

// Start lets time pass in the world. It fails for a fault that it can't have.
func (w *World) Start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for i, f := range w.plan {
		if err := w.Validate(f); err != nil {
			errs = append(errs, fmt.Errorf("fault %d of the plan: %w", i+1, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.timer, w.stopped = time.NewTimer(time.Hour), make(chan struct{})
	go w.drive()
	for _, f := range w.plan {
		w.inject(f)
	}
	return nil
}

// Close ends what Start began, and frees the servers' memory.
func (w *World) Close() {
	w.mu.Lock()
	driven := w.stopped != nil && !w.over
	if w.over = true; driven {
		w.timer.Reset(0)
	}
	w.mu.Unlock()
	if driven {
		<-w.stopped
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.server.Close()
	}
}

// NodeName is the name of the server at an address, or the address.
func (w *World) NodeName(address string) string {
	if n := w.nodeAt(address); n != nil {
		return n.name
	}
	return address
}

func (w *World) nodeAt(address string) *Node {
	for _, n := range w.nodes {
		if n.address == address {
			return n
		}
	}
	return nil
}

// node returns the server of that name; nil if there is none.
func (w *World) node(name string) *Node {
	if name == TheMaster {
		name = w.master
	}
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// now is the time since the world began.
func (w *World) now() time.Duration { return time.Since(w.begin) }

// A link has the choices that are made for one pair of parties, so that what happens on
// other links does not change them.
type link struct {
	stream   uint64
	rng      *rand.Rand
	requests int // that clients sent
	// sent has the hashes of these requests.
	sent map[uint64]struct{}
}

func (w *World) link(name string) *link {
	l := w.links[name]
	if l == nil {
		h := fnv.New64a()
		_, _ = io.WriteString(h, name)
		l = &link{stream: h.Sum64(), sent: map[uint64]struct{}{}}
		l.reseed(w.seed)
		w.links[name] = l
	}
	return l
}

func (l *link) reseed(seed uint64) { l.rng = rand.New(rand.NewPCG(seed, l.stream)) } //nolint:gosec // it is no secret

//nolint:gochecknoglobals // one for all links of a process
var requestHash = maphash.MakeSeed()

// Reseed has all random choices from now on be those of another seed.
func (w *World) Reseed(seed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seed = seed
	for _, l := range w.links {
		l.reseed(seed)
	}
}

// How long a message takes: usually between the first two, and one in a few up to so
// much longer.
const (
	leastLatency  = 50 * time.Microsecond
	latencySpread = 300 * time.Microsecond
	oneInSlow     = 50
	slowSpread    = 20 * time.Millisecond
)

// latency draws that of one message.
func (l *link) latency() time.Duration {
	d := leastLatency + time.Duration(l.rng.Int64N(int64(latencySpread)))
	if l.rng.IntN(oneInSlow) == 0 {
		d += time.Duration(l.rng.Int64N(int64(slowSpread)))
	}
	return d
}
