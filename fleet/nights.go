package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// The files of the folder in which campaigns are remembered.
const (
	FindingsFile = "findings.json" // what was found, over all nights
	KnownFile    = "known.yaml"    // which of it is known; written by people
)

// A Key tells findings apart: what was under test, under which faults, and which kind of violation it showed.
type Key struct {
	Lock     string `json:"lock" yaml:"lock"`
	Topology string `json:"topology" yaml:"topology"`
	Faults   string `json:"faults,omitempty" yaml:"faults"`
	Kind     string `json:"kind" yaml:"kind"`
}

// String names a finding in a line.
func (k Key) String() string {
	text := k.Kind + " of " + k.Lock + " on " + k.Topology
	if k.Faults != "" {
		text += ", faults " + k.Faults
	}
	return text
}

func (k Key) compare(o Key) int {
	return cmp.Or(strings.Compare(k.Lock, o.Lock), strings.Compare(k.Topology, o.Topology), strings.Compare(k.Faults, o.Faults), strings.Compare(k.Kind, o.Kind))
}

// A Judged is a run of a campaign that has a verdict. Of one that is unknown nothing is remembered.
type Judged struct {
	Key // without a kind

	Seed    uint64
	Command string // that plays it again
	Host    string
	// Kinds are those of its violations, with the time of the first of each after the run began.
	Kinds map[string]time.Duration
}

// A Night is a campaign that is remembered.
type Night struct {
	// Parts has an ID of a run of each folder: campaigns that have a part in common are one.
	Parts   []string  `json:"parts"`
	Date    time.Time `json:"date"` // when it was remembered first
	Program string    `json:"program"`
}

// A Share is how often a finding was seen in a night, which is its place in [Memory.Nights].
type Share struct {
	Night int `json:"night"`
	Seen  int `json:"seen"`
	Of    int `json:"of"`
}

// A Found is a finding over all nights, from the first in which it was seen.
type Found struct {
	Key

	Nights []Share `json:"nights"`
	// Seed, After and Command are of the run that came to it first after its beginning.
	Seed    uint64        `json:"seed"`
	After   time.Duration `json:"after"`
	Command string        `json:"command"`
}

// Last is how often it was seen in the last of its nights.
func (f *Found) Last() (seen, of int) {
	n := f.Nights[len(f.Nights)-1]
	return n.Seen, n.Of
}

// Before is how often it was seen in the nights before the last.
func (f *Found) Before() (seen, of int) {
	for _, n := range f.Nights[:len(f.Nights)-1] {
		seen, of = seen+n.Seen, of+n.Of
	}
	return seen, of
}

// Worse reports whether it was seen more often in the last night than before, by more than chance makes likely: the
// intervals of the two rates, in which the true share is in 95 of 100 cases, are apart.
func (f *Found) Worse() bool {
	before, of := f.Before()
	seen, now := f.Last()
	return of > 0 && reports.Interval(seen, now)[0] > reports.Interval(before, of)[1]
}

// Seen are the nights in which it was seen.
func (f *Found) Seen() []Share {
	return slices.DeleteFunc(slices.Clone(f.Nights), unseen)
}

func unseen(s Share) bool { return s.Seen == 0 }

// A Memory is what many campaigns found: the nights in the order in which they were first told, and the findings in
// order of the keys.
type Memory struct {
	Format   int     `json:"format"`
	Nights   []Night `json:"nights"`
	Findings []Found `json:"findings"`
}

// Hold waits until no other process has the memory in a folder, and keeps it from others until release is called.
func Hold(dir string) (release func() error, err error) {
	f, err := os.Open(dir)
	if err == nil {
		err = lock(f, true)
	}
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", dir, err)
	}
	return f.Close, nil
}

// Remember reads what is remembered in a folder; a folder without [FindingsFile] has nothing yet.
func Remember(dir string) (m Memory, err error) {
	b, err := os.ReadFile(filepath.Join(dir, FindingsFile))
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = decode(b, &m)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, FindingsFile), err)
	}
	return m, nil
}

// check says what can't be in a memory that this package wrote.
func (m *Memory) check() error {
	if m.Format != format {
		return fmt.Errorf("its format is %d, and this program reads %d", m.Format, format)
	}
	for i, f := range m.Findings {
		if i > 0 && m.Findings[i-1].compare(f.Key) >= 0 {
			return fmt.Errorf("%s is there twice, or not in its place", f)
		}
		if len(f.Nights) == 0 {
			return fmt.Errorf("%s has no night", f)
		}
		last := -1
		for _, n := range f.Nights {
			if n.Night <= last || n.Night >= len(m.Nights) || n.Seen < 0 || n.Seen > n.Of || n.Of == 0 {
				return fmt.Errorf("%s was seen in %d of %d runs of night %d, which can't be", f, n.Seen, n.Of, n.Night)
			}
			last = n.Night
		}
	}
	return nil
}

