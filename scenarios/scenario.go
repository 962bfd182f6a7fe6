package scenarios

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
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
	// LockName is the lock under test in the file, and Lock what has that name. In
	// its place another may be set, for all variants that name none.
	LockName string           `yaml:"lock"`
	Lock     harness.LockSpec `yaml:"-"`
	// ReplicaAcks and Watchdog configure the lock.
	ReplicaAcks int           `yaml:"replica-acks"`
	Watchdog    time.Duration `yaml:"watchdog"`
	// Permits is how many permits a semaphore has. Default 1.
	Permits int `yaml:"permits"`
	// Retries is how often a Redis client sends a request again by itself; 0:
	// never.
	Retries int `yaml:"retries"`
	// Progress is how long the lock may stay free and asked for; 0: for
	// [checker.ProgressBound].
	Progress time.Duration `yaml:"progress"`
	// Resource is what the locks protect: register (the default), ledger, redis,
	// fenced, fenced-ledger and fenced-redis, which refuse stale tokens, and
	// checked, checked-ledger and checked-redis, which refuse a write whose owner
	// was not the last to begin one.
	Resource string `yaml:"resource"`
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

	// other says that the lock is not that of the file: see [Scenario.Under].
	other bool
}

// A Variant is a scenario with a cure or without its cause. Steps name it in
// "only" and "except".
type Variant struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// LockName is another lock under test, and Lock what has that name; empty for
	// the scenario's.
	LockName string           `yaml:"lock"`
	Lock     harness.LockSpec `yaml:"-"`
	// ReplicaAcks and Watchdog configure the lock; 0 for the scenario's.
	ReplicaAcks int           `yaml:"replica-acks"`
	Watchdog    time.Duration `yaml:"watchdog"`
	// Retries and Progress are those of the scenario; 0 for its own.
	Retries  int           `yaml:"retries"`
	Progress time.Duration `yaml:"progress"`
	// Resource is what the locks protect; empty for the scenario's.
	Resource string `yaml:"resource"`
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
	// Holds are properties that must be valid, whatever the verdict.
	Holds []string `yaml:"holds"`
}

