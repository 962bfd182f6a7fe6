package faults

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Spec is everything that is known about one fault. Lists, the documentation,
// the validation of scripts, random plans, records and reports all read it.
type Spec struct {
	// Name is what scripts, plans and histories call it.
	Name string
	// Family is also the mix of random faults that it belongs to.
	Family Family
	// Summary says in half a sentence what it does.
	Summary string
	// Target is the kind of thing that it is aimed at.
	Target Target
	// Params are its parameters; none if empty.
	Params []Param
	// Needs are what a deployment must let its user do.
	Needs []topologies.Capability
	// Life and Effects are recorded with each injection. Effects hold for the
	// defaults of the parameters: see [Spec.EffectsOf].
	Life    history.Life
	Effects []history.Effect
	// Hits is what there must be for it to take effect.
	Hits Hits
	// Observed says how its effect is observed, Healed what its heal waits for (empty:
	// it has none), and Pitfall what its user ought to know.
	Observed, Healed, Pitfall string

	// New makes it. The step was validated, and has the defaults of the parameters.
	New func(site Site, s Step) (inject, error)
	// Candidates are the ways in which a random run draws it; nil: none does.
	Candidates func(e Environment) []Candidate
	// Check refuses a step for a reason that Target, Params and Links do not have; nil: none.
	Check func(t topologies.Topology, s Step) error
	// Links are the links that a step concerns; nil: those that the target of a fault
	// of links selects, and none for any other fault.
	Links func(t topologies.Topology, s Step) ([]topologies.Link, error)
	// Aim is what a step's target means at this moment, as the history names it; nil:
	// a few links by their names, and any other target as it stands.
	Aim func(ctx context.Context, d topologies.Deployment, s Step) string
}

// A Family is a group of faults with the same cause.
type Family string

// The families of faults.
const (
	Network  Family = "network"
	Process  Family = "process"
	Redis    Family = "redis"
	Failover Family = "failover"
	Cluster  Family = "cluster"
	Clock    Family = "clock"
	Disk     Family = "disk"
	Client   Family = "client" // random runs have those of a driver's clock: other clients are no processes of their own there
)

// A Target is the kind of thing that a fault is aimed at.
type Target string

// The kinds of targets.
const (
	AtDeployment Target = "-"
	AtLinks      Target = "links"
	AtMessages   Target = "client links" // those of a zone to a server
	AtParties    Target = "parties"
	AtServer     Target = "server"             // that locks can be on
	AtProcess    Target = "server or sentinel" // any server process
	AtZone       Target = "zone"
	AtClient     Target = "client"
)

// Hits is what a fault needs of the lock under test to take effect.
type Hits string

// What faults hit.
const (
	HitsAnything    Hits = ""
	HitsRequests    Hits = "requests"    // connections, messages or keys of clients
	HitsSubscribers Hits = "subscribers" // clients that wait for a message of the server
)

// A Site is where faults happen. The zero Site has none.
type Site struct {
	Deployment topologies.Deployment
	// Clients are those that are processes of their own, by their names.
	Clients map[string]ClientProcess
	// ClientClocks are those of the zones whose driver can be shown another time, by the zones' names.
	ClientClocks map[string]ClientClock
	// Scripts are the names by which faults of messages call scripts, by their
	// [ScriptDigest].
	Scripts map[string]string
}

// All lists the faults, in order of name.
func All() []Spec { return slices.Clone(allSpecs()) }

// allSpecs are made once: reports ask for them again and again.
var allSpecs = sync.OnceValue(func() []Spec { //nolint:gochecknoglobals // a constant
	all := slices.Concat(networkSpecs(), messageSpecs(), processSpecs(), redisSpecs(), failoverSpecs(),
		clusterSpecs(), clockSpecs(), diskSpecs(), clientSpecs(), clientClockSpecs())
	slices.SortFunc(all, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return all
})

// ByName finds a fault by its name; with an error comes a Spec that has nothing. All who ask have the same one, which
// is not to be changed.
func ByName(name string) (*Spec, error) {
	all := allSpecs()
	if i := slices.IndexFunc(all, func(s Spec) bool { return s.Name == name }); i >= 0 {
		return &all[i], nil
	}
	return &Spec{}, names.Unknown("fault", name, Names(all))
}

// Names are the names of faults.
func Names(specs []Spec) []string {
	return names.Of(specs, func(s Spec) string { return s.Name })
}

// Has reports whether the fault has an effect.
func (spec Spec) Has(e history.Effect) bool { return slices.Contains(spec.Effects, e) }

// EffectsOf are the effects that the fault has with these parameters.
func (spec Spec) EffectsOf(params map[string]string) []history.Effect {
	effects := slices.Clone(spec.Effects)
	if i := slices.Index(effects, history.Cuts); params[howParam] == stalls && i >= 0 {
		effects[i] = history.Stalls
	}
	return effects
}

// Stays reports whether something of the fault stays when it is healed: another
// master, a slot elsewhere, keys that are gone, all that a killed server knew. Of the clock
// of a client nothing does that matters to a correct lock.
func (spec Spec) Stays() bool {
	return spec.Family != Client && slices.ContainsFunc([]history.Effect{history.Promotes, history.Moves, history.ShiftsClock, history.Restarts, history.Forgets}, spec.Has)
}

// OneShot reports whether an armed fault is over once it fired, so that the heal ends nothing but the wait.
func (spec Spec) OneShot() bool { return spec.Life == history.Triggered && spec.Healed == bySelf }

// bySelf is the heal of a fault that is over once it fired.
const bySelf = "by itself"

// OnLinks reports whether the fault is put on links.
func (spec Spec) OnLinks() bool {
	return slices.Contains(spec.Needs, topologies.Proxies) && spec.Family == Network
}

// LinksOf are the links that a step concerns.
func (spec Spec) LinksOf(t topologies.Topology, s Step) ([]topologies.Link, error) {
	switch {
	case spec.Links != nil:
		return spec.Links(t, spec.withDefaults(s))
	case spec.Target == AtLinks, spec.Target == AtMessages:
		return t.Select(s.Target)
	default:
		return nil, nil
	}
}

// fewLinks is how many links a history names one by one.
const fewLinks = 3

// AimOf is what a step's target means at this moment, as the history names it.
// Where that can't be told, it is the target as it stands.
func (spec Spec) AimOf(ctx context.Context, d topologies.Deployment, s Step) string {
	if spec.Aim != nil {
		return cmp.Or(spec.Aim(ctx, d, s), s.Target)
	}
	links, err := d.Topology().Select(s.Target)
	if err != nil || len(links) > fewLinks || !strings.Contains(s.Target, ">") {
		return s.Target
	}
	return strings.Join(names.Of(links, topologies.Link.Name), " ")
}

// lacking says why the fault can't be had at all without some capabilities; nil if it can.
func (spec Spec) lacking(without map[topologies.Capability]string) error {
	for _, c := range spec.Needs {
		if why, lacks := without[c]; lacks {
			return errors.New(why)
		}
	}
	return nil
}
