package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/simulation"
)

// SearchFile has what a search found, in the folder of its campaign. The run directory of each kind of violation is beside it, by
// the name of the kind.
const SearchFile = "search.json"

// A Case is what a journal keeps of a simulated case, which was run again so often, by a build that has all of them be the
// same or not.
type Case struct {
	Again  int               `json:"again,omitempty"`
	Exact  bool              `json:"exact,omitempty"`
	Result simulation.Result `json:"result"`
}

// caseOf reads a line of a journal.
func caseOf(line fleet.Run) (c Case, err error) {
	err = line.Decode(&c)
	if err == nil && (c.Result.Case.Lock == "" || line.Job != fleet.Job("", c.Result.Case.Seed) || c.Result.Error != "") {
		err = line.Wrong(errors.New("its result is of another case"))
	}
	for _, kind := range c.Result.Findings { // each names a folder
		if err == nil && (kind == "." || kind != filepath.Base(kind) || !filepath.IsLocal(kind)) {
			err = line.Wrong(fmt.Errorf("%q is no kind of violation", kind))
		}
	}
	return c, err
}

// ReadCases reads what the journals of a simulated campaign keep of its cases, in the order of its runs.
func ReadCases(c fleet.Campaign) (all []Case, err error) {
	for _, line := range c.Runs {
		n, err := caseOf(line)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// Resume plays the cases of a search that a journal does not have, notes each, and adds those that it has.
func Resume(s *simulation.Search, journal *fleet.Journal, jobs []simulation.Numbered, play simulation.Player) error {
	var left []simulation.Numbered
	for _, job := range jobs {
		lines := journal.Of(fleet.Job("", job.Seed))
		if len(lines) == 0 {
			left = append(left, job)
		}
		for _, line := range lines {
			n, err := caseOf(line)
			if err != nil {
				return err
			}
			s.Add(job.Order, n.Result)
		}
	}
	return play(left, func(job simulation.Numbered, r simulation.Result) error {
		r.Outcome, r.Links, r.Shape = nil, nil, ""
		if len(r.Findings) == 0 { // the case is drawn from the seed
			r.Case = simulation.Case{Lock: r.Case.Lock, Topology: r.Case.Topology, Seed: r.Case.Seed}
		}
		return journal.Append(fleet.Run{Job: fleet.Job("", job.Seed)}, Case{job.Again, simulation.Exact(), r})
	})
}

// JoinSearch makes one search of the cases of a campaign. The directory of each kind of violation is that of the shard with its
// first case; empty: it was ended before it had one.
func JoinSearch(c fleet.Campaign) (*simulation.Search, error) {
	jobs, err := c.Jobs()
	if err != nil {
		return nil, err
	}
	cases, err := ReadCases(c)
	if err != nil {
		return nil, err
	}
	order := make(map[string]int, len(jobs))
	for i, job := range jobs {
		order[job] = i
	}
	s := &simulation.Search{Search: simulation.SearchRandom, Kinds: []*simulation.Kind{}}
	for i, n := range cases {
		s.Topology, s.Lock = n.Result.Case.Topology, n.Result.Case.Lock
		s.Repeated, s.Exact = s.Repeated+n.Again, s.Exact || n.Exact
		s.Add(order[c.Runs[i].Job], n.Result)
	}
	s.Sort()
	for _, folder := range c.Folders {
		path := filepath.Join(folder, SearchFile)
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // it was ended before
		}
		var found simulation.Search
		if err == nil {
			err = json.Unmarshal(b, &found)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, k := range s.Kinds {
			if k.Dir == "" && slices.ContainsFunc(found.Kinds, k.Take) { // a second try of a shard may have the same
				k.Dir = filepath.Join(folder, k.Kind)
			}
		}
	}
	return s, nil
}

// WriteSearch writes a search into a folder, with copies of its run directories that say how to repeat them.
func WriteSearch(ctx context.Context, s *simulation.Search, folder string, repeat func(dir string) string) error {
	for _, k := range s.Kinds {
		if k.Dir == "" {
			continue
		}
		from := os.DirFS(k.Dir)
		k.Dir = filepath.Join(folder, k.Kind)
		if err := os.CopyFS(k.Dir, from); err != nil {
			return err
		}
		err := judge.Amend(ctx, k.Dir, func(run *history.Run) error {
			run.Command = repeat(k.Dir)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return history.WriteFile(filepath.Join(folder, SearchFile), s.Write)
}