// A ScriptStep is one step: exactly one of Client, Await, Inject, Heal and
// Require.
type ScriptStep struct {
	// Client acts: exactly one of Acquire, Extend, Release, Read, Write, Access.
	Client  string `yaml:"client"`
	Acquire string `yaml:"acquire"` // a lock
	Extend  string `yaml:"extend"`  // that lock, by Lease
	Release string `yaml:"release"` // that lock
	Read    string `yaml:"read"`    // begin to use a resource
	Write   string `yaml:"write"`   // and end it
	Access  string `yaml:"access"`  // both at once

	// Mode, Permits and And go with Acquire: read or write, of a lock with readers and
	// writers; how many permits of a semaphore, 0 is 1; and what else is to be granted
	// together with the lock.
	Mode    history.Mode `yaml:"mode"`
	Permits int          `yaml:"permits"`
	And     []string     `yaml:"and"`
	// Again goes with Acquire: the client asks as the owner that it asked as last, and keeps
	// what it holds. A release gives back what was granted last, or First what was granted first.
	Again bool `yaml:"again"`
	First bool `yaml:"first"`

	// Lease and Wait go with Acquire, and Lease with Extend.
	Lease time.Duration `yaml:"lease"`
	Wait  time.Duration `yaml:"wait"`
	// Until says how Acquire, Extend or Release must end. Acquire is tried again
	// until it is granted; or until it is answered, if that must be refused, or
	// either (answered). Extend and Release
	// may be done, refused or answered. All may be unknown, which is no answer,
	// or ended, in whatever way, and are not tried again then. Empty: answered.
	// A Write or Access may have to be done, refused by the resource, or unknown;
	// empty: ended.
	Until string `yaml:"until"`
	// Symptom says that only a lock with the bug of the scenario's own lock ends the
	// step so. Another lock that ends it otherwise does not have the bug.
	Symptom bool `yaml:"symptom"`
	// Background leaves Acquire, Extend or Release to itself, until Await. It
	// is tried once.
	Background bool `yaml:"background"`

	// Await waits until the step that a client has in the background ended, as
	// Until says; until a client was told that it lost what it was granted last, where
	// Until is lost; or until an armed fault fired.
	Await string `yaml:"await"`

	// Inject and Heal name a fault.
	Inject string            `yaml:"inject"`
	Target string            `yaml:"target"`
	Params map[string]string `yaml:"params"`
	Heal   string            `yaml:"heal"`

	// Require checks that the servers say of a client's latest grant what it
	// takes for the script to mean something: held or absent, on On; or that the
	// ledger In has a change that was written under it (written), or none
	// (unwritten).
	Require string   `yaml:"require"`
	Of      string   `yaml:"of"`
	On      []string `yaml:"on"`
	In      string   `yaml:"in"`

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
// name. Their locks are among locks.
func Catalogue(locks harness.Locks) ([]Scenario, error) {
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
		s, err := Parse(path.Base(file), b, locks)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Parse reads a scenario whose locks are among locks, and checks it. Its errors
// name the file, and show the line where there is one. Where locks is nil none is
// looked up: the caller sets the lock. No command is run that it names as a lock.
func Parse(file string, b []byte, locks harness.Locks) (Scenario, error) {
	return parse(file, b, locks, false)
}

func parse(file string, b []byte, locks harness.Locks, allowExec bool) (Scenario, error) {
	var s Scenario
	if err := decode(file, b, &s); err != nil {
		return s, err
	}
	tree, err := parser.ParseBytes(b, 0)
	if err != nil {
		return s, fmt.Errorf("%s: %w", file, err) // it was read before
	}
	if err := wholeNumbers(file, tree); err != nil {
		return s, err
	}
	if err := inRange("", reflect.ValueOf(s)); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	unknown := s.findLocks(locks, allowExec)
	return s, located(file, tree, dedupe(append(unknown, s.problems()...)))
}

// wholeNumbers refuses a number with a fraction where a count belongs, which the decoder cuts off.
func wholeNumbers(file string, tree *ast.File) error {
	var errs []error
	for _, n := range ast.FilterFile(ast.FloatType, tree) {
		path := n.GetPath()
		key := path[strings.LastIndexByte(path, '.')+1:]
		if slices.Contains([]string{"permits", "retries", "replica-acks", "nodes", "min-replicas"}, key) && !strings.Contains(path, ".params.") {
			errs = append(errs, fmt.Errorf("%s:%d: %s must be a whole number, not %s", file, n.GetToken().Position.Line, key, n.GetToken().Value))
		}
	}
	return errors.Join(errs...)
}

// findLocks sets the locks that are named, if there are any to choose from.
func (s *Scenario) findLocks(locks harness.Locks, allowExec bool) []error {
	if locks == nil {
		return nil
	}
	var errs []error
	find := func(name string) harness.LockSpec {
		l, err := locks.InFile(name, allowExec)
		if err != nil {
			errs = append(errs, err)
		}
		return l
	}
	s.Lock = find(s.LockName)
	for i := range s.Variants {
		if v := &s.Variants[i]; v.LockName != "" {
			v.Lock = find(v.LockName)
		}
	}
	return errs
}

// located says where in a file the problems of its scenario are.
func located(file string, tree *ast.File, problems []error) error {
	var errs []error
	for _, problem := range problems {
		at := file
		if of, ok := errors.AsType[stepError](problem); ok {
			where, err := yaml.PathString(fmt.Sprintf("$.steps[%d]", of.step))
			if err == nil {
				if node, err := where.FilterFile(tree); err == nil {
					at = fmt.Sprintf("%s:%d", file, node.GetToken().Position.Line)
				}
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", at, problem))
	}
	return errors.Join(errs...)
}

// Stores names scenarios that compare the stores: one split brain on four deployments, and
// for the two that it does not fool what does, with the cure by a token.
func Stores() []string {
	return []string{
		"split-brain-double-grant", "cluster-split-brain-double-grant", "etcd-split-brain", "zookeeper-split-brain",
		"etcd-late-keep-alive", "etcd-late-keep-alive/fencing", "zookeeper-session-lost", "zookeeper-session-lost/fencing",
	}
}

// Find returns the scenario of the catalogue with that name or alias;
// "name/variant" is one of its variants.
func Find(name string, locks harness.Locks) (Scenario, string, error) {
	name, variant, _ := strings.Cut(name, "/")
	file := name + ".yaml"
	if b, err := catalogue.ReadFile(path.Join("catalogue", file)); err == nil { // the others need not be parsed
		s, err := Parse(file, b, locks)
		if err != nil {
			return Scenario{}, "", err
		}
		return s.variant(variant)
	}
	all, err := Catalogue(locks)
	if err != nil {
		return Scenario{}, "", err
	}
	var known []string
	for _, s := range all {
		if slices.Contains(s.Aliases, name) {
			return s.variant(variant)
		}
		known = append(known, s.Name)
	}
	return Scenario{}, "", names.Unknown("scenario", name, known)
}

// variant returns the scenario and the name of one of its variants, which may be empty.
func (s Scenario) variant(name string) (Scenario, string, error) {
	if name != "" && !slices.Contains(s.VariantNames(), name) {
		return s, "", names.Unknown("variant of "+s.Name, name, s.VariantNames())
	}
	return s, name, nil
}

// Load reads a scenario from a regular file of the user's. The command that it may name as a lock is run only
// where allowExec says so.
func Load(file string, locks harness.Locks, allowExec bool) (Scenario, error) {
	b, err := read(file)
	if err != nil {
		return Scenario{}, fmt.Errorf("read scenario: %w", err)
	}
	return parse(file, b, locks, allowExec)
}

// read reads what a file may have at the most, and a byte more of what is longer.
func read(file string) ([]byte, error) {
	f, err := history.Open(file)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	return b, errors.Join(err, f.Close())
}

// ReadFile reads any YAML file strictly, within the bounds of a scenario's. One that has nothing but comments is [ErrEmpty].
func ReadFile(file string, into any) error {
	b, err := read(file)
	if err != nil {
		return err
	}
	return decode(file, b, into)
}

// decode reads YAML strictly, within the bounds of a scenario's.
func decode(file string, b []byte, into any) error {
	if err := Bounded(b); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %s", file, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: there is more behind the first value", file)
	}
	return nil
}

// VariantNames lists the names of the variants.
func (s Scenario) VariantNames() []string {
	return names.Of(s.Variants, func(v Variant) string { return v.Name })
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
		s.Watchdog = cmp.Or(v.Watchdog, s.Watchdog)
		s.Retries = cmp.Or(v.Retries, s.Retries)
		s.Progress = cmp.Or(v.Progress, s.Progress)
		if v.LockName != "" {
			s.LockName, s.Lock = v.LockName, v.Lock
		}
		s.Resource = cmp.Or(v.Resource, s.Resource)
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

// plainMutex is the lock of variants that any correct mutex can play, and plantedBug
// begins the names of locks with one.
const (
	plainMutex = "mutex"
	plantedBug = "broken-"
)

// Under is the variant of the scenario with another lock under test; the empty
// variant is the scenario itself. The verdict that it expects is that of its own
// lock, and need not be that of the other.
//
// The error says what the scenario asks for that the lock can't do, or that the
// variant is about a lock of its own. One about the plain mutex is about every
// correct mutex: it is the control of a planted bug.
func (s Scenario) Under(l harness.LockSpec, variant string) (Scenario, error) {
	as := s.As(variant)
	if as.LockName != s.LockName && as.LockName != plainMutex {
		return as, fmt.Errorf("%s: it is about the lock %s", as.Name, as.LockName)
	}
	if strings.HasPrefix(as.LockName, plantedBug) && l.Name != as.LockName && as.Expect.Verdict == string(checker.Invalid) &&
		!slices.ContainsFunc(as.Steps, func(step ScriptStep) bool { return step.Symptom }) {
		return as, fmt.Errorf("%s: it is about the planted bug of %s, which no answer of another lock shows", as.Name, as.LockName)
	}
	as.other = l.Name != as.LockName
	as.Lock, as.LockName = l, l.Name
	var reasons []string
	for _, err := range append(as.problems(), l.Validate(), l.On(as.Topology, as.Servers, harness.LockOptions{ReplicaAcks: as.ReplicaAcks, Watchdog: as.Watchdog})) {
		if err == nil {
			continue
		}
		for reason := range strings.Lines(err.Error()) {
			if reason = strings.TrimPrefix(strings.TrimSpace(reason), as.Name+": "); !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	}
	if len(reasons) > 0 {
		return as, fmt.Errorf("%s: %s", as.Name, strings.Join(reasons, "; "))
	}
	return as, nil
}
