package faults

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/topologies"
)

// A Drawn are faults that random runs draw alike, with what they do to the promises of
// a correct lock on each of the [DrawEnvironments].
type Drawn struct {
	Faults      []string
	Mix, Target string
	Weight      int
	// On says for each of the [DrawEnvironments] whether a correct lock stays valid: "safe",
	// "unsafe" or "safe with …", what the servers or the grants need for it. Empty: it
	// is not drawn there.
	On []string
}

// DrawEnvironments are the topologies that [Draws] covers, each with the options of the name behind a
// space.
func DrawEnvironments() []string {
	return append(topologies.Names(), topologies.Single+" --access "+topologies.AccessName)
}

// Draws are all faults that random runs draw, for a lock on the servers whose
// waiters subscribe, and which is a driver.
func Draws() ([]Drawn, error) {
	var all []Drawn
	for column, environment := range DrawEnvironments() {
		tried := map[int][]setting{} // by the row
		for kept, persistence := range topologies.Persistences() {
			for _, acked := range []bool{false, true} {
				e, err := environmentOf(environment, persistence, acked)
				if err != nil {
					return nil, err
				}
				for _, c := range e.Candidates() {
					if c.Cant != "" {
						continue
					}
					d := Drawn{Faults: []string{c.Fault}, Mix: c.Mix, Weight: c.Weight, Target: e.kindOfTarget(c.Target), On: make([]string, len(DrawEnvironments()))}
					row := slices.IndexFunc(all, func(o Drawn) bool { return o.Faults[0] == c.Fault && o.like(d) })
					if row < 0 {
						row, all = len(all), append(all, d)
					}
					tried[row] = append(tried[row], setting{kept, acked, c.Breaks == ""})
				}
			}
		}
		for row, settings := range tried {
			all[row].On[column] = leastSafe(settings)
		}
	}
	slices.SortFunc(all, func(a, b Drawn) int { return strings.Compare(a.Faults[0], b.Faults[0]) })
	var merged []Drawn
	for _, d := range all {
		same := slices.IndexFunc(merged, func(o Drawn) bool { return o.like(d) && slices.Equal(o.On, d.On) })
		if same < 0 {
			merged = append(merged, d)
		} else {
			merged[same].Faults = append(merged[same].Faults, d.Faults[0])
		}
	}
	slices.SortFunc(merged, func(a, b Drawn) int {
		order := Mixes()
		return cmp.Or(slices.Index(order, a.Mix)-slices.Index(order, b.Mix), b.Weight-a.Weight,
			strings.Compare(a.Faults[0], b.Faults[0]), strings.Compare(a.Target, b.Target))
	})
	return merged, nil
}

// like reports whether two are drawn from the same mix, for the same kind of target
// and with the same weight.
func (d Drawn) like(other Drawn) bool {
	return d.Mix == other.Mix && d.Target == other.Target && d.Weight == other.Weight
}

// environmentOf is a run on one of the [DrawEnvironments], whose grants wait for every replica
// if acked.
func environmentOf(environment, persistence string, acked bool) (Environment, error) {
	name, access, _ := strings.Cut(environment, " --access ")
	o := topologies.Options{Access: access}
	if topologies.StoreOf(name) == topologies.StoreRedis {
		o.Persistence = persistence
	}
	t, err := topologies.New(name, o)
	e := Environment{
		Topology: t, Locks: []string{"lock-1"},
		Lock: LockTraits{Subscribes: t.Store() == topologies.StoreRedis && !t.Apart(), Commands: "EVALSHA", Process: true},
	}
	if acked {
		e.Acks = t.Replicas()
	}
	return e, err
}

// kindOfTarget says in general what a candidate's target is.
func (e Environment) kindOfTarget(target string) string {
	first := firstOf(target)
	switch {
	case slices.Contains(e.Topology.Of(topologies.Zone), first):
		return "a zone of clients"
	case slices.Contains(e.Topology.Servers(), first):
		return "a server"
	case target == TargetOfLock:
		return "the server of a lock"
	case target == "":
		return ""
	case strings.HasSuffix(target, "/"+string(topologies.Replication)):
		return "links of a replica"
	default:
		return "links of clients"
	}
}

// A setting is what servers keep, by its place in [topologies.Persistences], whether grants wait for every
// replica, and whether a correct lock stays valid with both.
type setting struct {
	kept        int
	acked, safe bool
}

// leastSafe says with which setting at the least a fault leaves a correct lock valid. Those that keep less come first.
func leastSafe(tried []setting) string {
	broken := slices.DeleteFunc(slices.Clone(tried), func(s setting) bool { return s.safe })
	safe := slices.DeleteFunc(tried, func(s setting) bool { return !s.safe })
	switch {
	case len(broken) == 0:
		return "safe"
	case len(safe) == 0:
		return "unsafe"
	}
	var needs []string
	if kept := safe[0].kept; broken[0].kept < kept {
		name := topologies.Persistences()[kept]
		if name == topologies.PersistNo {
			name = "any"
		}
		needs = append(needs, "persistence "+name)
	}
	if !slices.ContainsFunc(safe, func(s setting) bool { return !s.acked }) {
		needs = append(needs, "acks of all")
	}
	return "safe with " + strings.Join(needs, ", ")
}
