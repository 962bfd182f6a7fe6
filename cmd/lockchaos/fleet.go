package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/internal/seeds"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
)

// A division is what a user can say of the seeds of a campaign, and of the processes that play them.
type division struct {
	seeds    string
	shard    string
	resume   bool
	judgedOK bool

	all  []uint64 // of the seeds
	part fleet.Shard
}

func (d *division) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.shard, "shard", "", "I/N: play every Nth run of the campaign, from the Ith on; @VARIABLE/N takes the index, which counts from 0, from an environment variable; lockchaos merge joins the folders (--out)")
	f.BoolVar(&d.resume, "resume", false, "go on with the folder --out that a process left which was killed or interrupted, and begin one where there is none")
	f.BoolVar(&d.judgedOK, "judged-is-ok", false, "exit with 0 whatever the verdict, for engines that play a task again that fails: only a run that could not be made or judged fails then")
}

// check reads --seeds and --shard, and joins what is wrong.
func (d *division) check(out string) (err error) {
	var unread error
	d.all, unread = seeds.Parse(d.seeds)
	d.part, err = fleet.ParseShard(d.shard, os.LookupEnv)
	return errors.Join(refuse(unread != nil, "--seeds: %w", unread), refuse(err != nil, "--shard: %w", err),
		refuse(d.shard != "" && out == "", "--shard: say with --out which folder has the runs"),
		refuse(d.resume && out == "", "--resume: say with --out which folder has the runs"))
}

// verdict is what the command ends with: with --judged-is-ok no verdict is an error.
func (d *division) verdict(err error) error {
	if code := exitCode(err); d.judgedOK && (code == exitInvalid || code == exitUnknown) {
		return nil
	}
	return err
}

// dir makes the folder that was chosen, or finds it again; without a name it makes one of the time and of what is played.
func (d *division) dir(chosen string, what ...string) (string, error) {
	if d.resume && exists(filepath.Join(chosen, fleet.JournalFile)) {
		return chosen, nil
	}
	return newRunDir(chosen, what...)
}

// open opens the journal of a folder, for a campaign of this command with some locks.
func (d *division) open(dir string, h fleet.Header, locks ...string) (*fleet.Journal, error) {
	var commands []string
	for _, name := range locks {
		if command, driver := strings.CutPrefix(name, harness.ProgramPrefix); driver {
			commands = append(commands, command)
		}
	}
	var err error
	h.Program, h.Shard = version(), d.part.String()
	if h.Build, err = fleet.Build(); err == nil {
		h.Files, err = fleet.Files(commands...)
	}
	if err != nil {
		return nil, harnessError{err}
	}
	j, err := fleet.Open(dir, h, d.resume)
	if errors.As(err, new(syscall.Errno)) { // such as that another process plays there: the next try may have more luck
		err = harnessError{err}
	}
	return j, err
}

// noteJob appends a job's result to a journal.
func noteJob(j *fleet.Journal, r fleet.Run, result any) error {
	b, err := json.Marshal(result)
	if err != nil {
		return harnessError{fmt.Errorf("note a run: %w", err)}
	}
	r.Result = b
	return asHarness(j.Append(r))
}

// noted is the run of a line, whose run directory is in a folder, by that name.
func noted(line fleet.Run, folder, dir string) (r seedResult, err error) {
	if err = line.Decode(folder, &r); err != nil {
		return r, err
	}
	if r.Results == nil || r.Results.Verdict != r.Verdict || r.Cell != nil && r.Cell.Verdict != r.Verdict || !strings.HasSuffix(line.Job, fleet.Job("", r.Seed)) {
		return r, fmt.Errorf("%s: %s: its result is of another run", filepath.Join(folder, fleet.JournalFile), line.Job)
	}
	if r.Dir = ""; dir != "" {
		r.Dir = filepath.Join(folder, dir)
	}
	if r.Cell != nil {
		r.Cell.Dir = dir
	}
	return r, nil
}

// aside renames a run directory to DIR.WHY-1, or the next number that is free.
func aside(dir, why string) (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.%s-%d", dir, why, n)
		if exists(name) {
			continue
		}
		if err := os.Rename(dir, name); err != nil {
			return "", harnessError{fmt.Errorf("set a run directory aside: %w", err)}
		}
		return name, nil
	}
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
			if c.Same {
				return a.mergeSimulated(cmd.Context(), c, out)
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
	plan, err := fleet.MatrixOf(c.Header)
	if err != nil {
		return err
	}
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
		if plan != nil {
			err = plan.Add(line.Job, r.Seed, r.Cell)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", line.Folder, err)
		}
	}
	s.sort()
	if plan == nil {
		err = reports.WriteJoint(out, s.joint, s.Planned)
	} else {
		m := plan.Joint(c.Header, s.joint, s.Planned)
		err = errors.Join(reports.WriteMatrix(out, m), reports.WriteMatrixText(a.stdout, m))
	}
	if err != nil {
		return asHarness(err)
	}
	a.printf("%s\n%s: %d valid, %d unknown, %d invalid\n", c.Command+" --seeds "+c.Seeds, say.Count(len(c.Runs), "run"), s.Valid, s.Unknown, s.Invalid)
	a.printf("faults that took effect: %s\n", counted(s.Landed))
	return worst(s.exit(), a.printMerge(c, out))
}

// mergeSimulated joins simulated searches.
func (a *app) mergeSimulated(ctx context.Context, c fleet.Campaign, out string) error {
	jobs, err := c.Jobs()
	if err != nil {
		return err
	}
	order := make(map[string]int, len(jobs))
	for i, job := range jobs {
		order[job] = i
	}
	s := &simulation.Search{Search: simulation.SearchRandom, Kinds: []*simulation.Kind{}}
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
		s.Add(order[line.Job], n.Result)
	}
	s.Sort()
	for _, k := range s.Kinds {
		for _, from := range c.Folders { // also of a second try of the shard, where the first was ended before
			if k.Dir != "" {
				break
			}
			if err := takeKind(ctx, k, from, out); err != nil {
				return err
			}
		}
	}
	if err := history.WriteFile(filepath.Join(out, searchFile), s.Write); err != nil {
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
