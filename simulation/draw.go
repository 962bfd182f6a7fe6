package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A Campaign is what cases are drawn from.
type Campaign struct {
	// Topology is one of [Topologies], and Servers how many are independent.
	Topology string
	Servers  int
	// Faults is a comma list of [Mixes]. Empty: [MixSafe].
	Faults string
	// ReplicaAcks is how many replicas must acknowledge a grant.
	ReplicaAcks int
}

// The mixes of faults.
const (
	MixNetwork  = "network"  // messages and connections
	MixProcess  = "process"  // servers that stand still, or are killed and keep their data
	MixCrash    = "crash"    // servers that are killed and lose their data
	MixClock    = "clock"    // clocks of servers
	MixFailover = "failover" // another master
	MixClient   = "client"   // processes of clients that stand still or are killed
	MixSafe     = "safe"     // those of these that a correct lock withstands on the topology
	MixNone     = "none"
	MixAll      = "all"
)

// Mixes lists them.
func Mixes() []string {
	return []string{MixNetwork, MixProcess, MixCrash, MixClock, MixFailover, MixClient, MixSafe, MixNone, MixAll}
}

// withstood are the mixes that a correct lock withstands on a topology. All failovers are so
// only if every replica that may be promoted has acknowledged each grant: without
// that, a grant may be lost whatever the lock does.
func withstood(topology string, replicaAcks int) []string {
	switch {
	case !replicated(topology):
		return []string{MixNetwork, MixProcess}
	case replicaAcks >= replicasOf(topology):
		return []string{MixNetwork, MixFailover}
	default: // a server that is gone is replaced
		return []string{MixNetwork}
	}
}

// replicated reports whether servers of a topology have replicas.
func replicated(topology string) bool { return replicasOf(topology) > 0 }

// replicasOf is how many replicas each master of a topology has.
func replicasOf(topology string) int { return topologies.ShapeOf(topology).Replicas }

// kinds are the faults of the campaign's mixes. One that is there twice is drawn twice as
// often. A correct lock withstands clients that are killed, and those that stand still: see
// [Case.GrantsOnly].
func (k Campaign) kinds() ([]string, error) {
	mixes := map[string][]string{
		MixNetwork: {
			world.Stall, world.Stall, world.Cut, world.Reset, world.DropReply, world.DropReply, world.DropCommand,
			world.DelayCommand, world.DelayCommand, world.DelayReply, world.RepeatCommand,
		},
		MixProcess: {world.Pause, world.Kill},
		MixCrash:   {crashEmpty},
		MixClock:   {world.ClockForward, world.ClockBack, world.ClockRate},
		MixClient:  {world.PauseClient, world.KillClient},
		MixNone:    {},
	}
	if replicated(k.Topology) {
		mixes[MixFailover] = []string{replicaStall, world.CrashFailover, silentFailover, silentFailover, world.SplitBrain}
	}
	var all []string
	for _, name := range Mixes() {
		all = append(all, mixes[name]...)
	}
	mixes[MixAll] = all
	for _, name := range withstood(k.Topology, k.ReplicaAcks) {
		mixes[MixSafe] = append(mixes[MixSafe], mixes[name]...)
	}
	mixes[MixSafe] = append(mixes[MixSafe], world.KillClient, world.PauseClient, world.PauseClient)
	if topologies.ShapeOf(k.Topology).Sentinels > 0 && k.ReplicaAcks > 0 && k.ReplicaAcks < replicasOf(k.Topology) {
		// The replica that has most is promoted, which has all that any replica acknowledged.
		mixes[MixSafe] = append(mixes[MixSafe], replicaStall, world.CrashFailover, silentFailover, silentFailover)
	}
	var chosen []string
	var errs []error
	for name := range strings.SplitSeq(cmp.Or(k.Faults, MixSafe), ",") {
		of, ok := mixes[name]
		switch {
		case name == MixFailover && !ok:
			errs = append(errs, fmt.Errorf("topology %s has nothing to fail over to", k.Topology))
		case !ok:
			errs = append(errs, names.Unknown("mix of simulated faults", name, Mixes()))
		}
		chosen = append(chosen, of...)
	}
	return chosen, errors.Join(errs...)
}

