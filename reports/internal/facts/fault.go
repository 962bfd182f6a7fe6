package facts

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Fault is one fault of a run, from its injection to its heal.
type Fault struct {
	Name   string            `json:"name"`
	Target string            `json:"target,omitempty"`
	Params map[string]string `json:"params,omitempty"`
	// Start is when it was asked for, InEffect when its effect had been
	// observed, and End when its heal was answered: the end of the record if
	// it never was.
	Start    time.Duration `json:"start"`
	InEffect time.Duration `json:"in_effect,omitempty"`
	End      time.Duration `json:"end"`
	Healed   bool          `json:"healed"`
	// OK says whether the effect was observed, Effect what was seen, and
	// Error why not.
	OK     bool   `json:"ok"`
	Effect string `json:"effect,omitempty"`
	Error  string `json:"error,omitempty"`
	// Recovery is how long it took, from the instant at which the fault hit,
	// until a client whose request had to pass where it was, and was sent
	// after it, was granted a lock: of a fault that makes a new master, by that
	// one. HealRecovery is the same from the heal. 0 is none in the record. They are
	// measured in random runs, after faults that Interrupt: that can keep a lock from
	// being granted for a while.
	Interrupts   bool          `json:"interrupts,omitempty"` // a recovery from it was measured
	Recovery     time.Duration `json:"recovery,omitempty"`
	HealRecovery time.Duration `json:"heal_recovery,omitempty"`
	// Met is how many requests of clients met the fault; nil where they were not
	// counted. One that no request met counts as one without an effect.
	Met *int64 `json:"met,omitempty"`
	// HealError is what was said to a heal that failed.
	HealError string `json:"heal_error,omitempty"`
	// Life and Effects are what the history says of the fault, or else what is known
	// of one with its name.
	Life    history.Life     `json:"life,omitempty"`
	Effects []history.Effect `json:"effects,omitempty"`

	healing time.Duration // when the heal was asked for that was answered at its end; the end without one
}

// faultsOf pairs injections with their heals, in order of injection.
func faultsOf(notes []history.Event, end time.Duration) []Fault {
	var all []Fault
	// By name and target: those that were asked for, those of effect, and those whose requests were not counted yet.
	pending, active, uncounted := map[[2]string][]int{}, map[[2]string][]int{}, map[[2]string][]int{}
	for _, e := range notes {
		k := [2]string{e.Fault, e.Target}
		switch {
		case e.Op == history.Inject && e.Type == history.Invoke:
			pending[k] = append(pending[k], len(all))
			f := Fault{
				Name: e.Fault, Target: e.Target, Params: e.Params, Start: e.Time,
				End: end, Error: "never answered", Life: e.Life, Effects: e.Effects,
			}
			if f.Life == "" && f.Effects == nil {
				spec := f.spec()
				f.Life, f.Effects = spec.Life, spec.EffectsOf(f.Params)
			}
			all = append(all, f)
		case e.Op == history.Inject && len(pending[k]) > 0:
			at := pending[k][0]
			pending[k] = pending[k][1:]
			f := &all[at]
			f.OK, f.Effect, f.Error = e.Type == history.OK, e.Value, e.Error
			if !f.OK || f.momentary() {
				f.End = e.Time
			}
			if f.OK {
				f.InEffect = e.Time
				uncounted[k] = append(uncounted[k], at)
				if !f.momentary() {
					active[k] = append(active[k], at)
				}
			}
		case e.Op == history.Observe && e.What == history.ObserveMet:
			if n, err := strconv.ParseInt(e.Value, 10, 64); err == nil && len(uncounted[k]) > 0 {
				all[uncounted[k][0]].Met = &n
				uncounted[k] = uncounted[k][1:]
			}
		case e.Op == history.Heal && len(active[k]) > 0:
			last := len(active[k]) - 1
			switch f := &all[active[k][last]]; e.Type {
			case history.Invoke:
				f.healing = e.Time
			case history.OK:
				f.Healed, f.HealError, f.End = true, "", e.Time
				active[k] = active[k][:last]
			default:
				f.HealError = e.Error // it may be tried again
			}
		}
	}
	for i := range all {
		if !all[i].Healed || all[i].healing == 0 {
			all[i].healing = all[i].End
		}
	}
	return all
}

