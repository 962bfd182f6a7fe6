package campaign

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// memoryFormat is the version of memories that this package writes and reads.
const memoryFormat = 1

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

// part is what runs of it are of, without a kind.
func (k Key) part() Key {
	k.Kind = ""
	return k
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

// A Count is how many runs of a night were judged, without a kind, or showed that kind.
type Count struct {
	Key

	Runs int `json:"runs"`
	// Of a kind: the run that came to it first after its beginning.
	Seed    uint64        `json:"seed,omitempty"`
	After   time.Duration `json:"after,omitempty"`
	Command string        `json:"command,omitempty"`
}

// add adds other runs of its key.
func (c *Count) add(o Count) {
	if c.Runs == 0 || o.After < c.After || o.After == c.After && o.Seed < c.Seed {
		c.Seed, c.After, c.Command = o.Seed, o.After, o.Command
	}
	c.Runs += o.Runs
}

// A Night is a campaign that is remembered.
type Night struct {
	// Parts has an ID of a run of each folder: campaigns that have a part in common are one.
	Parts   []string  `json:"parts"`
	Date    time.Time `json:"date"` // when it was remembered first
	Program string    `json:"program"`
	Counts  []Count   `json:"counts"`
}

// of is the count of a key; zero if it has none.
func (n *Night) of(key Key) (c Count) {
	if i := slices.IndexFunc(n.Counts, func(c Count) bool { return c.Key == key }); i >= 0 {
		c = n.Counts[i]
	}
	return c
}

// A Finding is what the nights show of a kind, from the first in which it was seen.
type Finding struct {
	Count // of all nights

	// First and Last are the nights in which it was seen, by date and program, and Nights is how many were.
	First  string `json:"first_seen"`
	Last   string `json:"last_seen"`
	Nights int    `json:"nights"`
	// Seen of Of runs showed it in the last night that looked for it, Before of OfBefore in those before. The true share of the
	// last is within Share in 95 of 100 cases.
	Seen     int        `json:"seen"`
	Of       int        `json:"of"`
	Before   int        `json:"before"`
	OfBefore int        `json:"of_before"`
	Share    [2]float64 `json:"share"`
}

// Worse reports whether it was seen more often in the last night than before, by more than chance makes likely: the
// intervals of the two rates, in which the true share is in 95 of 100 cases, are apart.
func (f *Finding) Worse() bool {
	return f.OfBefore > 0 && f.Share[0] > reports.Interval(f.Before, f.OfBefore)[1]
}

// findings are what some nights show, in the order of the keys.
func findings(nights []Night) (all []Finding) {
	keys := map[Key]bool{}
	for _, n := range nights {
		for _, c := range n.Counts {
			keys[c.Key] = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), Key.compare) {
		f := Finding{Count: Count{Key: key}}
		for _, n := range nights {
			c, of := n.of(key), n.of(key.part()).Runs
			if of == 0 || c.Runs+f.Nights == 0 {
				continue
			}
			f.Before, f.OfBefore, f.Seen, f.Of = f.Before+f.Seen, f.OfBefore+f.Of, c.Runs, of
			if c.Runs == 0 {
				continue
			}
			f.add(c)
			f.Nights, f.Last = f.Nights+1, n.Date.Format(time.DateOnly)+" "+n.Program
			f.First = cmp.Or(f.First, f.Last)
		}
		if f.Share = reports.Interval(f.Seen, f.Of); key.Kind != "" {
			all = append(all, f)
		}
	}
	return all
}

// A Memory is what many campaigns found: the nights in the order in which they were first told, and what they show.
type Memory struct {
	Format   int       `json:"format"`
	Findings []Finding `json:"findings"` // written for people; the nights have all
	Nights   []Night   `json:"nights"`
}

// Remember reads what is remembered in a folder; a folder without [FindingsFile] has nothing yet.
func Remember(dir string) (m Memory, err error) {
	b, err := os.ReadFile(filepath.Join(dir, FindingsFile))
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = fleet.Decode(b, &m)
	}
	if err == nil && m.Format != memoryFormat {
		err = fmt.Errorf("its format is %d, and this program reads %d", m.Format, memoryFormat)
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, FindingsFile), err)
	}
	return m, nil
}

