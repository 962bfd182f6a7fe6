package faults

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/internal/names"
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
	type key struct {
		fault, mix, target string
		weight             int
	}
	tried := map[key][][]setting{} // on each environment
	for column, environment := range DrawEnvironments() {
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
					k := key{c.Spec.Name, c.Mix, e.kindOfTarget(c.Target), c.Weight}
					if tried[k] == nil {
						tried[k] = make([][]setting, len(DrawEnvironments()))
					}
					tried[k][column] = append(tried[k][column], setting{kept, acked, c.Breaks == ""})
				}
			}
		}
	}
	mixes := Mixes()
	order := func(a, b key) int {
		return cmp.Or(slices.Index(mixes, a.mix)-slices.Index(mixes, b.mix), b.weight-a.weight, strings.Compare(a.fault, b.fault), strings.Compare(a.target, b.target))
	}
	var all []Drawn
	for _, k := range slices.SortedFunc(maps.Keys(tried), order) {
		d := Drawn{[]string{k.fault}, k.mix, k.target, k.weight, names.Of(tried[k], leastSafe)}
		same := slices.IndexFunc(all, func(o Drawn) bool {
			return o.Mix == d.Mix && o.Target == d.Target && o.Weight == d.Weight && slices.Equal(o.On, d.On)
		})
		if same < 0 {
			all = append(all, d)
		} else {
			all[same].Faults = append(all[same].Faults, k.fault)
		}
	}
	return all, nil
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

// leastSafe says with which setting at the least a fault leaves a correct lock valid; empty if it is not drawn. Those that keep less come first.
func leastSafe(tried []setting) string {
	broken := slices.DeleteFunc(slices.Clone(tried), func(s setting) bool { return s.safe })
	safe := slices.DeleteFunc(slices.Clone(tried), func(s setting) bool { return !s.safe })
	switch {
	case len(tried) == 0:
		return ""
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
