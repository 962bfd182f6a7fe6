package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
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

// A Night is how often a finding was seen in one campaign.
type Night struct {
	Campaign string    `json:"campaign"` // a hash of the ids of its runs
	Date     time.Time `json:"date"`     // when it was remembered
	Program  string    `json:"program"`
	Seen     int       `json:"seen"`
	Of       int       `json:"of"`
}

// A Found is a finding over all nights, from the first in which it was seen.
type Found struct {
	Key

	Nights []Night `json:"nights"`
	// Seed, After and Command are of the run that came to it first after its beginning.
	Seed    uint64        `json:"seed"`
	After   time.Duration `json:"after"`
	Command string        `json:"command"`
}

// Rate is how often it was seen in the nights before the last, or in the last alone.
func (f *Found) Rate(last bool) (seen, of int) {
	nights := f.Nights[:len(f.Nights)-1]
	if last {
		nights = f.Nights[len(f.Nights)-1:]
	}
	for _, n := range nights {
		seen, of = seen+n.Seen, of+n.Of
	}
	return seen, of
}

// Worse reports whether it was seen more often in the last night than before, by more than chance makes likely: the
// intervals of the two rates, in which the true share is in 95 of 100 cases, are apart.
func (f *Found) Worse() bool {
	before, of := f.Rate(false)
	seen, now := f.Rate(true)
	return of > 0 && reports.Interval(seen, now)[0] > reports.Interval(before, of)[1]
}

// Seen are the nights in which it was seen.
func (f *Found) Seen() []Night {
	return slices.DeleteFunc(slices.Clone(f.Nights), func(n Night) bool { return n.Seen == 0 })
}

// A Memory is what many campaigns found, in order of the keys.
type Memory struct {
	Format   int     `json:"format"`
	Findings []Found `json:"findings"`
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
	if err == nil && m.Format != format {
		err = fmt.Errorf("its format is %d, and this program reads %d", m.Format, format)
	}
	if err == nil && slices.ContainsFunc(m.Findings, func(f Found) bool { return len(f.Nights) == 0 }) {
		err = errors.New("a finding has no night")
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, FindingsFile), err)
	}
	return m, nil
}

// Add adds the runs of a campaign, and returns what was found in it or is looked for again in it: a finding of a lock, topology and
// faults that it has no run of stays as it is. A campaign that is there already is not counted again.
func (m *Memory) Add(c Campaign, runs []Judged, now time.Time) []Found {
	night := Night{Campaign: c.id(), Date: now.UTC().Truncate(time.Second), Program: c.Program}
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
			continue
		}
		for _, r := range found[f.Key] {
			if after := r.Kinds[f.Kind]; len(f.Nights) == 0 && f.Command == "" || after < f.After || after == f.After && r.Seed < f.Seed {
				f.Seed, f.After, f.Command = r.Seed, after, r.Command
			}
		}
		f.Nights = slices.DeleteFunc(f.Nights, func(n Night) bool { return n.Campaign == night.Campaign })
		night.Seen, night.Of = len(found[f.Key]), of[part]
		f.Nights = append(f.Nights, night)
		tonight = append(tonight, *f)
	}
	return tonight
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

// id tells a campaign from others: the same runs are the same campaign, in whatever folders they are.
func (c Campaign) id() string {
	var ids []string
	for _, r := range c.Runs {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))
	return hex.EncodeToString(sum[:8])
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
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalWithOptions(b, &all, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	for i, k := range all {
		if k.Kind == "" || k.Why == "" {
			return nil, fmt.Errorf("%s: entry %d needs a kind, and a why", path, i+1)
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