// HealAsked is when the heal was asked for that was answered at the fault's end; that end without one.
func (f *Fault) HealAsked() time.Duration { return f.healing }

// Counts reports whether the fault took effect, as far as requests are concerned.
func (f *Fault) Counts() bool { return f.OK && (f.Met == nil || *f.Met > 0) }

// Effective counts the faults that took effect.
func Effective(all []Fault) int {
	n := 0
	for i := range all {
		if all[i].Counts() {
			n++
		}
	}
	return n
}

// MetWords says how many requests met the fault; empty where that is not known. Of one of which something stays
// all that came later count.
func (f *Fault) MetWords() string {
	switch {
	case !f.OK || f.Met == nil:
		return ""
	case *f.Met == 0:
		return "no request met it"
	case f.momentary(), faults.Spec{Effects: f.Effects}.Stays():
		return say.Count(int(*f.Met), "request") + " met it or came later"
	default:
		return say.Count(int(*f.Met), "request") + " met it"
	}
}

// Observed says what was seen of the fault: its effect, or why there was none, and how many requests met it.
func (f *Fault) Observed() string {
	parts := []string{f.Effect}
	switch {
	case !f.OK:
		parts[0] = strings.TrimSuffix("? no effect: "+f.Error, ": ")
	case f.Effect == "":
		parts[0] = "observed"
	}
	if met := f.MetWords(); met != "" {
		parts = append(parts, met)
	}
	if f.HealError != "" {
		parts = append(parts, "not healed: "+f.HealError)
	}
	return strings.Join(parts, "; ")
}

// spec is what is known of faults with its name: nothing of one that is not ours.
func (f *Fault) spec() *faults.Spec {
	spec, _ := faults.ByName(f.Name)
	return spec
}

// OfClient reports whether the fault is one of a client, and of no server or link.
func (f *Fault) OfClient() bool { return f.spec().Family == faults.Client }

// Has reports whether the fault has an effect.
func (f *Fault) Has(e history.Effect) bool { return slices.Contains(f.Effects, e) }

// momentary reports whether a fault is over as soon as it has happened.
func (f *Fault) momentary() bool { return f.Life == history.Momentary }

// separates reports whether the fault's target is a group that it cuts off from all others.
func (f *Fault) separates() bool {
	return f.Has(history.Isolates) && strings.HasPrefix(f.Target, "{")
}

// At is when the fault hit: when its effect was observed, but for one that begins with a blow and is observed by
// what comes of it later.
func (f *Fault) At() time.Duration {
	if f.Has(history.Promotes) {
		return f.Start
	}
	return f.InEffect
}

// Hits reports whether the fault's target names a party.
func (f *Fault) Hits(party string) bool {
	return slices.Contains(f.parties(), party)
}

// parties are what the target names.
func (f *Fault) parties() []string {
	return strings.Fields(strings.ReplaceAll(strings.Trim(f.Target, "{}"), ",", " "))
}

// Label names a fault in a drawing: "cut replication".
func (f *Fault) Label() string { return strings.TrimSpace(f.Name + " " + f.Target) }

// Detail is the label with the parameters: "latency zone-a>redis-1 (delay 50 ms)".
func (f *Fault) Detail() string {
	var params []string
	for _, k := range slices.Sorted(maps.Keys(f.Params)) {
		params = append(params, k+" "+f.param(k))
	}
	if len(params) == 0 {
		return f.Label()
	}
	return f.Label() + " (" + strings.Join(params, ", ") + ")"
}

// Stays reports whether something of it stays when it is healed, so that a correct lock need not survive it.
func (f *Fault) Stays() bool { return f.spec().Stays() }