// Add adds the runs of a campaign, and returns what was found in it or is looked for again in it, with the nights up to it: a finding
// of a lock, topology and faults that it has no run of stays as it is. A campaign that is told again, whole or with other
// folders, takes the place that it had.
func (m *Memory) Add(c Campaign, runs []Judged, now time.Time) []Found {
	night := m.place(Night{Parts: c.Parts, Date: now.UTC().Truncate(time.Second), Program: c.Program})
	of := map[Key]int{}
	found := map[Key][]Judged{}
	for _, r := range runs {
		of[r.Key]++
		for kind := range r.Kinds {
			key := r.Key
			key.Kind = kind
			found[key] = append(found[key], r)
		}
	}
	for key := range found {
		if !slices.ContainsFunc(m.Findings, func(f Found) bool { return f.Key == key }) {
			m.Findings = append(m.Findings, Found{Key: key})
		}
	}
	slices.SortFunc(m.Findings, func(a, b Found) int { return a.compare(b.Key) })
	var tonight []Found
	for i := range m.Findings {
		f := &m.Findings[i]
		part := f.Key
		part.Kind = ""
		if of[part] == 0 {
			f.trim()
			continue
		}
		for _, r := range found[f.Key] {
			if after := r.Kinds[f.Kind]; f.Command == "" || after < f.After || after == f.After && r.Seed < f.Seed {
				f.Seed, f.After, f.Command = r.Seed, after, r.Command
			}
		}
		f.Nights = append(f.Nights, Share{night, len(found[f.Key]), of[part]})
		slices.SortFunc(f.Nights, func(a, b Share) int { return cmp.Compare(a.Night, b.Night) })
		f.trim()
		upTo := *f
		upTo.Nights = slices.DeleteFunc(slices.Clone(f.Nights), func(s Share) bool { return s.Night > night })
		if len(upTo.Nights) > 0 {
			tonight = append(tonight, upTo)
		}
	}
	m.Findings = slices.DeleteFunc(m.Findings, func(f Found) bool { return len(f.Nights) == 0 })
	return tonight
}

// place finds the place of a night: that which it had, of which nothing is left in the findings then, or the next.
func (m *Memory) place(night Night) int {
	at := -1
	for i := range m.Nights {
		if !slices.ContainsFunc(m.Nights[i].Parts, func(id string) bool { return slices.Contains(night.Parts, id) }) {
			continue
		}
		if m.Nights[i].Parts = nil; at < 0 {
			at, night.Date = i, m.Nights[i].Date
		}
		for k := range m.Findings {
			f := &m.Findings[k]
			f.Nights = slices.DeleteFunc(f.Nights, func(s Share) bool { return s.Night == i })
		}
	}
	if at < 0 {
		at, m.Nights = len(m.Nights), append(m.Nights, Night{})
	}
	m.Nights[at] = night
	return at
}

// trim drops the nights before the first in which it was seen.
func (f *Found) trim() {
	first := slices.IndexFunc(f.Nights, func(s Share) bool { return s.Seen > 0 })
	if first < 0 {
		first = len(f.Nights)
	}
	f.Nights = f.Nights[first:]
}

// Write writes what is remembered into a folder, in one step.
func (m *Memory) Write(dir string) error {
	m.Format = format
	return history.WriteFile(filepath.Join(dir, FindingsFile), func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(m)
	})
}

// A Known is a finding that people know of. A field that is empty stands for any.
type Known struct {
	Key `yaml:",inline"`

	// Why says what is known of it: an issue, or that it is a limit of the deployment.
	Why string `yaml:"why"`
}

// KnownIn reads the list of what is known in a folder; none where it has no [KnownFile].
func KnownIn(dir string) (all []Known, err error) {
	path := filepath.Join(dir, KnownFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = scenarios.Bounded(b)
	}
	if err != nil && !errors.Is(err, scenarios.ErrEmpty) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
	if err := d.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more behind the list", path)
	}
	var kinds []string
	for _, k := range checker.Kinds() {
		kinds = append(kinds, k.Name)
	}
	for i, k := range all {
		if k.Kind == "" || k.Why == "" {
			return nil, fmt.Errorf("%s: entry %d needs a kind, and a why", path, i+1)
		}
		if !slices.Contains(kinds, k.Kind) {
			return nil, fmt.Errorf("%s: entry %d: %w", path, i+1, names.Unknown("kind of violation", k.Kind, kinds))
		}
	}
	return all, nil
}

// Covers reports whether a finding is the one that is known.
func (k Known) Covers(f Key) bool {
	same := func(want, is string) bool { return want == "" || want == is }
	return k.Kind == f.Kind && same(k.Lock, f.Lock) && same(k.Topology, f.Topology) && same(k.Faults, f.Faults)
}

// Unconvicted are the hosts of some runs on which no canary was convicted: a run of a lock with a planted bug. What
// such a host calls valid shows nothing.
func Unconvicted(runs, canaries []Judged) []string {
	convicted := map[string]bool{}
	for _, c := range canaries {
		convicted[c.Host] = convicted[c.Host] || len(c.Kinds) > 0
	}
	var hosts []string
	for _, r := range runs {
		if !convicted[r.Host] && !slices.Contains(hosts, r.Host) {
			hosts = append(hosts, r.Host)
		}
	}
	slices.Sort(hosts)
	return hosts
}
