package scenarios

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockchaos/lockchaos/topologies"
)

// A Scenario is a known way in which a lock breaks, as a script: who does what
// after what, and the verdict that must come of it. It is written in YAML, one
// file each; the files in the folder catalogue come with the program.
type Scenario struct {
	Name string `yaml:"name"`
	// Aliases are other names, as the literature numbers them.
	Aliases []string `yaml:"aliases"`
	// Title says in a sentence what it shows.
	Title string `yaml:"title"`
	// Source is who described it.
	Source   string `yaml:"source"`
	Topology string `yaml:"topology"`
	Lock     string `yaml:"lock"`
	// ReplicaAcks and Watchdog configure the lock.
	ReplicaAcks int           `yaml:"replica-acks"`
	Watchdog    time.Duration `yaml:"watchdog"`
	// Clients are the actors, and the zone that each sits in.
	Clients map[string]string `yaml:"clients"`
	Steps   []ScriptStep      `yaml:"steps"`
	Expect  Expectation       `yaml:"expect"`
	// EveryTime says that it gives its verdict in every run, and not only in
	// nine of ten.
	EveryTime bool `yaml:"every-time"`
	// Cures are what prevents it.
	Cures []string `yaml:"cures"`
	// Variants are the same script under other conditions: cures, controls.
	Variants []Variant `yaml:"variants"`
}

// A Variant is a scenario with a cure or without its cause. Steps name it in
// "only" and "except".
type Variant struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// Lock is another lock under test; empty for the scenario's.
	Lock string `yaml:"lock"`
	// ReplicaAcks configures the lock.
	ReplicaAcks int         `yaml:"replica-acks"`
	Expect      Expectation `yaml:"expect"`
}

// An Expectation is the verdict that a scenario must give.
type Expectation struct {
	// Verdict is valid or invalid.
	Verdict string `yaml:"verdict"`
	// Violation is a kind that must be among those found; empty for none.
	Violation string `yaml:"violation"`
}

// A ScriptStep is one step: exactly one of Client, Inject, Heal and Require.
type ScriptStep struct {
	// Client acts: exactly one of Acquire, Read, Write, Access, Release.
	Client  string `yaml:"client"`
	Acquire string `yaml:"acquire"` // a lock
	Release string `yaml:"release"` // that lock
	Read    string `yaml:"read"`    // begin to use a resource
	Write   string `yaml:"write"`   // and end it
	Access  string `yaml:"access"`  // both at once

	// Lease and Wait go with Acquire.
	Lease time.Duration `yaml:"lease"`
	Wait  time.Duration `yaml:"wait"`
	// Until says how Acquire must end, and it is tried again until it does:
	// granted, refused, or answered (either). Empty: answered.
	Until string `yaml:"until"`

	// Inject and Heal name a fault.
	Inject string            `yaml:"inject"`
	Target string            `yaml:"target"`
	Params map[string]string `yaml:"params"`
	Heal   string            `yaml:"heal"`

	// Require checks that the servers say of a client's latest grant what it
	// takes for the script to mean something: held or absent, on On.
	Require string   `yaml:"require"`
	Of      string   `yaml:"of"`
	On      []string `yaml:"on"`

	// Only and Except name the variants that do, or do not, take the step. The
	// scenario itself is called "main".
	Only   []string `yaml:"only"`
	Except []string `yaml:"except"`
}

// mainVariant is what steps call the scenario without a variant.
const mainVariant = "main"

//go:embed catalogue/*.yaml
var catalogue embed.FS