// Forms of faults that are drawn by themselves.
const (
	crashEmpty     = "kill, data lost"
	replicaStall   = "stall of replication"
	silentFailover = "crash-failover of a master that is silent to its replicas"
)

// Validate joins everything that is wrong with the campaign for a lock.
func (k Campaign) Validate(l harness.LockSpec) error {
	errs := []error{l.Validate(), Simulable(l, k.Topology)}
	if k.ReplicaAcks > 0 && !l.ReplicaAcks {
		errs = append(errs, fmt.Errorf("lock %s asks no replicas for an acknowledgement", l.Name))
	}
	if k.ReplicaAcks > replicasOf(k.Topology) {
		errs = append(errs, fmt.Errorf("%d replica acks can't come: simulated topology %s has fewer replicas", k.ReplicaAcks, k.Topology))
	}
	if _, err := k.kinds(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// campaignStream keeps what is drawn here apart from what a run draws of the same seed.
const (
	campaignStream = 0xca5e
	extendStream   = 0xe47e
)

// faultsWithin is the time in which faults begin; what follows is quiet, so that it can
// be seen whether the lock is of use again.
const faultsWithin = 2 * time.Second

// quietFor is how long that is, and leaseLong a lease after which it is longer.
const (
	endsEarly = 200 * time.Millisecond
	quietFor  = 3 * time.Second
	quietMost = 9 * time.Second // unless a cluster needs longer: where a lock may stay free for longer, it is not seen to be stuck
	leaseLong = 5 * time.Second
)

// lengthOf is how long a case has to last, so that a lock that is of no use after the faults
// is seen to be so for longer than it may be, as far as that is not too long.
func lengthOf(c Case, early bool) time.Duration {
	if early {
		return faultsWithin + endsEarly
	}
	quiet := quietFor
	if c.Lease > leaseLong {
		quiet += 4 * time.Second
	}
	if topologies.ShapeOf(c.Topology).Slots {
		quiet += clusterRecovery
	}
	return faultsWithin + max(quiet, min(c.Progress+time.Second, quietMost))
}

// clusterRecovery is how long a cluster may take to replace a master, or a master of it to
// serve again that was restarted or cut off.
const clusterRecovery = 3 * time.Second

// ghostTicket is for how long a place in the queue of a lock may stay taken whose client is
// gone: a late copy of its request took it, or a failover lost that it was given up.
const ghostTicket = 6 * time.Second

// unheard is for how long the message may be late that hands a lock over, where a reply on the same connection is: its waiter
// asks by itself every 3 s.
const unheard = 3 * time.Second

// ghostTurn is for how long a lock may be handed to requests of clients that gave up.
const ghostTurn = 10 * time.Second

// Patience is for how long a correct lock may stay free and asked for in a case: 2 s, and
//
//   - where a failover of the plan may lose what ended a grant, or a request for the votes of several
//     servers leave some behind, the lease as well;
//   - of a lock that is handed to the next waiter, a lease for each client: a failover may
//     lose that they gave up waiting;
//   - of such a lock, the time after which a waiter asks by itself, where a reply may be late, and with it the message;
//   - on a cluster the time that it takes to replace a master;
//   - where clients wait in a queue, the time after which one that is gone loses its place.
func Patience(l harness.LockSpec, c Case) time.Duration {
	p, lease := defaultProgress, leaseOf(l, c)
	switch {
	case topologies.ShapeOf(c.Topology).Apart():
		p += lease
	case !replicated(c.Topology) || !failsOver(c.Plan):
	case l.Subscribes:
		p += min(time.Duration(c.Clients)*lease, ghostTurn+lease)
	default:
		p += lease
	}
	if l.Subscribes && slices.ContainsFunc(c.Plan, func(f world.Fault) bool { return f.Name == world.DelayReply && f.By > 0 }) {
		p += unheard
	}
	if topologies.ShapeOf(c.Topology).Slots {
		p += clusterRecovery
	}
	if l.Place || l.Kind == history.KindSemaphore {
		p += ghostTicket
	}
	return p
}

// failsOver reports whether a master may be replaced in a run with that plan.
func failsOver(plan []world.Fault) bool {
	return slices.ContainsFunc(plan, func(f world.Fault) bool {
		switch f.Name {
		case world.CrashFailover, world.SplitBrain, world.Pause, world.Kill:
			return true
		default: // the nodes of a cluster replace a master that they don't reach
			return strings.HasSuffix(f.Target, "/bus")
		}
	})
}

// ghostGrants is for how long the late requests of a plan may be granted a lock, or keep a place
// in its queue, of which no client knows: a lease for each. The client has sent the same request
// again, and is done with it.
func ghostGrants(plan []world.Fault, lease time.Duration) time.Duration {
	late := 0
	for _, f := range plan {
		if f.By > 0 && (f.Name == world.RepeatCommand || f.Name == world.DelayCommand) {
			late++
		}
	}
	return time.Duration(late) * lease
}

// leaseOf is the lease of the grants in a case; some workloads have one of their own.
func leaseOf(l harness.LockSpec, c Case) time.Duration {
	return l.LeaseOf(c.config(l).Lease, cmp.Or(c.Watchdog, defaultWatchdog))
}

// Draw draws a case: what the clients do, how patient and how careful they are, and two
// to seven faults. The same seed draws the same case.
func (k Campaign) Draw(l harness.LockSpec, seed uint64) (Case, error) {
	kinds, err := k.kinds()
	if err != nil {
		return Case{}, err
	}
	d := drawing{Rand: rand.New(rand.NewPCG(seed, campaignStream))} //nolint:gosec // it is no secret
	const ms = time.Millisecond
	c := Case{
		Lock: l.Name, Topology: k.Topology, Servers: k.Servers, Seed: seed, ReplicaAcks: k.ReplicaAcks,
		GrantsOnly: cmp.Or(k.Faults, MixSafe) == MixSafe,
		Clients:    2 + d.IntN(4), Workload: pick(d, workloadsOf(l)),
		Lease: pick(d, []time.Duration{0, 200 * ms, 500 * ms, 1500 * ms, 6 * time.Second}),
		Wait:  pick(d, []time.Duration{1, 300 * ms, time.Second, 3 * time.Second}),
		Hold:  pick(d, []time.Duration{20 * ms, 100 * ms, 300 * ms}),
		Think: pick(d, []time.Duration{20 * ms, 100 * ms, 300 * ms}), Watchdog: pick(d, []time.Duration{200 * ms, 600 * ms}),
	}
	if watched := len(suited(l, []string{"watchdog"})) > 0; watched && d.IntN(4) == 0 || c.Workload == "watchdog" {
		c.Lease = 0
	}
	if c.Lease == 0 && d.IntN(2) == 0 { // else hardly any hold lives until its lease is extended
		c.Hold = c.Watchdog/2 + time.Duration(d.Int64N(int64(2*c.Watchdog)))
	}
	early := d.endsEarly(c)
	if c.Zones = max(2, c.Clients-d.IntN(3)); d.IntN(3) == 0 {
		c.Zones = 2
	}
	if c.Workload == "crash" && c.Lease == 0 {
		c.Lease = 500 * ms
	}
	c.Locks = locksOf(l)
	k.extend(l, &c)
	// Careless clients use a resource after their lease as well, which convicts a lock
	// only if their holds are shorter than the lease in any case.
	careless := d.IntN(4) == 0
	if careless && l.Exclusive() && !l.Together && !l.Reentrant && c.Workload != "crash" {
		c.Careless, c.Lease, c.Hold, c.Workload = true, 1500*ms, 20*ms, workload.Contended
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(name string) bool { return name == world.PauseClient })
	}
	if l.Endless || l.InProcess != nil { // the hold of a client that is killed has no end, or goes on without a process
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(name string) bool { return name == world.KillClient })
	}
	d.lease = min(leaseOf(l, c), leaseMost)
	if d.master = 1; topologies.ShapeOf(c.Topology).Slots {
		d.master = 1 + c.shardOfLocks(l)
	}
	for range 2 + d.IntN(6) {
		if len(kinds) > 0 {
			c.Plan = append(c.Plan, d.fault(pick(d, kinds), c))
		}
	}
	if l.TakesClock && len(kinds) > 0 && d.IntN(2) == 0 {
		f := d.fault(pick(d, []string{world.ClientForward, world.ClientBack, world.ClientSlow}), c)
		during := c.Plan[d.IntN(len(c.Plan))] // a clock that steps while nothing is under way shows nothing
		f.At = during.At + time.Duration(d.Int64N(int64(max(during.For, during.By, time.Millisecond))))
		c.Plan = append(c.Plan, f)
	}
	slices.SortStableFunc(c.Plan, func(a, b world.Fault) int { return cmp.Compare(a.At, b.At) })
	c.Progress = Patience(l, c) + ghostGrants(c.Plan, leaseOf(l, c))
	if c.Length = lengthOf(c, early); !early {
		c.Calm = faultsWithin
	}
	return c, nil
}

