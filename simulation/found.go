package simulation

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"slices"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// The ways to search.
const (
	SearchRandom = "random"
	SearchSweep  = "sweep"
)

// A Kind is what a search found of a kind of violation.
type Kind struct {
	Kind string `json:"kind"`
	// Cases is how many showed it, and Seed that of the first.
	Cases int    `json:"cases"`
	Seed  uint64 `json:"seed"`
	// Faults is how many the plan had, and Plan what is left of it.
	Faults int      `json:"faults"`
	Plan   []string `json:"plan"`
	// Runs is how many it took to make the plan small, and Same whether the smallest
	// case ran the same again.
	Runs int    `json:"runs"`
	Same bool   `json:"replayed_identically"`
	Dir  string `json:"dir"`
	// Causes are what came of playing the smallest case again.
	Causes []history.Cause `json:"causes,omitempty"`
	// Confirmation is what real servers showed, if they were asked.
	Confirmation *history.Confirmation `json:"confirmation,omitempty"`

	// First is the first case.
	First Case `json:"-"`

	order int // of the case, for those that a sweep makes of one seed
}

// A Search is what came of many cases.
type Search struct {
	Topology string    `json:"topology"`
	Lock     string    `json:"lock"`
	Search   string    `json:"search"`
	Cases    int       `json:"cases"`
	Of       int       `json:"-"` // how many there will be
	Sweep    *Coverage `json:"sweep,omitempty"`
	Convicts int       `json:"invalid"`
	Messages int       `json:"messages"`
	Faults   int       `json:"faults_begun"`
	Seconds  float64   `json:"seconds"`
	// Granted is how often the lock was granted. If never, Denied says how a request ended,
	// and nothing is known of the lock.
	Granted int    `json:"granted"`
	Denied  string `json:"denied,omitempty"`
	// Repeated is how many cases were run again, each so often, and Same how many of those
	// runs were the same; by the Exact build all have to be.
	Repeated int  `json:"repeated,omitempty"`
	Same     int  `json:"same,omitempty"`
	Exact    bool `json:"exact,omitempty"`

	Kinds []*Kind `json:"violations"`

	deniedAt int // the case of Denied
}

// A Coverage is how much of a sweep was played.
type Coverage struct {
	Singles    int `json:"single_faults"`
	AllSingles int `json:"all_single_faults"`
	Pairs      int `json:"pairs"`
	AllPairs   int `json:"all_pairs"`
	// Shapes is how many shapes the runs had: see [Shape].
	Shapes int `json:"shapes"`
}

// A Numbered job is one case of a search. Cases are not done in their order.
type Numbered struct {
	Job

	Order int

	faults []int // of a sweep: those that the case has
}

// A Player does jobs, several at a time, adds what came of each to the search, and tells it, one after the other.
type Player func(jobs []Numbered, done func(Numbered, Result) error) error

// Add counts what came of the case with that number.
func (s *Search) Add(order int, r Result) {
	s.Cases++
	s.Messages += r.Counts.Messages
	s.Faults += r.Counts.Faults
	s.Same += r.Same
	s.Granted += r.Granted
	if r.Denied != "" && (s.Denied == "" || order < s.deniedAt) {
		s.Denied, s.deniedAt = r.Denied, order
	}
	if len(r.Findings) > 0 {
		s.Convicts++
	}
	for _, kind := range r.Findings {
		at := slices.IndexFunc(s.Kinds, func(k *Kind) bool { return k.Kind == kind })
		if at < 0 {
			at = len(s.Kinds)
			s.Kinds = append(s.Kinds, &Kind{Kind: kind, order: order + 1})
		}
		k := s.Kinds[at]
		k.Cases++
		if order < k.order {
			k.order, k.Seed, k.First, k.Faults = order, r.Case.Seed, r.Case, len(r.Case.Plan)
		}
	}
}

// Sort orders the kinds by the first cases that show them.
func (s *Search) Sort() {
	slices.SortFunc(s.Kinds, func(a, b *Kind) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Kind, b.Kind))
	})
}

// Write writes the search, without the time that it took, and with run directories as they are named beside it.
func (s *Search) Write(w io.Writer) error {
	c := *s
	c.Seconds, c.Kinds = 0, slices.Clone(s.Kinds)
	for i, k := range c.Kinds {
		beside := *k
		if k.Dir != "" {
			beside.Dir = filepath.Base(k.Dir)
		}
		c.Kinds[i] = &beside
	}
	return say.JSON(w, c)
}

// Take takes over what a shard made of the kind's first case, which is the first of all shards, and reports whether it is that.
func (k *Kind) Take(found *Kind) bool {
	if found.Kind != k.Kind || found.Seed != k.Seed {
		return false
	}
	dir, cases, order := k.Dir, k.Cases, k.order
	*k = *found
	k.Dir, k.Cases, k.order = dir, cases, order
	return true
}

// PlaySweep plays the case of a seed without a fault, with each fault by itself, and with so many pairs.
func (s *Search) PlaySweep(ctx context.Context, pool *Pool, l harness.LockSpec, of Campaign, seed uint64, pairs int, play Player) error {
	base := SweepBase(l, of, seed)
	quiet, err := pool.Do(ctx, Job{Lock: l.Name, Case: &base, Seed: base.Seed, Again: 2})
	if err != nil {
		return err
	}
	w := NewSweep(base, quiet.Links)
	n := w.Faults()
	s.Sweep = &Coverage{AllSingles: n, AllPairs: n * (n - 1) / 2}
	shapes, failed, seen := make([]string, n), make([]bool, n), map[string]bool{}
	run := func(lists [][]int) error {
		var jobs []Numbered
		for _, faults := range lists {
			c := w.Case(faults...)
			jobs = append(jobs, Numbered{Job{Lock: l.Name, Case: &c, Seed: c.Seed}, s.Of + len(jobs), faults})
		}
		s.Of += len(jobs)
		return play(jobs, func(j Numbered, r Result) error {
			seen[r.Shape] = true
			s.Sweep.Shapes = len(seen)
			if len(j.faults) == 1 {
				shapes[j.faults[0]], failed[j.faults[0]] = r.Shape, len(r.Findings) > 0
				s.Sweep.Singles++
			} else {
				s.Sweep.Pairs++
			}
			return nil
		})
	}
	var singles [][]int
	for i := range n {
		singles = append(singles, []int{i})
	}
	if err := run(singles); err != nil || ctx.Err() != nil || pairs == 0 {
		return err
	}
	return run(w.Pairs(shapes, failed, quiet.Shape, pairs))
}
