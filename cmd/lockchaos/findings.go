package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/findings"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/internal/say"
)

// findingOptions are what a user can say of findings.
type findingOptions struct {
	cache         string
	all, markdown bool
	control       bool
	division      // of which --out and --resume alone can be said
}

func (a *app) findingsCommand() *cobra.Command {
	var o findingOptions
	cmd := &cobra.Command{
		Use:   "findings [NAME...]",
		Short: "List what was found in published libraries, or play it",
		Long: `Without a name, lists what lockchaos found in lock libraries. With names, or --all, installs each library with the package
manager of its language into a cache folder, and makes the runs that showed the finding, up to four
times as many where none of them does. A table at the end has the rates. What has ended is kept in the
folder --out, and --resume goes on there, and tries again what could not be installed.

Valid, and exit code 0: each was found again, and neither in a version that has it fixed nor with the correct
lock; invalid, and 1: one was otherwise; unknown, and 2: one could not be installed or judged.`,
		RunE: func(cmd *cobra.Command, wanted []string) error {
			all, err := findings.All()
			if err != nil {
				return asHarness(err)
			}
			switch {
			case o.resume && o.out == "":
				return errors.New("--resume: say with --out which folder has the results")
			case o.all && len(wanted) > 0:
				return errors.New("say names or --all")
			case o.markdown:
				a.printf("%s", findings.Markdown(all))
				return nil
			case len(wanted) == 0 && !o.all:
				return a.listFindings(all)
			case len(wanted) > 0:
				if all, err = findings.ByName(all, wanted); err != nil {
					return err
				}
			}
			return a.playFindings(cmd, all, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "play all findings")
	f.BoolVar(&o.control, "control", false, "also make the same runs with a correct lock (mutex, redlock)")
	f.StringVar(&o.cache, "cache", "", "the folder for the libraries (default: lockchaos/findings in the user's cache folder)")
	f.StringVar(&o.out, "out", "", "the folder in which results are kept as they come (default reports/runs/TIME-findings)")
	f.BoolVar(&o.resume, "resume", false, "go on with the folder --out that a process left which was killed or interrupted, and begin one where there is none")
	f.BoolVar(&o.markdown, "markdown", false, "print the table of docs/findings.md")
	return cmd
}

func (a *app) listFindings(all []findings.Finding) error {
	list := table{columns: []string{"name", "library", "version", "language", "kind", "found", "fixed in", "report"}}
	for _, f := range all {
		list.add(f.Name, f.Library.Name, f.Version, f.Language, f.Kind, f.Rate.String(), f.Fixed, f.Issue)
	}
	return list.text(a.stdout)
}

func (a *app) playFindings(cmd *cobra.Command, all []findings.Finding, o findingOptions) (verdict error) {
	program, err := os.Executable()
	if err != nil {
		return asHarness(err)
	}
	p := findings.Player{Program: program, Cache: o.cache, Log: a.stderr}
	h := fleet.Header{Command: "lockchaos findings" + changedFlags(cmd), Seeds: "1"}
	for _, f := range all {
		h.Cells = append(h.Cells, f.Name)
	}
	if err := o.makeDir("findings"); err != nil {
		return err
	}
	journal, err := o.open(h)
	if err != nil {
		return err
	}
	defer journal.Close()
	job := func(f findings.Finding) string { return fleet.Job(f.Name, 1) }
	list, seconds := table{columns: []string{"finding", "version", "found", "recorded", "fixed in", "found", "correct lock", "seconds", "verdict"}}, 0.0
	for _, f := range all {
		var r findings.Result
		lines := journal.Of(job(f))
		if last := len(lines) - 1; last >= 0 {
			if err := lines[last].Decode(&r); err != nil {
				return err
			}
		}
		if len(lines) == 0 || r.Uninstalled {
			a.printf("%s: %s %s: %s\n", f.Name, f.Library.Name, f.Version, f.Text)
			r = p.Play(cmd.Context(), f, f.Rate.Of, o.control)
			if cmd.Context().Err() != nil {
				return asHarness(context.Cause(cmd.Context()))
			}
			if err := journal.Append(fleet.Run{Job: job(f)}, r); err != nil {
				return asHarness(err)
			}
		}
		a.printf("%s: %s, found in %s %s\n", f.Name, r.Verdict(), r.Found, r.Failed)
		list.add(f.Name, f.Version, r.Found.String(), f.Rate.String(), f.Fixed, r.Fixed.String(), r.Control.String(), fmt.Sprint(r.Seconds), string(r.Verdict()))
		seconds += r.Seconds
		verdict = worst(verdict, verdictExit(r.Verdict()))
	}
	if err := list.text(a.stdout); err != nil {
		return err
	}
	a.printf("%s in %v\n", say.Count(len(all), "finding"), time.Duration(seconds)*time.Second)
	return verdict
}
