package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation"
)

// searchFile has what a search found, in the folder of its campaign. The run directory of each kind of
// violation is beside it, by the name of the kind.
const searchFile = "search.json"

// A simulatedNote is what a journal keeps of a simulated case, which was run again so often, by a build that has all of
// them be the same or not.
type simulatedNote struct {
	Again  int               `json:"again,omitempty"`
	Exact  bool              `json:"exact,omitempty"`
	Result simulation.Result `json:"result"`
}

// simulatedNoteOf reads a line of the journal in a folder.
func simulatedNoteOf(line fleet.Run, folder string) (n simulatedNote, err error) {
	if err = line.Decode(folder, &n); err == nil && (n.Result.Case.Lock == "" || line.Job != fleet.Job("", n.Result.Case.Seed) || n.Result.Error != "") {
		err = fmt.Errorf("%s: %s: its result is of another case", filepath.Join(folder, fleet.JournalFile), line.Job)
	}
	return n, err
}

// noted reports whether the search is one of a campaign, which has a journal.
func (o *simulateOptions) noted() bool { return o.shard != "" || o.resume }

// random plays the cases of a random search; of a campaign, those that its journal does not have.
func (o *simulateOptions) random(cmd *cobra.Command, s *simulation.Search, play simulation.Player) error {
	var jobs []simulation.Numbered
	for i, seed := range fleet.Part(o.part, o.all) {
		jobs = append(jobs, simulation.Numbered{Job: simulation.Job{Lock: o.lock.Name, Campaign: o.Campaign, Seed: seed, Again: o.again}, Order: i})
	}
	s.Of = len(jobs)
	if !o.noted() {
		return play(jobs, func(simulation.Numbered, simulation.Result) error { return nil })
	}
	if _, err := o.dir(o.out); err != nil {
		return err
	}
	j, err := o.open(o.out, fleet.Header{Command: "lockchaos simulate" + changedFlags(cmd), Seeds: o.seeds, Same: true}, o.lock.Name)
	if err != nil {
		return err
	}
	defer j.Close()
	left, err := fleet.Left(j, jobs, func(job simulation.Numbered) string { return fleet.Job("", job.Seed) }, func(job simulation.Numbered, line fleet.Run) error {
		n, err := simulatedNoteOf(line, o.out)
		if err == nil {
			s.Add(job.Order, n.Result)
		}
		return err
	})
	if err != nil {
		return err
	}
	return play(left, func(job simulation.Numbered, r simulation.Result) error {
		r.Outcome, r.Links, r.Shape = nil, nil, ""
		if len(r.Findings) == 0 { // the case is drawn from the seed
			r.Case = simulation.Case{Lock: r.Case.Lock, Topology: r.Case.Topology, Seed: r.Case.Seed}
		}
		return noteJob(j, fleet.Run{Job: fleet.Job("", job.Seed)}, simulatedNote{o.again, simulation.Exact(), r})
	})
}

// takeKind copies what a shard made of its first case of the kind, if that is the first of all shards. The copy is what its reports say how to
// replay.
func takeKind(ctx context.Context, k *simulation.Kind, folder, out string) error {
	b, err := os.ReadFile(filepath.Join(folder, searchFile))
	if os.IsNotExist(err) {
		return nil // it was ended before
	}
	var s simulation.Search
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(folder, searchFile), err)
	}
	if !slices.ContainsFunc(s.Kinds, k.Take) {
		return nil
	}
	k.Dir = filepath.Join(out, k.Kind)
	if err := os.CopyFS(k.Dir, os.DirFS(filepath.Join(folder, k.Kind))); err != nil {
		return harnessError{err}
	}
	_, err = noteInRecord(ctx, k.Dir, func(run *history.Run) error {
		run.Command = replayOf(k.Dir)
		return nil
	})
	return err
}
