package faults

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// The mixes of random faults that are no [Family].
const (
	MixNone = history.NoFaults
	// MixAll is whatever the topology can have of network, process, redis,
	// failover, cluster and client: what needs nothing but servers and drivers.
	MixAll = "all"
	// MixSafe is what a correct lock survives of MixAll on these servers.
	MixSafe = "safe"
)

// Mixes lists what the faults of a random run can be drawn from.
func Mixes() []string {
	all := []string{MixNone, MixSafe}
	for _, f := range []Family{Network, Process, Redis, Failover, Cluster, Client, Clock, Disk} {
		all = append(all, string(f))
	}
	return append(all, MixAll)
}

// DefaultMix is the mix of a run that names none: what the topology ought to
// be asked to survive, and the lock. Processes that lose their memory are not part of it.
func (e Environment) DefaultMix() string {
	mix := string(Network)
	if e.replicated() {
		mix += "," + string(Failover)
	}
	if e.noClientClocks() == "" {
		mix += "," + string(Client)
	}
	return mix
}

// noClientClocks is why the clocks of clients can't be changed; empty if they can.
func (e Environment) noClientClocks() string {
	if !e.Lock.Process {
		return "the clients of a random run are no processes of their own, but with a driver"
	}
	return e.Lock.NoClocks
}

// TargetOfLock is the target of a random fault that is to hit a server on which
// locks are. Which one that is, is known when it is injected: masters change,
// and on a cluster each lock has its own.
const TargetOfLock = "lock"

// TargetOfHolder stands for a zone in the target of a random fault that is to hit a client that holds a lock then.
const TargetOfHolder = "holder"

// HolderIn is a target with that zone in place of [TargetOfHolder], and reports false where it does not have that.
func HolderIn(zone, target string) (in string, ok bool) {
	links, ok := strings.CutPrefix(target, TargetOfHolder)
	if !ok || links != "" && links[0] != '>' {
		return target, false
	}
	return zone + links, true
}

// SomeTarget is what a target may come to mean that is known when its fault is injected; any other is itself.
func SomeTarget(t topologies.Topology, target string) string {
	if target == TargetOfLock {
		return t.Servers()[0]
	}
	in, _ := HolderIn("zone-a", target)
	return in
}

// A Candidate is a fault that a random plan may be drawn from.
type Candidate struct {
	Spec *Spec
	// Mix is that of the fault's family, unless it belongs to another here.
	Mix string
	// Target and Params may leave a choice: "a|b" is one of those, and a
	// parameter "10-50" a whole number from that range.
	Target string
	Params map[string]string
	// Least and Most bound how long it lasts in a run of ten seconds or more; both
	// zero for a fault that is over at once.
	Least, Most time.Duration
	// Weight is by how much it tends to come sooner than one of weight 1.
	Weight int
	// Brief says that it meets one message: of those, two come for each other fault.
	Brief bool
	// Seldom says that only one seed in [seldomSeeds] draws it, and before the others.
	Seldom bool
	// Cant says why it can't take effect here; empty if it can.
	Cant string
	// Breaks says which promise of a correct lock it may break here; empty: none.
	Breaks string

	place float64 // in its deck
}

// An Environment is what random faults are drawn for.
type Environment struct {
	Topology topologies.Topology
	// Acks is how many replicas each grant waits for.
	Acks int
	// Locks are the names of the locks of the run, and Lease is what clients ask for; 0: that is
	// not known.
	Locks []string
	Lease time.Duration
	// Session is for how long the session of a client that holds a lock lives without a word; 0: no hold ends with one.
	// Outlasting says that some clients hold a lock for longer.
	Session    time.Duration
	Outlasting bool
	Lock       LockTraits
	// Script says that it is no random run but a script, of which Clients may each be a process of its own. Resource says
	// that a server of its own has what the locks protect: see [OfResource].
	Script, Resource bool
	Clients          []string
}

