package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/fleet"
)

// A division is what a user can say of a campaign that several processes play.
type division struct {
	shard    string
	resume   bool
	judgedOK bool

	part fleet.Shard
}

func (d *division) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.shard, "shard", "", "I/N: play every Nth run of the campaign, from the Ith on; @VARIABLE/N takes the index, which counts from 0, from an environment variable; lockchaos merge joins the folders (--out)")
	f.BoolVar(&d.resume, "resume", false, "go on with the folder --out that a process left which was killed or interrupted, and begin one where there is none")
	f.BoolVar(&d.judgedOK, "judged-is-ok", false, "exit with 0 whatever the verdict, for engines that play a task again that fails: only a run that could not be made or judged fails then")
}

// check reads --shard, and joins what is wrong.
func (d *division) check(out string) (err error) {
	d.part, err = fleet.ParseShard(d.shard, os.LookupEnv)
	return errors.Join(refuse(err != nil, "--shard: %w", err),
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

// dir makes the folder, or finds it again.
func (d *division) dir(dir string) error {
	if d.resume && exists(filepath.Join(dir, fleet.JournalFile)) {
		return nil
	}
	return emptyDir(dir)
}

// open opens the journal of a folder, for a campaign of this command.
func (d *division) open(dir string, h fleet.Header) (*fleet.Journal, error) {
	var err error
	h.Program, h.Shard = version(), d.part.String()
	if h.Build, err = fleet.Build(); err != nil {
		return nil, harnessError{err}
	}
	if d.resume {
		return fleet.Resume(dir, h)
	}
	j, err := fleet.Create(dir, h)
	return j, asHarness(err)
}

// note appends a run to a journal.
func note(j *fleet.Journal, r seedResult) error {
	r.Dir = base(r.Dir)
	return noteJob(j, fleet.Run{Job: fleet.Job("", r.Seed), LeftOut: r.leftOut, Dir: r.Dir}, r)
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
	if err = json.Unmarshal(line.Result, &r); err == nil && r.Results == nil {
		err = errors.New("it has no results")
	}
	if err != nil {
		return r, fmt.Errorf("%s: %s: %w", filepath.Join(folder, fleet.JournalFile), line.Job, err)
	}
	if r.Dir = ""; dir != "" {
		r.Dir = filepath.Join(folder, dir)
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