// param is the value of a parameter with its unit.
func (f *Fault) param(name string) string {
	value := f.Params[name]
	n, err := strconv.ParseFloat(value, 64)
	i := slices.IndexFunc(f.spec().Params, func(p faults.Param) bool { return p.Name == name && p.Unit != "" })
	switch {
	case i < 0 || err != nil || n < -1e9 || n > 1e9:
		return value
	case f.spec().Params[i].Unit == "ms":
		return say.Span(time.Duration(n * float64(time.Millisecond))) // a simulation has parts of milliseconds
	default:
		return say.Thousands(int64(n)) + " " + f.spec().Params[i].Unit
	}
}

// InEffectIn are the faults that were in effect at some time of a window; of those that wait for a message, from then on.
func (r *Facts) InEffectIn(from, to time.Duration) []*Fault {
	var found []*Fault
	for i := range r.Faults {
		f, begins := &r.Faults[i], r.Faults[i].Start
		if f.Life == history.Triggered {
			begins = f.InEffect
		}
		if f.Counts() && begins <= to && f.End >= from {
			found = append(found, f)
		}
	}
	return found
}

// Passes reports whether the fault waited for a single message, and did not keep it back: it is over once that was there.
func (f *Fault) Passes() bool { return f.spec().OneShot() && !f.Has(history.Delays) }

// OverBy reports whether the fault had ended by an instant.
func (f *Fault) OverBy(at time.Duration) bool { return f.End < at || f.Passes() && f.InEffect < at }

// Role is what a measurement shows of the fault; empty if it did not measure it.
func (f *Fault) Role(c history.Cause) string {
	for _, s := range c.Faults {
		if f.Name == s.Fault && f.Target == s.Target && f.Start == s.Start {
			return s.Role
		}
	}
	return ""
}

// Links are those that the fault concerns: of a partition those between the parties that it keeps apart, else those
// that its target names, several separated by spaces or commas, by name or as in [topologies.Topology.Select]. Two nodes
// may have two links, of which one has the name FROM>TO: a history names each that was hit.
func (f *Fault) Links(t topologies.Topology) []topologies.Link {
	if spec := f.spec(); spec.Links != nil {
		if chosen, err := spec.LinksOf(t, faults.Step{Fault: f.Name, Target: f.Target, Params: f.Params}); err == nil {
			return chosen
		}
	}
	if f.separates() {
		return t.Across(f.parties())
	}
	var links []topologies.Link
	for _, name := range f.parties() {
		chosen, _ := t.Select(name) // it may name none
		if at := slices.IndexFunc(t.Links, func(l topologies.Link) bool { return l.Name() == name }); at >= 0 {
			chosen = t.Links[at : at+1]
		}
		for _, l := range chosen {
			kept := l.Kind == topologies.Client && f.Params["clients"] == "kept" // as in a simulated split-brain
			if !slices.Contains(links, l) && (!kept || f.Hits(l.From) == f.Hits(l.To)) {
				links = append(links, l)
			}
		}
	}
	return links
}

// planned is a recorded topology as faults see it.
func planned(t history.Topology) topologies.Topology {
	p := topologies.Topology{Name: t.Name}
	for _, n := range t.Nodes {
		p.Nodes = append(p.Nodes, topologies.Node{Name: n.Name, Kind: topologies.Kind(n.Kind), Role: n.Role, Of: n.Of})
	}
	for _, l := range t.Links {
		p.Links = append(p.Links, topologies.Link{From: l.From, To: l.To, Kind: topologies.LinkKind(l.Kind)})
	}
	return p
}

// blocks reports whether the fault, while it is in effect, keeps a zone of clients from a server.
func (f *Fault) blocks(zone, server string, t topologies.Topology) bool {
	switch {
	case !f.OK:
		return false
	case f.Has(history.Stops):
		return f.Hits(server)
	case f.separates():
		return f.Hits(zone) != f.Hits(server)
	case f.Has(history.Cuts), f.Has(history.Stalls):
		return slices.ContainsFunc(f.Links(t), func(l topologies.Link) bool { return l.From == zone && l.To == server })
	default:
		return false
	}
}
