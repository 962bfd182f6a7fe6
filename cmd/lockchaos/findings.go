package main

import (
	"cmp"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/findings"
)

// findingOptions are what a user can say of findings.
type findingOptions struct {
	cache         string
	runs          int
	all, markdown bool
	control       bool
}

func (a *app) findingsCommand() *cobra.Command {
	var o findingOptions
	cmd := &cobra.Command{
		Use:   "findings [NAME...]",
		Short: "List what was found in published libraries, or play it",
		Long: `Without a name, lists what lockchaos found in lock libraries. With names, or --all, installs each library with the package
manager of its language into a cache folder, and makes the runs that showed the finding.

Exit code 0: each was found again, and not in a version that has it fixed; 1: one was not.`,
		RunE: func(cmd *cobra.Command, wanted []string) error {
			all, err := findings.All()
			if err != nil {
				return asHarness(err)
			}
			switch {
			case o.runs < 0 || o.all && len(wanted) > 0:
				return errors.New("say names or --all, and no negative number of runs")
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
	f.IntVar(&o.runs, "runs", 0, "number of runs, with the seeds from 1 on (default: as many as were recorded)")
	f.StringVar(&o.cache, "cache", "", "the folder for the libraries (default: lockchaos/findings in the user's cache folder)")
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

func (a *app) playFindings(cmd *cobra.Command, all []findings.Finding, o findingOptions) error {
	program, err := os.Executable()
	if err != nil {
		return asHarness(err)
	}
	p := findings.Player{Program: program, Cache: o.cache, Log: a.stderr}
	var verdict error
	for _, f := range all {
		runs := cmp.Or(o.runs, f.Rate.Of)
		a.printf("%s: %s %s: %s\n", f.Name, f.Library.Name, f.Version, f.Text)
		seen, err := p.Play(cmd.Context(), f, f.Packages, runs)
		if err != nil {
			return asHarness(err)
		}
		a.printf("  %s: found in %s, recorded %s\n", f.Version, seen, f.Rate)
		fixed := findings.Rate{}
		if f.FixedRate != nil {
			if fixed, err = p.Play(cmd.Context(), f, f.FixedPackages, runs); err != nil {
				return asHarness(err)
			}
			a.printf("  %s: found in %s, recorded %s\n", f.Fixed, fixed, *f.FixedRate)
		}
		if seen.Found == 0 || fixed.Found > 0 {
			verdict = verdictError(exitInvalid)
		}
		if o.control {
			if seen, err = p.PlayControl(cmd.Context(), f, runs); err != nil {
				return asHarness(err)
			}
			a.printf("  a correct lock: found in %s, recorded %s\n", seen, f.Control)
		}
	}
	return verdict
}
