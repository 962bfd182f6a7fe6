package faults

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/names"
)

// A Param is a parameter of a fault: a number if it has a unit, else one of Values,
// else any words.
type Param struct {
	Name string
	// Unit is that of a number: ms, bytes/s.
	Unit string
	// About says what it means, where the name does not.
	About string
	// Ask is what a message asks for if it is missing: "which keys". Empty: it may be
	// left out, and is Default then.
	Ask     string
	Default string
	// Least and Most bound a whole number.
	Least, Most int
	// Valid checks a value that is no whole number of a range; nil: it is not checked.
	Valid func(value string) error
	// Values are the choices; none: any.
	Values []string
	// Draw is what a random run draws: a whole number of a range "10-50", or one of
	// "a|b"; empty: nothing, unless the [Candidate] says.
	Draw string
}

// most is the greatest number that a parameter may have: 24 days in milliseconds.
const most = 1<<31 - 1

// check says what is wrong with a value that is there.
func (p Param) check(value string) error {
	switch {
	case p.Valid != nil:
		return p.Valid(value)
	case p.Most > 0:
		n, err := strconv.Atoi(value)
		if err != nil || n < p.Least || n > p.Most {
			unit := ""
			if p.Unit != "" {
				unit = " of " + p.Unit
			}
			return fmt.Errorf("%s must be a whole number%s from %d, not %q", p.Name, unit, p.Least, value)
		}
	case p.Values != nil && !slices.Contains(p.Values, value):
		return names.Unknown(p.Name, value, p.Values)
	}
	return nil
}

// checkParams says what is wrong with the parameters of a step.
func (spec Spec) checkParams(params map[string]string) error {
	var known []string
	for _, p := range spec.Params {
		known = append(known, p.Name)
		value, there := params[p.Name]
		if value == "" && (p.Ask == "" || !there && p.Default != "") {
			continue
		}
		if value == "" && p.Valid == nil {
			return fmt.Errorf("%s: say %s in the parameter %q", spec.Name, p.Ask, p.Name)
		}
		if err := p.check(value); err != nil {
			return fmt.Errorf("%s: %w", spec.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return fmt.Errorf("%s has no parameters, and %q is one", spec.Name, name)
			}
			return fmt.Errorf("%s: %w", spec.Name, names.Unknown("parameter", name, known))
		}
	}
	return nil
}

// withDefaults is a step with the defaults of the parameters that it leaves out.
func (spec Spec) withDefaults(s Step) Step {
	params := maps.Clone(s.Params)
	if params == nil {
		params = map[string]string{}
	}
	for _, p := range spec.Params {
		if params[p.Name] == "" && p.Default != "" {
			params[p.Name] = p.Default
		}
	}
	s.Params = params
	return s
}

// whole is a parameter that was checked to be a whole number; 0 if it is not there.
func whole(s Step, name string) int {
	n, _ := strconv.Atoi(s.Params[name]) // 0 with an error
	return n
}

// millis is a parameter in milliseconds.
func millis(s Step, name string) time.Duration {
	return time.Duration(whole(s, name)) * time.Millisecond
}

// ParamWords lists the parameters, with their units or choices: "rate (bytes/s)".
func (spec Spec) ParamWords() string {
	var all []string
	for _, p := range spec.Params {
		switch {
		case p.Values != nil:
			all = append(all, p.Name+" ("+strings.Join(p.Values, " or ")+")")
		case p.Unit != "":
			all = append(all, p.Name+" ("+p.Unit+")")
		default:
			all = append(all, p.Name)
		}
	}
	return strings.Join(all, ", ")
}