// Add adds the runs of a campaign, and returns what was found or looked for again in it, with the nights up to it. A campaign
// that is told again, whole or with other folders, takes the place that it had.
func (m *Memory) Add(c fleet.Campaign, runs []Judged, now time.Time) []Finding {
	counts := map[Key]Count{}
	count := func(key Key, c Count) {
		all := counts[key]
		all.Key = key
		all.add(c)
		counts[key] = all
	}
	for _, r := range runs {
		count(r.Key, Count{Runs: 1})
		for kind, after := range r.Kinds {
			key := r.Key
			key.Kind = kind
			count(key, Count{Runs: 1, Seed: r.Seed, After: after, Command: r.Command})
		}
	}
	night := Night{c.Parts, now.UTC().Truncate(time.Second), c.Program, slices.SortedFunc(maps.Values(counts), func(a, b Count) int { return a.compare(b.Key) })}
	again := func(n Night) bool {
		return slices.ContainsFunc(n.Parts, func(id string) bool { return slices.Contains(c.Parts, id) })
	}
	at := slices.IndexFunc(m.Nights, again)
	if at < 0 {
		at = len(m.Nights)
	} else {
		night.Date = m.Nights[at].Date
	}
	m.Nights = slices.Insert(slices.DeleteFunc(m.Nights, again), at, night)
	return slices.DeleteFunc(findings(m.Nights[:at+1]), func(f Finding) bool { return night.of(f.part()).Runs == 0 })
}

// Write writes what is remembered into a folder, in one step.
func (m *Memory) Write(dir string) error {
	m.Format, m.Findings = memoryFormat, findings(m.Nights)
	return history.WriteFile(filepath.Join(dir, FindingsFile), func(w io.Writer) error { return say.JSON(w, m) })
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
	err = scenarios.ReadFile(path, &all)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, scenarios.ErrEmpty) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kinds := names.Of(checker.Kinds(), func(k checker.Kind) string { return k.Name })
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

// JudgedRuns are the runs of a campaign that have a verdict, and how many have none.
func JudgedRuns(c fleet.Campaign) (runs []Judged, unknown int, err error) {
	add := func(i int, judged bool, r Judged) {
		if r.Host = c.Runs[i].Host; judged {
			runs = append(runs, r)
		} else {
			unknown++
		}
	}
	if c.Same {
		cases, err := ReadCases(c)
		for i, n := range cases {
			r := Judged{Key: Key{Lock: n.Result.Case.Lock, Topology: n.Result.Case.Topology}, Seed: n.Result.Case.Seed, Kinds: map[string]time.Duration{}}
			r.Command = fmt.Sprintf("%s --seeds %d", c.Command, r.Seed)
			for _, kind := range n.Result.Findings {
				r.Kinds[kind] = 0
			}
			add(i, n.Result.Granted > 0, r)
		}
		return runs, unknown, err
	}
	record, err := Read(c)
	for i, n := range record.Notes {
		r := &n.Results
		add(i, r.Verdict != checker.Unknown, Judged{Key: Key{Lock: r.Lock, Topology: r.Topology, Faults: n.Mix}, Seed: r.Seed, Command: r.Command, Kinds: r.After()})
	}
	return runs, unknown, err
}

// CanaryRuns are the runs of campaigns with planted bugs, by the same program as another campaign.
func CanaryRuns(dirs []string, of fleet.Campaign) (all []Judged, err error) {
	for _, dir := range dirs {
		c, err := fleet.Join([]string{dir})
		if err != nil {
			return nil, err
		}
		if c.Program != of.Program || c.Build != of.Build {
			return nil, fmt.Errorf("%s was played by another program than the campaign", dir)
		}
		runs, _, err := JudgedRuns(c)
		if err != nil {
			return nil, err
		}
		for _, r := range runs {
			if !strings.HasPrefix(r.Lock, "broken-") {
				return nil, fmt.Errorf("%s has runs of %s, which has no planted bug: want a lock broken-…, see lockchaos mutants", dir, r.Lock)
			}
		}
		all = append(all, runs...)
	}
	return all, nil
}
