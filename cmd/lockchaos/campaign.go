package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/internal/seeds"
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
			if !campaign.Exists(store) {
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
	known, err := campaign.KnownIn(store)
	if err != nil {
		return err
	}
	m, err := campaign.Remember(store)
	if err != nil {
		return err
	}
	c, err := fleet.Join(dirs)
	if err != nil {
		return err
	}
	runs, unknown, err := campaign.JudgedRuns(c)
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
		convicted, err := campaign.CanaryRuns(canaries, c)
		if err != nil {
			return fmt.Errorf("--canary: %w", err)
		}
		if hosts := campaign.Unconvicted(runs, convicted); len(hosts) > 0 {
			doubts = append(doubts, "the planted bug was not convicted on "+strings.Join(hosts, ", ")+": what is valid there shows nothing")
		}
	}
	tonight, seen := m.Add(c, runs, time.Now()), 0
	if len(c.Runs) > 0 {
		err = m.Write(store)
	}
	if err != nil {
		return harnessError{err}
	}
	for i := range tonight {
		if tonight[i].Seen > 0 {
			seen++
		}
	}
	a.printf("%s: %s judged, %s found\n", c.Repeat(), say.Count(len(runs), "run"), say.Count(seen, "kind"))
	alarm, err := a.printFindings(tonight, known)
	for _, doubt := range doubts {
		a.printf("unknown: %s\n", doubt)
	}
	if alarm {
		a.printf("what is known of a finding stands in %s; the rest is in %s\n", filepath.Join(store, campaign.KnownFile), filepath.Join(store, campaign.FindingsFile))
	}
	return cmp.Or(err, answer(alarm, len(doubts) > 0 || len(runs) == 0))
}

// printFindings prints the findings of a night, and tells whether one is new or worse.
func (a *app) printFindings(tonight []campaign.Finding, known []campaign.Known) (alarm bool, err error) {
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
		at := slices.IndexFunc(known, func(k campaign.Known) bool { return k.Covers(f.Key) })
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

// A division is what a user can say of the seeds of a campaign, of the processes that play them, and of their folder.
type division struct {
	seeds    string
	shard    string
	out      string
	resume   bool
	judgedOK bool
	parallel int

	all    []uint64 // of the seeds
	part   fleet.Shard
	before bool // the folder was there before
}

func (d *division) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.shard, "shard", "", "I/N: play every Nth run of the campaign, from the Ith on; @VARIABLE/N takes the index, which counts from 0, from an environment variable; lockchaos merge joins the folders (--out)")
	f.BoolVar(&d.resume, "resume", false, "go on with the folder --out that a process left which was killed or interrupted, and begin one where there is none")
	f.BoolVar(&d.judgedOK, "judged-is-ok", false, "exit with 0 whatever the verdict, for engines that play a task again that fails: only a run that could not be made or judged fails then")
}

// check reads --seeds and --shard, and joins what is wrong.
func (d *division) check() (err error) {
	var unread error
	d.all, unread = seeds.Parse(d.seeds)
	d.part, err = fleet.ParseShard(d.shard, os.LookupEnv)
	return errors.Join(refuse(unread != nil, "--seeds: %w", unread), refuse(err != nil, "--shard: %w", err),
		refuse(d.parallel < 1, "--parallel must be at least 1, not %d", d.parallel),
		refuse(d.shard != "" && d.out == "", "--shard: say with --out which folder has the runs"),
		refuse(d.resume && d.out == "", "--resume: say with --out which folder has the runs"))
}

// verdict is what the command ends with: with --judged-is-ok no verdict is an error.
func (d *division) verdict(err error) error {
	if code := exitCode(err); d.judgedOK && (code == exitInvalid || code == exitUnknown) {
		return nil
	}
	return err
}

// makeDir makes the folder that was chosen, or finds it again; without a name it makes one of the time and of what is played.
func (d *division) makeDir(what ...string) (err error) {
	d.before = campaign.Exists(d.out)
	if !d.resume || !campaign.Exists(filepath.Join(d.out, fleet.JournalFile)) {
		d.out, err = newRunDir(d.out, what...)
	}
	return err
}