// LockTraits are what faults need to know of the lock under test.
type LockTraits struct {
	Name string
	// Local says that it sends nothing to any server.
	Local bool
	// Subscribes says that clients that wait are told of a release by a message.
	Subscribes bool
	// Commands are those that it sends again and again, with "|" between them.
	Commands string
	// Process says that it is a driver, a process of its own in each zone, and NoClocks why the clock of
	// that can't be changed; empty: it can.
	Process  bool
	NoClocks string
	// Own says that it is a lock of the user's own, whose commands are learnt. Requests are what they are
	// for, each as words that a fault may wait for, with "|" between them.
	Own      bool
	Requests []string
}

// members are the links of all clients to each of the servers that know nothing of each other;
// empty where there are none.
func (e Environment) members() string {
	if !e.Topology.Apart() {
		return ""
	}
	return "zone>" + strings.Join(e.Topology.Servers(), "|zone>")
}

// replicas are the links of each replica to its master; empty where there are none.
func (e Environment) replicas() string {
	var links []string
	for _, l := range e.Topology.Links {
		target := l.From + ">redis/" + string(topologies.Replication)
		if n, _ := e.Topology.Node(l.From); l.Kind == topologies.Replication && n.Of != "" && !slices.Contains(links, target) {
			links = append(links, target)
		}
	}
	return strings.Join(links, "|")
}

// keeps reports whether servers remember what they granted when they are killed.
func (e Environment) keeps() bool {
	kept := e.Topology.Options.Persistence
	return e.Topology.Consensus() || kept != "" && kept != topologies.PersistNone
}

// replicated reports whether there is a server to fail over to, and elects whether
// the servers do so by themselves.
func (e Environment) replicated() bool { return len(e.Topology.Shards()) > 0 }
func (e Environment) elects() bool     { return e.replicated() && e.Topology.Elects() }

// acked reports whether each grant is known to every replica that may be
// promoted.
func (e Environment) acked() bool {
	if e.Topology.Consensus() {
		return true
	}
	for _, shard := range e.Topology.Shards() {
		if e.Acks < len(e.Topology.Members(shard))-1 {
			return false
		}
	}
	return true
}

// Which promises of a correct lock are broken, and by what.
const (
	breaksByForgetting = "a server forgets what it granted"
	breaksByPromotion  = "a replica may be promoted that does not know of a grant: without an acknowledgement of every replica"
	breaksByClock      = "leases on a server end when its clock says so"
)

// never, always and the like say which promise a fault breaks.
func never(Environment) string   { return "" }
func forgets(Environment) string { return breaksByForgetting }

// away is what a server breaks that does not answer for a while: it may be
// replaced.
func away(e Environment) string {
	if e.elects() && !e.acked() {
		return breaksByPromotion
	}
	return ""
}

// restarted is what a server breaks that was killed.
func restarted(e Environment) string {
	if !e.keeps() {
		return breaksByForgetting
	}
	return away(e)
}

// How long faults last that are no matter of a moment, unless their candidates say otherwise.
const (
	leastFor = time.Second
	mostFor  = 3 * time.Second
)

// drawn is the one candidate of a fault.
func drawn(target string, weight int, breaks func(Environment) string) func(Environment) []Candidate {
	return func(e Environment) []Candidate {
		return []Candidate{{Target: target, Weight: weight, Breaks: breaks(e)}}
	}
}

// Candidates are all faults that a random run knows, in order of name.
func (e Environment) Candidates() []Candidate {
	var all []Candidate
	specs := allSpecs()
	for i := range specs {
		spec := &specs[i]
		if spec.Candidates == nil {
			continue
		}
		for _, c := range spec.Candidates(e) {
			c.Spec, c.Mix = spec, cmp.Or(c.Mix, string(spec.Family))
			if c.Most == 0 && (spec.Life == history.Lasting || spec.Life == history.Repeating) {
				c.Least, c.Most = leastFor, mostFor
			}
			params := map[string]string{}
			for _, p := range spec.Params {
				if p.Draw != "" {
					params[p.Name] = p.Draw
				}
			}
			maps.Copy(params, c.Params)
			c.Params = params
			c.Cant = e.lacks(c)
			all = append(all, c)
		}
	}
	return all
}