// locksTogether is how many locks there are of a service that grants several at once: a request is
// for two or three of them.
const locksTogether = 3

// locksOf is how many locks clients ask for.
func locksOf(l harness.LockSpec) int {
	if l.Together {
		return locksTogether
	}
	return 1
}

// extend has the clients of every other case extend what they hold, half of those after late
// releases. It draws from a stream of its own, so that all else is as in a case without it.
func (k Campaign) extend(l harness.LockSpec, c *Case) {
	d := drawing{Rand: rand.New(rand.NewPCG(c.Seed, extendStream))} //nolint:gosec // it is no secret
	c.Extends = l.Extend && !l.Endless && d.IntN(2) == 0
	if late := "late-release"; c.Workload == workload.Contended && d.IntN(2) == 0 && slices.Contains(suited(l, []string{late}), late) {
		c.Workload = late
		c.Lease = min(c.Lease, longestLate)
	}
}

// longestLate is the longest lease in a case of late releases, for each of which a client waits.
const longestLate = 500 * time.Millisecond

// workloadsOf are the workloads of a campaign: what the lock is for, and what goes wrong
// with clients.
func workloadsOf(l harness.LockSpec) []string {
	wanted := []string{l.DefaultWorkload(), workload.Contended, workload.Contended, "slow-holder", "give-up", "crash", "release-twice", "late-release", "watchdog"}
	switch {
	case l.Kind == history.KindRW:
		wanted = []string{"readers-writers"}
	case l.Kind == history.KindSemaphore:
		wanted = []string{"permits"}
	case l.Together:
		wanted = []string{"several-locks"}
	case l.Reentrant:
		wanted = append(wanted, "re-entrant", "re-entrant", "re-entrant")
	}
	return suited(l, wanted)
}

