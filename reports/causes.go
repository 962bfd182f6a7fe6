package reports

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// An InEffect is which faults were in effect while a violation arose. That one of them was the cause it
// does not say: that is measured, and stands in [Results.Causes].
type InEffect struct {
	// Injected is how many faults the run had, and Faults are those that were in effect.
	Injected int         `json:"injected"`
	Faults   []FaultTime `json:"faults,omitempty"`
	// Before is the last one before, where none was.
	Before *FaultTime `json:"before,omitempty"`
}

// A FaultTime is a fault, and when it was in effect. Of one that is over at once both times are the same.
type FaultTime struct {
	Fault  string        `json:"fault"`
	Target string        `json:"target,omitempty"`
	From   time.Duration `json:"from"`
	Until  time.Duration `json:"until"`
}

// time is when the fault was in effect.
func (f *Fault) time() FaultTime {
	t := FaultTime{Fault: f.Name, Target: f.Target, From: f.at(), Until: f.End}
	if f.momentary() || !f.Healed && f.End <= f.InEffect {
		t.Until = t.From
	}
	return t
}

// label names the fault.
func (f FaultTime) label() string { return strings.TrimSpace(f.Fault + " " + f.Target) }

// inEffectIn are the faults that were in effect in a window; nil for a history without a record, of which it
// is not known.
func (m *model) inEffectIn(from, to time.Duration) *InEffect {
	if len(m.faults) == 0 && m.Run.Command == "" && m.Run.Seed == 0 && m.Run.Topology.Name == "" {
		return nil
	}
	e := &InEffect{Injected: len(m.faults)}
	for _, f := range m.inEffect(from, to) {
		e.Faults = append(e.Faults, f.time())
	}
	for i := range m.faults {
		if f := &m.faults[i]; len(e.Faults) == 0 && f.counts() && f.End < from && (e.Before == nil || f.End > e.Before.Until) {
			t := f.time()
			e.Before = &t
		}
	}
	return e
}

// maxInEffect bounds the faults that a sentence names.
const maxInEffect = 4

// String names the faults in a sentence.
func (e *InEffect) String() string {
	switch {
	case e == nil:
		return ""
	case e.Injected == 0:
		return "No fault was injected."
	case e.Before != nil:
		return fmt.Sprintf("No fault was in effect at the time; the last before it was %s, until %s.", e.Before.label(), say.Instant(e.Before.Until))
	case len(e.Faults) == 0:
		return "No fault was in effect at the time."
	}
	var names []string
	for i, f := range e.Faults {
		when := "from " + say.Instant(f.From) + " to " + say.Instant(f.Until)
		switch {
		case i == maxInEffect:
			names = append(names, say.Count(len(e.Faults)-i, "other"))
		case f.Until == f.From:
			names = append(names, f.label()+" (at "+say.Instant(f.From)+")")
		case i < maxInEffect:
			names = append(names, f.label()+" ("+when+")")
		}
	}
	return "In effect at the time: " + say.List(names) + "."
}

// armLabel is an arm of a measurement in words.
func armLabel(c history.Cause, a history.Arm) string {
	label := ""
	if a.Fault >= 0 && a.Fault < len(c.Faults) {
		label = FaultTime{Fault: c.Faults[a.Fault].Fault, Target: c.Faults[a.Fault].Target}.label()
	}
	switch a.Arm {
	case history.ArmAll:
		return "with the faults of the run"
	case history.ArmWithout:
		return "without " + label
	case history.ArmOnly:
		return "with " + label + " alone"
	case history.ArmNone:
		return "without any fault"
	case history.ArmControl:
		return "with the faults, and the control lock " + c.Control
	default:
		return a.Arm
	}
}

// share is an interval in percent.
func share(interval [2]float64) string {
	return fmt.Sprintf("%.0f to %.0f %%", math.Floor(100*interval[0]), math.Ceil(100*interval[1]))
}
