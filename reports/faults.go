package reports

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
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
}

// faultsOf pairs injections with their heals, in order of injection.
func faultsOf(notes []*history.Event, end time.Duration) []Fault {
	var all []Fault
	key := func(e *history.Event) string { return e.Fault + "\x00" + e.Target }
	pending, active := map[string][]int{}, map[string][]int{}
	uncounted := map[string][]int{} // those of effect whose requests have not been told
	for _, e := range notes {
		k := key(e)
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
			f := &all[pending[k][0]]
			f.OK, f.Effect, f.Error = e.Type == history.OK, e.Value, e.Error
			if f.OK {
				f.InEffect = e.Time
				uncounted[k] = append(uncounted[k], pending[k][0])
			}
			if !f.OK || f.momentary() {
				f.End = e.Time
			}
			if f.OK && !f.momentary() {
				active[k] = append(active[k], pending[k][0])
			}
			pending[k] = pending[k][1:]
		case e.Op == history.Observe && e.What == history.ObserveMet:
			if n, err := strconv.ParseInt(e.Value, 10, 64); err == nil && len(uncounted[k]) > 0 {
				all[uncounted[k][0]].Met = &n
				uncounted[k] = uncounted[k][1:]
			}
		case e.Op == history.Heal && e.Type != history.Invoke && len(active[k]) > 0:
			last := len(active[k]) - 1
			f := &all[active[k][last]]
			if e.Type == history.OK {
				f.Healed, f.HealError, f.End = true, "", e.Time
				active[k] = active[k][:last]
			} else {
				f.HealError = e.Error // it may be tried again
			}
		}
	}
	return all
}

// counts reports whether the fault took effect, as far as requests are concerned.
func (f *Fault) counts() bool { return f.OK && (f.Met == nil || *f.Met > 0) }

// metWords says how many requests met the fault; empty where that is not known. Of one of
// which something stays all that came later count.
func (f *Fault) metWords() string {
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

// spec is what is known of faults with its name; the zero Spec of one that is not
// ours.
func (f *Fault) spec() faults.Spec {
	spec, err := faults.ByName(f.Name)
	if err != nil {
		return faults.Spec{}
	}
	return spec
}

// has reports whether the fault has an effect.
func (f *Fault) has(e history.Effect) bool { return slices.Contains(f.Effects, e) }

// momentary reports whether a fault is over as soon as it has happened.
func (f *Fault) momentary() bool { return f.Life == history.Momentary }

// separates reports whether the fault's target is a group that it cuts off from
// all others.
func (f *Fault) separates() bool {
	return f.has(history.Isolates) && strings.HasPrefix(f.Target, "{")
}

// at is when the fault hit, as the story counts it: when its effect was
// observed, but for a fault that begins with a blow and is observed by what
// comes of it later.
func (f *Fault) at() time.Duration {
	if f.has(history.Promotes) {
		return f.Start
	}
	return f.InEffect
}

// hits reports whether the fault's target names a party.
func (f *Fault) hits(party string) bool {
	return slices.Contains(strings.Fields(strings.Trim(f.Target, "{}")), party)
}

// during reports whether the fault was in effect at some instant of a window.
func (f *Fault) during(from, to time.Duration) bool {
	return f.OK && f.Start <= to && f.End >= from
}

// label names a fault in a drawing: "cut replication".
func (f *Fault) label() string { return strings.TrimSpace(f.Name + " " + f.Target) }

// detail is the label with the parameters: "latency zone-a>redis-1 (delay 50ms)".
func (f *Fault) detail() string {
	if len(f.Params) == 0 {
		return f.label()
	}
	var params []string
	for _, k := range slices.Sorted(maps.Keys(f.Params)) {
		params = append(params, k+" "+f.param(k))
	}
	return f.label() + " (" + strings.Join(params, ", ") + ")"
}

// param is the value of a parameter with its unit.
func (f *Fault) param(name string) string {
	value := f.Params[name]
	for _, p := range f.spec().Params {
		n, err := strconv.ParseInt(value, 10, 64)
		if parts, ok := strconv.ParseFloat(value, 64); err != nil && ok == nil && p.Name == name && p.Unit == "ms" && math.Abs(parts) < 1e9 {
			return say.Span(time.Duration(parts * float64(time.Millisecond))) // a simulation has parts of milliseconds
		}
		if p.Name != name || p.Unit == "" || err != nil {
			continue
		}
		if p.Unit == "ms" && n < int64(math.MaxInt64/time.Millisecond) {
			return say.Span(time.Duration(n) * time.Millisecond)
		}
		return say.Thousands(n) + " " + p.Unit
	}
	return adapt(value)
}