// suited are those of some workloads that the lock can have.
func suited(l harness.LockSpec, wanted []string) []string {
	return slices.DeleteFunc(wanted, func(name string) bool { return l.Suits(*workload.KindByName(name)) != nil })
}

// A drawing draws the parts of a case.
type drawing struct {
	*rand.Rand
	master int           // the number of the server that has the locks at first
	lease  time.Duration // of the grants
}

func pick[T any](d drawing, all []T) T { return all[d.IntN(len(all))] }

// endsEarly decides whether a case has no quiet time. Without it no lock is seen to be stuck, which a lease of
// 6 s is there for; what else goes wrong shows in three times as many cases in the same time.
func (d drawing) endsEarly(c Case) bool {
	switch {
	case c.Lease > leaseLong || c.Workload == "watchdog": // whose holds are as long as a case that ends early
		return false
	case c.Lease == 0:
		return d.IntN(2) == 0
	default:
		return d.IntN(6) > 0
	}
}

// leaseMost is the longest lease that times are drawn for: a case takes some seconds.
const leaseMost = 6 * time.Second

// span draws a time: half of the time of half a lease to one and a half, which is where most defects show
// that need a length; else from 2 ms to 2 s, of which each order of magnitude is as likely.
func (d drawing) span() time.Duration {
	if d.IntN(2) == 0 {
		return (d.lease/2 + time.Duration(d.Int64N(int64(d.lease)))).Round(time.Microsecond)
	}
	return time.Duration(float64(2*time.Millisecond) * math.Pow(1000, d.Float64())).Round(time.Microsecond)
}