// open opens the journal of the folder, for a campaign of this command with some locks.
func (d *division) open(h fleet.Header, locks ...string) (*fleet.Journal, error) {
	var commands []string
	for _, name := range locks {
		if command, driver := strings.CutPrefix(name, harness.ProgramPrefix); driver {
			commands = append(commands, command)
		}
	}
	h.Program, h.Shard = version(), d.part.String()
	if err := h.Sign(commands...); err != nil {
		return nil, asHarness(err)
	}
	j, err := fleet.Open(d.out, h, d.resume)
	if errors.As(err, new(syscall.Errno)) { // such as that another process plays there: the next try may have more luck
		err = asHarness(err)
	}
	return j, err
}

func (a *app) mergeCommand() *cobra.Command {
	var out string
	var partial bool
	cmd := &cobra.Command{
		Use:   "merge --out DIR SHARD...",
		Short: "Join the folders of the shards of a campaign",
		Long: `Join the folders that lockchaos run --seeds, matrix and simulate wrote with --shard: the
new folder has the files of a campaign that one process played, and the run directories. Shards of
other programs or commands are refused. The exit code is that of the worst run; where a seed
was never played it is 2 at best.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if out == "" {
				return errors.New("--out: name a new folder")
			}
			c, err := fleet.Join(dirs)
			if err != nil {
				return err
			}
			if err = emptyDir(out); err == nil {
				err = beside(out, c.Folders)
			}
			if err != nil {
				return err
			}
			if partial && len(c.Missing) > 0 {
				a.printf("never played, as --partial lets it be: %s\n", firstOf(c.Missing, 20, ", "))
				c.Missing = nil
			}
			join := a.mergeRuns
			if c.Same {
				join = a.mergeSimulated
			}
			return join(cmd.Context(), c, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the folder for the joint files and all run directories")
	cmd.Flags().BoolVar(&partial, "partial", false, "that seeds were never played is no reason for exit code 2")
	return cmd
}

// mergeRuns joins runs on real servers.
func (a *app) mergeRuns(_ context.Context, c fleet.Campaign, out string) error {
	r, err := campaign.Read(c)
	if err != nil {
		return err
	}
	s, err := r.Write(out, len(c.Runs)+len(c.Missing))
	if err == nil && s.Matrix != nil {
		err = reports.WriteMatrixText(a.stdout, *s.Matrix)
	}
	if err != nil {
		return asHarness(err)
	}
	a.printf("%s\n%s: %d valid, %d unknown, %d invalid\n", c.Repeat(), say.Count(len(c.Runs), "run"), s.Valid, s.Unknown, s.Invalid)
	a.printf("faults that took effect: %s\n", counted(s.Landed))
	return worst(verdictOf(s), a.printMerge(c, out))
}

// mergeSimulated joins simulated searches.
func (a *app) mergeSimulated(ctx context.Context, c fleet.Campaign, out string) error {
	s, err := campaign.JoinSearch(c)
	if err != nil {
		return err
	}
	if err := campaign.WriteSearch(ctx, s, out, replayOf); err != nil {
		return asHarness(err)
	}
	a.printKinds(s)
	return worst(searched(s), a.printMerge(c, out))
}

// printMerge says how whole the campaign is. One that is not whole is unknown.
func (a *app) printMerge(c fleet.Campaign, out string) error {
	for _, dir := range c.Cut {
		a.printf("%s ends in the middle of a line: that run counts as never played\n", filepath.Join(dir, fleet.JournalFile))
	}
	if c.Repeated > 0 {
		a.printf("%s of a seed that has another counted as well\n", say.Count(c.Repeated, "run"))
	}
	if len(c.Missing) > 0 {
		a.printf("never played: %s\n", firstOf(c.Missing, 20, ", "))
	}
	a.printf("joined in %s\n", out)
	return answer(false, len(c.Missing) > 0 || len(c.Runs) == 0)
}

// firstOf names the first of many, and how many more there are.
func firstOf(names []string, most int, separator string) string {
	first := strings.Join(names[:min(len(names), most)], separator)
	if more := len(names) - most; more > 0 {
		first += fmt.Sprintf("%sand %d more", separator, more)
	}
	return first
}

// beside refuses a new folder inside one of those whose run directories are to be copied into it, and removes it.
func beside(out string, folders []string) error {
	at, err := realPath(out)
	for _, folder := range folders {
		of, wrong := realPath(folder)
		if err = errors.Join(err, wrong); err == nil && strings.HasPrefix(at+string(filepath.Separator), of+string(filepath.Separator)) {
			return errors.Join(fmt.Errorf("--out %s is inside the shard %s: name a folder beside it", out, folder), os.Remove(out))
		}
	}
	return err
}

// realPath is the path of a folder from the root, without links.
func realPath(dir string) (string, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return path, err
}