// lacks says why a fault can't be of effect on the topology, or with the lock.
func (e Environment) lacks(c Candidate) string {
	spec := c.Spec
	switch {
	case slices.Contains(spec.Needs, topologies.Disks) && e.Topology.Options.Persistence == topologies.PersistNone:
		return "the servers have no append-only file (say --persistence always, everysec or no)"
	case spec.Hits != HitsAnything && e.Lock.Local:
		return "lock " + e.Lock.Name + " says nothing to any server"
	case spec.Hits == HitsSubscribers && !e.Lock.Subscribes:
		return "no client subscribes to a channel with lock " + e.Lock.Name
	case spec.Family == Client && e.noClientClocks() != "":
		return e.noClientClocks()
	case spec.OnLinks() && len(e.Topology.Links) == 0:
		return "" // a deployment of the user's, which says itself why it has none
	}
	if targets, without := e.narrow(nil, c); len(targets) == 0 {
		return without[0].why
	}
	return ""
}

// FirstParams are the parameters of a step that may be drawn.
func (c Candidate) FirstParams() map[string]string {
	some := map[string]string{}
	for key, value := range c.Params {
		some[key] = firstOf(value)
	}
	return some
}

// firstOf is the first of the choices that a target or parameter leaves.
func firstOf(choices string) string {
	one, _, _ := strings.Cut(choices, "|")
	if least, _, ok := numbers(one); ok {
		return fmt.Sprint(least)
	}
	return one
}

// Choose are the candidates that a list of mixes and faults means, of which those
// that can't take effect here are left out. One that the user named, alone or by
// a mix of which nothing is left, is an error. An empty list is [Environment.DefaultMix].
func (e Environment) Choose(list string) ([]Candidate, error) {
	list = cmp.Or(list, e.DefaultMix())
	all := e.Candidates()
	var chosen []Candidate
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		if slices.Contains([]string{MixNone, MixAll, MixSafe}, name) && list != name {
			errs = append(errs, fmt.Errorf("faults %q stands alone, and not in a list", name))
		}
		found, whyNot := 0, []string{}
		for _, c := range all {
			switch {
			case !c.in(name):
			case c.Cant != "":
				whyNot = append(whyNot, c.Cant)
			default:
				found++
				if !slices.ContainsFunc(chosen, func(other Candidate) bool { return other.same(c) }) {
					chosen = append(chosen, c)
				}
			}
		}
		if found == 0 && name != MixNone {
			errs = append(errs, e.nothing(name, whyNot))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return chosen, nil
}

// in reports whether the candidate is of a mix, or a fault, of that name.
func (c Candidate) in(name string) bool {
	switch name {
	case MixAll, MixSafe:
		return c.Mix != string(Clock) && c.Mix != string(Disk) && (name == MixAll || c.Breaks == "")
	default:
		return c.Mix == name || c.Spec.Name == name
	}
}

// same reports whether two candidates are the same one, named twice.
func (c Candidate) same(other Candidate) bool {
	return c.Mix == other.Mix && c.Spec == other.Spec && c.Target == other.Target && maps.Equal(c.Params, other.Params)
}

// nothing says why a name in a list of faults means none here.
func (e Environment) nothing(name string, whyNot []string) error {
	_, err := ByName(name)
	switch {
	case len(whyNot) > 0:
		return fmt.Errorf("%s: %s", name, whyNot[0])
	case err == nil:
		return fmt.Errorf("%s: the clients of a random run are no processes of their own, so that this fault is for scenarios only", name)
	default:
		return names.Unknown("mix of faults", name, append(Mixes(), Names(All())...))
	}
}
