package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

func (a *app) mergeCommand() *cobra.Command {
	var out string
	var partial bool
	cmd := &cobra.Command{
		Use:   "merge --out DIR SHARD...",
		Short: "Join the folders of the shards of a campaign",
		Long: `Join the folders that lockchaos run --seeds and lockchaos simulate wrote with --shard: the
new folder has the files of a campaign that one process played, and the run directories. Shards of
other programs or commands are refused. The exit code is that of the worst run; where a seed
was never played it is 2 at best.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, dirs []string) error {
			if out == "" {
				return errors.New("--out: name a new folder")
			}
			c, err := fleet.Join(dirs)
			if err != nil {
				return err
			}
			if err := beside(out, c.Folders); err != nil {
				return err
			}
			if err := emptyDir(out); err != nil {
				return err
			}
			if partial {
				c.Missing = nil
			}
			if c.Same {
				return a.mergeSimulated(c, out)
			}
			return a.mergeRuns(c, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the folder for the joint files and all run directories")
	cmd.Flags().BoolVar(&partial, "partial", false, "that seeds were never played is no reason for exit code 2")
	return cmd
}

// mergeRuns joins runs on real servers.
func (a *app) mergeRuns(c fleet.Campaign, out string) error {
	s := newSummary(len(c.Runs) + len(c.Missing))
	taken := map[string]bool{}
	for _, line := range c.Runs {
		dir := line.Dir
		for n := 2; dir != "" && taken[dir]; n++ { // the same seed again
			dir = fmt.Sprintf("%s-%d", line.Dir, n)
		}
		r, err := noted(line.Run, out, dir)
		if err != nil {
			return err
		}
		if dir != "" {
			taken[dir] = true
			if err := os.CopyFS(filepath.Join(out, dir), os.DirFS(filepath.Join(line.Folder, line.Dir))); err != nil {
				return harnessError{err}
			}
		}
		s.add(r)
	}
	s.sort()
	if err := reports.WriteJoint(out, s.joint, s.Planned); err != nil {
		return asHarness(err)
	}
	a.printf("%s\n%s: %d valid, %d unknown, %d invalid\n", c.Command+" --seeds "+c.Seeds, say.Count(len(c.Runs), "run"), s.Valid, s.Unknown, s.Invalid)
	a.printf("faults that took effect: %s\n", counted(s.Landed))
	return worst(s.exit(), a.printMerge(c, out))
}

// mergeSimulated joins simulated searches.
func (a *app) mergeSimulated(c fleet.Campaign, out string) error {
	jobs, err := c.Jobs()
	if err != nil {
		return err
	}
	order := make(map[string]int, len(jobs))
	for i, job := range jobs {
		order[job] = i
	}
	s := simulatedSearch{Search: searchRandom, Kinds: []*simulatedKind{}}
	for _, line := range c.Runs {
		n, err := simulatedNoteOf(line.Run, line.Folder)
		if err != nil {
			return err
		}
		for _, kind := range n.Result.Findings { // each names a folder
			if kind == "." || kind != filepath.Base(kind) || !filepath.IsLocal(kind) {
				return fmt.Errorf("%s: %s: %q is no kind of violation", filepath.Join(line.Folder, fleet.JournalFile), line.Job, kind)
			}
		}
		s.Topology, s.Lock = n.Result.Case.Topology, n.Result.Case.Lock
		s.Repeated, s.Exact = s.Repeated+n.Again, s.Exact || n.Exact
		s.add(order[line.Job], n.Result)
	}
	s.sort()
	for _, k := range s.Kinds {
		for _, from := range c.Folders { // also of a second try of the shard, where the first was ended before
			if k.Dir != "" {
				break
			}
			if err := k.take(from, out); err != nil {
				return err
			}
		}
	}
	if err := history.WriteFile(filepath.Join(out, searchFile), s.write); err != nil {
		return asHarness(err)
	}
	a.printKinds(s)
	return worst(s.exit(), a.printMerge(c, out))
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
	if len(c.Missing) > 0 || len(c.Runs) == 0 {
		return verdictError(exitUnknown)
	}
	return nil
}

// firstOf names the first of many, and how many more there are.
func firstOf(names []string, most int, separator string) string {
	first := strings.Join(names[:min(len(names), most)], separator)
	if more := len(names) - most; more > 0 {
		first += fmt.Sprintf("%sand %d more", separator, more)
	}
	return first
}

// beside refuses a folder inside one of those whose run directories are to be copied into it.
func beside(out string, folders []string) error {
	dir, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		at, err := os.Stat(dir)
		for _, folder := range folders {
			if shard, wrong := os.Stat(folder); err == nil && wrong == nil && os.SameFile(at, shard) {
				return fmt.Errorf("--out %s is inside the shard %s: name a folder beside it", out, folder)
			}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