// Catalogue returns the scenarios that come with the program, in order of
// name.
func Catalogue() ([]Scenario, error) {
	files, err := fs.Glob(catalogue, "catalogue/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Scenario
	for _, file := range files {
		b, err := catalogue.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := Parse(path.Base(file), b)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Parse reads a scenario and checks it. Its errors name the file, and show the
// line where there is one.
func Parse(file string, b []byte) (Scenario, error) {
	var s Scenario
	if err := yaml.UnmarshalWithOptions(b, &s, yaml.Strict()); err != nil {
		return s, fmt.Errorf("%s: %s", file, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// Find returns the scenario with that name or alias; "name/variant" is one of
// its variants. A name that ends in .yaml is read from that file.
func Find(name string) (Scenario, string, error) {
	name, variant, _ := strings.Cut(name, "/")
	all, err := Catalogue()
	if err != nil {
		return Scenario{}, "", err
	}
	for _, s := range all {
		if s.Name != name && !slices.Contains(s.Aliases, name) {
			continue
		}
		if variant != "" && !slices.Contains(s.VariantNames(), variant) {
			return s, "", topologies.UnknownName("variant of "+s.Name, variant, s.VariantNames())
		}
		return s, variant, nil
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return Scenario{}, "", topologies.UnknownName("scenario", name, names)
}

// Load reads a scenario from a file of the user's.
func Load(file string) (Scenario, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return Scenario{}, fmt.Errorf("read scenario: %w", err)
	}
	return Parse(file, b)
}

// VariantNames lists the names of the variants.
func (s Scenario) VariantNames() []string {
	var names []string
	for _, v := range s.Variants {
		names = append(names, v.Name)
	}
	return names
}

// Names are those under which the scenario and its variants can be run.
func (s Scenario) Names() []string {
	names := []string{s.Name}
	for _, v := range s.VariantNames() {
		names = append(names, s.Name+"/"+v)
	}
	return names
}

// As returns the scenario as the variant has it; the empty variant is the
// scenario itself. Steps that are not the variant's are gone.
func (s Scenario) As(variant string) Scenario {
	name := mainVariant
	for _, v := range s.Variants {
		if v.Name != variant {
			continue
		}
		name = v.Name
		s.Name += "/" + v.Name
		s.Title = v.Title
		s.Expect = v.Expect
		s.ReplicaAcks = v.ReplicaAcks
		s.Lock = cmp.Or(v.Lock, s.Lock)
	}
	var steps []ScriptStep
	for _, step := range s.Steps {
		if slices.Contains(step.Except, name) || len(step.Only) > 0 && !slices.Contains(step.Only, name) {
			continue
		}
		step.Only, step.Except = nil, nil
		steps = append(steps, step)
	}
	s.Steps = steps
	s.Variants = nil
	return s
}

// Validate joins everything that is wrong with the scenario.
func (s Scenario) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Name == "" || s.Title == "" {
		problem("a scenario needs a name and a title")
	}
	t, err := topologies.ByName(s.Topology)
	if err != nil {
		errs = append(errs, err)
	}
	for _, name := range append([]string{s.Lock}, s.variantLocks()...) {
		if _, err := LockByName(name); err != nil {
			errs = append(errs, err)
		}
	}
	for _, client := range slices.Sorted(maps.Keys(s.Clients)) {
		if zone := s.Clients[client]; !slices.Contains(t.Of(topologies.Zone), zone) {
			problem("client %s sits in the unknown zone %q (known: %s)", client, zone, strings.Join(t.Of(topologies.Zone), ", "))
		}
	}
	variants := append(s.VariantNames(), mainVariant)
	for i, step := range s.Steps {
		if err := step.validate(s, t); err != nil {
			problem("step %d: %w", i+1, err)
		}
		for _, v := range slices.Concat(step.Only, step.Except) {
			if !slices.Contains(variants, v) {
				problem("step %d names the unknown variant %q (known: %s)", i+1, v, strings.Join(variants, ", "))
			}
		}
	}
	for _, e := range append([]Expectation{s.Expect}, s.variantExpectations()...) {
		if e.Verdict != "valid" && e.Verdict != "invalid" {
			problem("expect valid or invalid, not %q", e.Verdict)
		}
	}
	return errors.Join(errs...)
}

// variantLocks are the locks of the variants that have one of their own.
func (s Scenario) variantLocks() []string {
	var names []string
	for _, v := range s.Variants {
		if v.Lock != "" {
			names = append(names, v.Lock)
		}
	}
	return names
}

func (s Scenario) variantExpectations() []Expectation {
	var es []Expectation
	for _, v := range s.Variants {
		es = append(es, v.Expect)
	}
	return es
}

func (step ScriptStep) validate(s Scenario, t topologies.Topology) error {
	count := func(fields ...string) int {
		return len(slices.DeleteFunc(fields, func(f string) bool { return f == "" }))
	}
	if count(step.Client, step.Inject, step.Heal, step.Require) != 1 {
		return errors.New("want exactly one of client, inject, heal, require")
	}
	switch {
	case step.Client != "":
		if _, ok := s.Clients[step.Client]; !ok {
			return fmt.Errorf("unknown client %q (known: %s)", step.Client, strings.Join(slices.Sorted(maps.Keys(s.Clients)), ", "))
		}
		if count(step.Acquire, step.Release, step.Read, step.Write, step.Access) != 1 {
			return errors.New("want exactly one of acquire, release, read, write, access")
		}
		if !slices.Contains([]string{"", untilAnswered, untilGranted, untilRefused}, step.Until) {
			return fmt.Errorf("unknown until %q (known: granted, refused, answered)", step.Until)
		}
		if step.Lease < 0 || step.Wait < 0 {
			return errors.New("lease and wait must not be negative")
		}
	case step.Inject != "":
		return checkFault(step.Inject)
	case step.Heal != "":
		return checkFault(step.Heal)
	default:
		if step.Require != requireHeld && step.Require != requireAbsent {
			return fmt.Errorf("unknown require %q (known: held, absent)", step.Require)
		}
		if _, ok := s.Clients[step.Of]; !ok {
			return fmt.Errorf("require %s needs a client in \"of\", not %q", step.Require, step.Of)
		}
		for _, name := range step.On {
			if !slices.Contains(t.Of(topologies.Redis), name) {
				return fmt.Errorf("unknown server %q (known: %s)", name, strings.Join(t.Of(topologies.Redis), ", "))
			}
		}
		if len(step.On) == 0 {
			return errors.New(`require needs servers in "on"`)
		}
	}
	return nil
}