// fault draws one fault of that name or form.
func (d drawing) fault(form string, c Case) world.Fault {
	f := world.Fault{Name: form, At: time.Duration(d.Int64N(int64(faultsWithin))).Round(time.Microsecond)}
	server := serverName(1 + d.IntN(c.serverCount()))
	zone := zoneName(d.IntN(c.Zones))
	link := zone + ">" + server
	if replicated(c.Topology) { // which server is the master is what counts
		if link = zone + ">" + serverName(d.master); d.IntN(4) == 0 {
			link = zone + ">" + server
		}
	}
	if topologies.ShapeOf(c.Topology).Slots && d.IntN(2) == 0 {
		server = serverName(d.master)
	}
	if world.Lasts(form) {
		f.For = d.span()
	}
	switch form {
	case world.Stall:
		f.Target, f.Stream = link, pick(d, []string{world.Both, world.Upstream, world.Downstream})
	case world.Cut, world.Reset:
		f.Target = link
	case world.DropReply, world.DropCommand:
		f.Target, f.After = link, &world.Anchor{Event: world.Request, Nth: 1 + d.IntN(4), Fresh: d.IntN(2) == 0}
	case world.DelayCommand, world.DelayReply, world.RepeatCommand:
		f.Target, f.After, f.By = link, &world.Anchor{Event: world.Request, Nth: 1 + d.IntN(4), Fresh: d.IntN(2) == 0}, d.span()
	case world.Pause:
		f.Target = server
	case world.Kill:
		f.Target, f.Keep = server, true
		d.anchor(&f, server)
	case crashEmpty:
		f.Name, f.Target, f.For = world.Kill, server, d.span()
		d.anchor(&f, server)
	case world.ClockForward, world.ClockBack:
		f.Target, f.By, f.For = server, d.span(), d.span()
	case world.ClockRate:
		f.Target, f.Percent = server, []int{-50, -10, 10, 50}[d.IntN(4)]
	case world.PauseClient, world.KillClient:
		f.Target = zone
	case world.ClientForward, world.ClientBack:
		f.Target, f.By, f.For = zone, time.Duration(d.Int64N(int64(time.Hour))), time.Hour
	case world.ClientSlow: // by what the margin of a correct lock covers
		f.Target, f.Percent, f.For = zone, 1+d.IntN(8), time.Hour
	case replicaStall:
		replica := 2 + d.IntN(2)
		if topologies.ShapeOf(c.Topology).Slots {
			replica = d.master + clusterMasters
		}
		f.Name, f.Target, f.For = world.Stall, serverName(replica)+">"+serverName(d.master), d.span()
	case silentFailover:
		f.Name, f.Lag = world.CrashFailover, d.span()/time.Duration([]int{20, 1}[d.IntN(2)])
		f.By = d.span() / 4
		f.For = f.By + d.span()
		f.After = &world.Anchor{Event: world.Write, Of: world.TheMaster, Nth: 1 + d.IntN(8)}
	case world.CrashFailover, world.SplitBrain:
		f.By = d.span() / 4
		f.For = f.By + d.span()
	}
	if topologies.ShapeOf(c.Topology).Slots && (f.Name == world.CrashFailover || f.Name == world.SplitBrain) {
		f.By, f.For = 0, f.For+electionTime
	}
	return f
}

// electionTime is what a cluster needs to replace a master.
const electionTime = 1500 * time.Millisecond

// anchor has half of the faults begin at a write of the server.
func (d drawing) anchor(f *world.Fault, server string) {
	if nth := 1 + d.IntN(8); d.IntN(2) == 0 {
		f.After = &world.Anchor{Event: world.Write, Of: server, Nth: nth}
	}
}
