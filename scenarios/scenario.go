package scenarios

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockchaos/lockchaos/internal/names"
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
	// Servers size and tune the topology.
	Servers topologies.Options `yaml:"servers"`
	Lock    string             `yaml:"lock"`
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
	ReplicaAcks int `yaml:"replica-acks"`
	// Servers size and tune the topology; all zero for the scenario's.
	Servers topologies.Options `yaml:"servers"`
	Expect  Expectation        `yaml:"expect"`
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

// Find returns the scenario of the catalogue with that name or alias;
// "name/variant" is one of its variants.
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
			return s, "", names.Unknown("variant of "+s.Name, variant, s.VariantNames())
		}
		return s, variant, nil
	}
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
	}
	return Scenario{}, "", names.Unknown("scenario", name, known)
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
	var variants []string
	for _, v := range s.Variants {
		variants = append(variants, v.Name)
	}
	return variants
}

// Names are those under which the scenario and its variants can be run.
func (s Scenario) Names() []string {
	all := []string{s.Name}
	for _, v := range s.VariantNames() {
		all = append(all, s.Name+"/"+v)
	}
	return all
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
		s.ReplicaAcks = cmp.Or(v.ReplicaAcks, s.ReplicaAcks)
		s.Lock = cmp.Or(v.Lock, s.Lock)
		s.Servers = cmp.Or(v.Servers, s.Servers)
	}
	var steps []ScriptStep
	for _, step := range s.Steps {
		if !step.takenBy(name) {
			continue
		}
		step.Only, step.Except = nil, nil
		steps = append(steps, step)
	}
	s.Steps = steps
	s.Variants = nil
	return s
}
