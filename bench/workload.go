package bench

import (
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/internal/names"
)

// Lease is the lease of every request that is measured. None of them ends.
const Lease = time.Minute

// shortHold is long enough for the other one to wait by then, on loopback. Further
// away it takes a few roundTrips more, one of them to spare: the first time a client
// of ours is refused, subscribes, and queues up.
const (
	shortHold  = 3 * time.Millisecond
	roundTrips = 4
)

// A Workload is what the clients do.
type Workload struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Workers is how many goroutines acquire and release, and Instances how many
	// clients of the lock they share, each with connections of its own.
	Workers   int `json:"workers"`
	Instances int `json:"instances"`
	// Locks is how many locks there are; 0 means that each worker has its own.
	Locks int `json:"locks,omitempty"`
	// Turns says that who released a lock asks for it again only when another one
	// has got it.
	Turns bool `json:"turns,omitempty"`
	// Endless says that the contexts of all calls can't end.
	Endless bool `json:"endless,omitempty"`
	// Hold is how long a lock is held.
	Hold time.Duration `json:"hold_ns,omitempty"`
	// Rate is how many operations begin per second, over all workers: an open
	// loop, whose latencies count from the intended start. 0 is a closed loop, in
	// which each worker begins its next operation when the last one has ended.
	Rate float64 `json:"rate,omitempty"`
	// Servers is how many independent servers there are; 0 means the topology
	// that was chosen. One of them may be dead, or be silent: accept requests and
	// answer none.
	Servers int  `json:"servers,omitempty"`
	Dead    bool `json:"dead,omitempty"`
	Silent  bool `json:"silent,omitempty"`
	// Delay is how much longer a round trip takes. It is put on links of the
	// topology, whose own work is part of the measurement then.
	Delay time.Duration `json:"delay_ns,omitempty"`
	// Baseline names the system that all are compared with, and Metric what is
	// compared.
	Baseline string `json:"baseline"`
	Metric   Metric `json:"metric"`
}

// A Metric is the figure by which systems are compared and ranked.
type Metric string

// The metrics.
const (
	OpsPerSecond       Metric = "ops/s"        // acquires and releases per second
	HandoversPerSecond Metric = "hand-overs/s" // of them, those that follow one of another worker
	HandoverMedian     Metric = "hand-over p50"
	CycleMedian        Metric = "cycle p50" // of an acquire and a release
)

// less says that lower is better.
func (m Metric) less() bool { return m == HandoverMedian || m == CycleMedian }

// contended is one lock for all, as hard as they can.
func contended(workers, instances int) Workload {
	w := Workload{
		Name: fmt.Sprintf("contended-%d", workers), Workers: workers, Instances: instances, Locks: 1,
		About:    fmt.Sprintf("%d workers of one client want one lock", workers),
		Baseline: BaselineToken, Metric: HandoversPerSecond,
	}
	if instances > 1 {
		w.Name += fmt.Sprintf("x%d", instances)
		w.About = fmt.Sprintf("%d workers of %d clients want one lock", workers, instances)
	}
	return w
}

func uncontended(workers int) Workload {
	w := Workload{
		Name: fmt.Sprintf("uncontended-%d", workers), Workers: workers, Instances: 1,
		About:    fmt.Sprintf("%d workers of one client, each with a lock of its own", workers),
		Baseline: BaselineSetNX, Metric: OpsPerSecond,
	}
	if workers == 1 {
		w.About = "one worker with a lock of its own"
	}
	return w
}

// handover is one holder and one that waits, of two clients. The hold is long
// enough for the other one to wait when it ends.
func handover(hold time.Duration) Workload {
	return Workload{
		Name: "handover", Workers: 2, Instances: 2, Locks: 1, Turns: true, Hold: hold,
		About:    fmt.Sprintf("two clients take turns, %v each: from the call of release until the other one has the lock", hold),
		Baseline: BaselinePush, Metric: HandoverMedian,
	}
}

func redlock(servers int) Workload {
	return Workload{
		Name: fmt.Sprintf("redlock-%d", servers), Workers: 1, Instances: 1, Servers: servers,
		About:    fmt.Sprintf("one worker, on %d independent servers", servers),
		Baseline: BaselineFanOut, Metric: CycleMedian,
	}
}

// Workloads lists all of them.
func Workloads() []Workload {
	var all []Workload
	endless := uncontended(1)
	endless.Name, endless.About, endless.Endless = endless.Name+"-endless", endless.About+", whose contexts can't end", true
	all = append(all, uncontended(1), endless, uncontended(16))
	many := Workload{
		Name: "many-keys", Workers: 16, Instances: 1, Locks: 10_000,
		About: "16 workers of one client, each time on one of 10,000 locks", Baseline: BaselineSetNX, Metric: OpsPerSecond,
	}
	all = append(all, many)
	for _, workers := range []int{2, 16, 64, 256} {
		all = append(all, contended(workers, 1))
	}
	for _, workers := range []int{16, 64, 256} {
		all = append(all, contended(workers, 4))
	}
	all = append(all, handover(shortHold))
	open := Workload{
		Name: "open-uncontended", Workers: 64, Instances: 1, Rate: 1000,
		About: "1,000 operations begin per second, each worker with a lock of its own", Baseline: BaselineSetNX, Metric: CycleMedian,
	}
	all = append(all, open)
	open.Name, open.About, open.Locks, open.Rate = "open-contended", "200 operations begin per second, all on one lock", 1, 200
	open.Baseline = BaselineToken
	all = append(all, open)
	for _, delay := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		for _, w := range []Workload{uncontended(1), handover(shortHold + roundTrips*delay)} {
			w.Name, w.Delay = fmt.Sprintf("%s-%v", w.Name, delay), delay
			w.About += fmt.Sprintf(", %v away from the server", delay)
			if w.Metric == OpsPerSecond {
				w.Metric = CycleMedian
			}
			all = append(all, w)
		}
	}
	for _, servers := range []int{3, 5} {
		w := redlock(servers)
		all = append(all, w)
		w.Name, w.About, w.Dead = w.Name+"-dead", w.About+", one of them dead", true
		all = append(all, w)
		w = redlock(servers)
		w.Name, w.About, w.Silent = w.Name+"-silent", w.About+", one of which does not answer", true
		all = append(all, w)
	}
	return all
}

// DefaultWorkloads names those that are run when none is named: one of each sort.
func DefaultWorkloads() []string {
	return []string{
		"uncontended-1", "uncontended-16", "many-keys", "contended-2", "contended-64", "contended-64x4", "handover",
		"open-uncontended", "open-contended", "uncontended-1-1ms", "handover-1ms", "redlock-5", "redlock-5-dead",
	}
}

// WorkloadsByName returns the named ones in that order; "all" stands for all.
func WorkloadsByName(wanted ...string) ([]Workload, error) {
	known := []string{"all"}
	byName := map[string][]Workload{"all": Workloads()}
	for _, w := range Workloads() {
		known, byName[w.Name] = append(known, w.Name), []Workload{w}
	}
	var chosen []Workload
	for _, name := range wanted {
		if byName[name] == nil {
			return nil, names.Unknown("benchmark workload", name, known)
		}
		chosen = append(chosen, byName[name]...)
	}
	return chosen, nil
}

// loop says how the operations begin.
func (w Workload) loop() string {
	if w.Rate > 0 {
		return fmt.Sprintf("open loop, %g/s", w.Rate)
	}
	return "closed loop"
}

// Contended reports whether workers wait for each other.
func (w Workload) Contended() bool { return w.Locks > 0 && w.Locks < w.Workers }
