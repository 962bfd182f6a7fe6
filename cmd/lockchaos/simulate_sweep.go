package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/lockchaos/lockchaos/simulation"
)

// A sweepCoverage is how much of a sweep was played.
type sweepCoverage struct {
	Singles    int `json:"single_faults"`
	AllSingles int `json:"all_single_faults"`
	Pairs      int `json:"pairs"`
	AllPairs   int `json:"all_pairs"`
	// Shapes is how many shapes the runs had: see [simulation.Shape].
	Shapes int `json:"shapes"`
	// Before is how many cases an earlier sweep had played.
	Before int `json:"played_before"`
}

// A sweptCase is a line of the file of a sweep that can be resumed: what came of a case.
// The first line has the case without a fault.
type sweptCase struct {
	Faults []int             `json:"faults"`
	Result simulation.Result `json:"result"`
}

// A sweepJournal is that file. The path may be empty: then it notes nothing.
type sweepJournal struct {
	file *os.File
	had  map[string]simulation.Result
}

// openJournal reads what the file has, which must be of the same case, and appends to it.
// A last line that was cut off is written over.
func openJournal(path string, base simulation.Case) (*sweepJournal, error) {
	j := &sweepJournal{had: map[string]simulation.Result{}}
	if path == "" {
		return j, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("--swept: %w", err)
	}
	d := json.NewDecoder(f)
	end := int64(0)
	for {
		var c sweptCase
		err := d.Decode(&c)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--swept %s: no file of a sweep: %w", path, err), f.Close())
		}
		if len(c.Faults) == 0 && !reflect.DeepEqual(c.Result.Case, base) {
			return nil, errors.Join(fmt.Errorf("--swept %s: it is of another sweep: take the same flags, or another file", path), f.Close())
		}
		j.had[fmt.Sprint(c.Faults)] = c.Result
		end = d.InputOffset()
	}
	if err := f.Truncate(end); err != nil {
		return nil, errors.Join(fmt.Errorf("--swept: %w", err), f.Close())
	}
	if _, err := f.Seek(end, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("--swept: %w", err), f.Close())
	}
	j.file = f
	return j, nil
}

// note writes down what came of a case.
func (j *sweepJournal) note(faults []int, r simulation.Result) error {
	if j.file == nil {
		return nil
	}
	b, err := json.Marshal(sweptCase{faults, r})
	if err == nil {
		_, err = j.file.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("--swept: %w", err)
	}
	return nil
}

func (j *sweepJournal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// sweep plays the case without a fault, with each fault by itself, and with pairs.
func (o *simulateOptions) sweep(ctx context.Context, pool *simulation.Pool, s *simulatedSearch,
	play func([]simulationJob, func(simulationJob, simulation.Result) error) error,
) (err error) {
	seeds, err := parseSeeds(o.seeds)
	if err != nil {
		return err
	}
	base := simulation.SweepBase(o.lock, o.Campaign, seeds[0])
	journal, err := openJournal(o.swept, base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.close()) }()
	quiet, err := pool.Do(ctx, simulation.Job{Lock: o.lock.Name, Case: &base, Seed: base.Seed, Again: 2})
	if err != nil {
		return asHarness(err)
	}
	switch was, had := journal.had[fmt.Sprint([]int{})]; {
	case !had:
		err = journal.note([]int{}, quiet)
	case was.Hash != quiet.Hash && quiet.Same > 0:
		err = fmt.Errorf("--swept %s: without a fault the lock does something else now than when it was written: take another file", o.swept)
	}
	if err != nil {
		return err
	}
	w := simulation.NewSweep(base, quiet.Links)
	n := w.Faults()
	s.Sweep = &sweepCoverage{AllSingles: n, AllPairs: n * (n - 1) / 2}
	shapes, failed, seen := make([]string, n), make([]bool, n), map[string]bool{}
	done := func(j simulationJob, r simulation.Result) {
		seen[r.Shape] = true
		s.Sweep.Shapes = len(seen)
		if len(j.faults) == 1 {
			shapes[j.faults[0]], failed[j.faults[0]] = r.Shape, len(r.Findings) > 0
			s.Sweep.Singles++
		} else {
			s.Sweep.Pairs++
		}
	}
	run := func(lists [][]int) error {
		var jobs []simulationJob
		s.Of += len(lists)
		for i, faults := range lists {
			c := w.Case(faults...)
			j := simulationJob{simulation.Job{Lock: o.lock.Name, Case: &c, Seed: c.Seed}, s.Of - len(lists) + i, faults}
			if r, had := journal.had[fmt.Sprint(faults)]; had {
				s.Sweep.Before++
				s.add(j.order, r)
				done(j, r)
				continue
			}
			jobs = append(jobs, j)
		}
		return play(jobs, func(j simulationJob, r simulation.Result) error {
			done(j, r)
			return journal.note(j.faults, r)
		})
	}
	var singles, pairs [][]int
	for i := range n {
		singles = append(singles, []int{i})
	}
	if err := run(singles); err != nil || ctx.Err() != nil || o.pairs == 0 {
		return err
	}
	for _, p := range w.Pairs(shapes, failed, quiet.Shape, o.pairs) {
		pairs = append(pairs, p[:])
	}
	return run(pairs)
}
