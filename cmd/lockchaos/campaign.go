package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

func (a *app) campaignCommand() *cobra.Command {
	var store string
	var canaries []string
	var partial bool
	var undecided int
	cmd := &cobra.Command{
		Use:   "campaign --store DIR SHARD...",
		Short: "Remember what a campaign found, and say what is new",
		Long: `Remember what the shards of a campaign found, the folders of lockchaos run --seeds or lockchaos simulate with --shard, and
say what is new since the nights before: findings.json in the store has each finding with its rate of each night and the run that
came to it first. What people know of stands in known.yaml there, and is no reason to fail. A campaign of which seeds were never
played is not remembered: finish it with --resume, or say --partial.

Exit code 1: there is a finding that known.yaml does not have, or one that was seen more often than before, by more than chance;
2: seeds were never played, more runs are unknown than --undecided lets pass, or a host did not convict the canary; else 0.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, dirs []string) error {
			if store == "" {
				return errors.New("--store: name the folder that remembers; an empty one to begin with")
			}
			if !exists(store) {
				return fmt.Errorf("--store: there is no folder %s", store)
			}
			if undecided < 0 || undecided > 99 {
				return fmt.Errorf("--undecided %d: want a percentage of the runs, 0 to 99", undecided)
			}
			return a.remember(store, dirs, canaries, partial, undecided)
		},
	}
	f := cmd.Flags()
	f.StringVar(&store, "store", "", "the folder with findings.json and known.yaml, which is kept from night to night")
	f.BoolVar(&partial, "partial", false, "remember a campaign of which seeds were never played, and will not be")
	f.IntVar(&undecided, "undecided", 0, "the percentage of the runs that may be unknown without a doubt about the night: of short runs, some end before a fault took effect")
	f.StringArrayVar(&canaries, "canary", nil, "the folder of a campaign with a planted bug (--lock broken-…): each host of the campaign must have convicted it; may be repeated")
	return cmd
}

// remember adds a campaign to a store.
func (a *app) remember(store string, dirs, canaries []string, partial bool, undecided int) error {
	release, err := fleet.Hold(store)
	if err != nil {
		return err
	}
	defer func() { _ = release() }() // the process ends anyway
	known, err := fleet.KnownIn(store)
	if err != nil {
		return err
	}
	m, err := fleet.Remember(store)
	if err != nil {
		return err
	}
	c, err := fleet.Join(dirs)
	if err != nil {
		return err
	}
	runs, unknown, err := judgedRuns(c)
	if err != nil {
		return err
	}
	var doubts []string
	if len(c.Missing) > 0 && !partial {
		a.printf("not remembered, since it is not whole: never played: %s\n", firstOf(c.Missing, 20, ", "))
		return verdictExit(checker.Unknown)
	}
	switch told := say.Count(unknown, "run") + " could not be decided"; {
	case unknown*100 > undecided*len(c.Runs):
		doubts = append(doubts, told)
	case unknown > 0:
		a.printf("%s: within the %d %% of --undecided\n", told, undecided)
	}
	if len(canaries) > 0 {
		convicted, err := canaryRuns(canaries, c)
		if err != nil {
			return err
		}
		if hosts := fleet.Unconvicted(runs, convicted); len(hosts) > 0 {
			doubts = append(doubts, "the planted bug was not convicted on "+strings.Join(hosts, ", ")+": what is valid there shows nothing")
		}
	}
	tonight := m.Add(c, runs, time.Now())
	if len(c.Runs) > 0 {
		err = m.Write(store)
	}
	if err != nil {
		return harnessError{err}
	}
	a.printf("%s: %s judged, %s found\n", c.Command+" --seeds "+c.Seeds, say.Count(len(runs), "run"), say.Count(len(slices.DeleteFunc(slices.Clone(tonight), func(f fleet.Finding) bool { return f.Seen == 0 })), "kind"))
	alarm, err := a.printFindings(tonight, known)
	for _, doubt := range doubts {
		a.printf("unknown: %s\n", doubt)
	}
	if alarm {
		a.printf("what is known of a finding stands in %s; the rest is in %s\n", filepath.Join(store, fleet.KnownFile), filepath.Join(store, fleet.FindingsFile))
	}
	return cmp.Or(err, answer(alarm, len(doubts) > 0 || len(runs) == 0))
}

// printFindings prints the findings of a night, and tells whether one is new or worse.
func (a *app) printFindings(tonight []fleet.Finding, known []fleet.Known) (alarm bool, err error) {
	if len(tonight) == 0 {
		return false, nil
	}
	t := table{columns: []string{"finding", "now", "before", "first seen", "last seen", "state", "again"}}
	for i := range tonight {
		f := &tonight[i]
		rate := func(seen, of int) string {
			if of == 0 {
				return "-"
			}
			in := reports.Interval(seen, of)
			return fmt.Sprintf("%d of %d (%.0f-%.0f %%)", seen, of, 100*in[0], 100*in[1])
		}
		at := slices.IndexFunc(known, func(k fleet.Known) bool { return k.Covers(f.Key) })
		state, fails := "NEW", true
		switch {
		case f.Seen == 0:
			state, fails = "not seen", false
		case f.Worse():
			state = "WORSE"
		case at >= 0:
			state, fails = "known: "+known[at].Why, false
		case f.Nights > 1:
			state = "OPEN"
		}
		alarm = alarm || fails
		t.add(f.String(), rate(f.Seen, f.Of), rate(f.Before, f.OfBefore), f.First, f.Last, state, f.Command)
	}
	return alarm, t.text(a.stdout)
}

// judgedRuns are the runs of a campaign that have a verdict, and how many have none.
func judgedRuns(c fleet.Campaign) (runs []fleet.Judged, unknown int, err error) {
	for _, line := range c.Runs {
		run := fleet.Judged{Host: line.Host, Kinds: map[string]time.Duration{}}
		if c.Same {
			n, err := simulatedNoteOf(line.Run, line.Folder)
			if err != nil {
				return nil, 0, err
			}
			if n.Result.Granted == 0 {
				unknown++
				continue
			}
			run.Lock, run.Topology, run.Seed = n.Result.Case.Lock, n.Result.Case.Topology, n.Result.Case.Seed
			run.Command = fmt.Sprintf("%s --seeds %d", c.Command, run.Seed)
			for _, kind := range n.Result.Findings {
				run.Kinds[kind] = 0
			}
			runs = append(runs, run)
			continue
		}
		r, err := noted(line.Run, line.Folder, "")
		if err != nil {
			return nil, 0, err
		}
		if r.Verdict == checker.Unknown {
			unknown++
			continue
		}
		run.Lock, run.Topology, run.Faults, run.Seed, run.Command = r.Results.Lock, r.Results.Topology, r.Mix, r.Seed, r.Command
		run.Kinds = r.Results.After()
		runs = append(runs, run)
	}
	return runs, unknown, nil
}

// canaryRuns are the runs of campaigns with planted bugs, by the same program.
func canaryRuns(dirs []string, of fleet.Campaign) (all []fleet.Judged, err error) {
	for _, dir := range dirs {
		c, err := fleet.Join([]string{dir})
		if err != nil {
			return nil, fmt.Errorf("--canary: %w", err)
		}
		if c.Program != of.Program || c.Build != of.Build {
			return nil, fmt.Errorf("--canary: %s was played by another program than the campaign", dir)
		}
		runs, _, err := judgedRuns(c)
		if err != nil {
			return nil, fmt.Errorf("--canary: %w", err)
		}
		for _, r := range runs {
			if !strings.HasPrefix(r.Lock, "broken-") {
				return nil, fmt.Errorf("--canary: %s has runs of %s, which has no planted bug: want a lock broken-…, see lockchaos mutants", dir, r.Lock)
			}
		}
		all = append(all, runs...)
	}
	return all, nil
}
