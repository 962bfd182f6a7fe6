package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
)

func (a *app) mutantsCommand() *cobra.Command {
	var asJSON bool
	var out string
	cmd := &cobra.Command{
		Use:   "mutants [NAME]...",
		Short: "Test the checker: play locks with planted bugs, and their correct twins",
		Long: `Play locks with one planted bug each, by default all of them. This tests lockchaos,
not a lock. The property that a bug breaks must find it, and the same lock without
the bug must be valid under the same script. The exit code is 0 if all are as they
must be, 1 if a bug was not found or a correct lock was convicted, and 2 if a script
could not be played to its end.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := mutants.Mutants()
			if len(args) > 0 {
				chosen = nil
			}
			for _, name := range args {
				m, err := mutants.FindMutant(name)
				if err != nil {
					return err
				}
				chosen = append(chosen, m)
			}
			out, err := newRunDir(out, "mutants")
			if err != nil {
				return err
			}
			return a.playMutants(cmd.Context(), chosen, out, asJSON)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the folder for the runs (default under reports/runs)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the score as JSON instead of a table")
	return cmd
}

// A score is what came of one mutant and its twin.
type score struct {
	Name      string  `json:"name"`
	About     string  `json:"about"`
	Property  string  `json:"property"`
	Violation string  `json:"violation"`
	Result    string  `json:"result"` // caught, escaped or unknown
	Why       string  `json:"why,omitempty"`
	Seconds   float64 `json:"seconds"`
	// Twin is the verdict on the lock without the bug, and TwinWhy what was wrong
	// if it is not valid.
	Twin        checker.Verdict `json:"twin"`
	TwinWhy     string          `json:"twin_why,omitempty"`
	TwinSeconds float64         `json:"twin_seconds"`
}

// The results of a mutant.
const (
	caught  = "caught"
	escaped = "escaped"
	unknown = "unknown"
)

// playMutants plays mutants and their twins, one after the other, and prints the
// score.
func (a *app) playMutants(ctx context.Context, chosen []mutants.Mutant, out string, asJSON bool) error {
	scores := make([]score, 0, len(chosen))
	began := time.Now()
	var result error
	for i, m := range chosen {
		fmt.Fprintf(a.stderr, "%d of %d: %s\n", i+1, len(chosen), m.Name)
		s, err := a.playMutant(ctx, m, out)
		if err != nil {
			return err
		}
		if ctx.Err() != nil { // what was cut short counts for nothing
			break
		}
		scores = append(scores, s)
		result = worst(result, answer(s.Result == escaped || s.Twin == checker.Invalid, s.Result == unknown || s.Twin != checker.Valid))
	}
	if err := a.printScores(scores, len(chosen), asJSON); err != nil {
		return harnessError{err}
	}
	fmt.Fprintf(a.stderr, "\nin %.0f s; reports in %s\n", time.Since(began).Seconds(), out)
	return result
}

func (a *app) playMutant(ctx context.Context, m mutants.Mutant, out string) (score, error) {
	s := score{Name: m.Name, About: m.About, Property: m.Property(), Violation: m.Violation}
	play := func(dir string, twin bool) (campaign.Played, error) {
		r, err := a.player(&serverFlags{backend: processBackend}).Play(ctx, campaign.Run{
			Config: harness.Config{Dir: filepath.Join(out, dir), Command: "lockchaos mutants " + m.Name}, Store: topologies.StoreRedis,
			Make: func(ctx context.Context, c harness.Config) error { return m.Run(ctx, c, twin) },
		})
		return r, asHarness(errors.Join(r.Failed, err))
	}
	bug, err := play(m.Name, false)
	if err != nil {
		return s, err
	}
	s.Result, s.Seconds, s.Why = escaped, bug.Took.Seconds(), reports.Summarize(bug.Input).Story.Headline
	switch {
	case bug.Run.AbortReason != "":
		s.Result = unknown
	case m.Caught(bug.Report):
		s.Result, s.Why = caught, ""
	}
	twin, err := play(m.Name+"-twin", true)
	if err != nil {
		return s, err
	}
	s.Twin, s.TwinSeconds = twin.Report.Verdict, twin.Took.Seconds()
	if s.Twin != checker.Valid {
		s.TwinWhy = reports.Summarize(twin.Input).Story.Headline
	}
	return s, nil
}

// printScores prints a row for each mutant, and how many were caught.
func (a *app) printScores(scores []score, all int, asJSON bool) error {
	found, twins := 0, 0
	for _, s := range scores {
		if s.Result == caught {
			found++
		}
		if s.Twin == checker.Valid {
			twins++
		}
	}
	if asJSON {
		return a.json(struct {
			Caught int     `json:"caught"`
			Twins  int     `json:"valid_twins"`
			Of     int     `json:"of"`
			Scores []score `json:"mutants"`
		}{found, twins, all, scores})
	}
	shown := table{columns: []string{"bug", "caught by", "result", "time", "twin", "time"}}
	for _, s := range scores {
		shown.add(s.Name, s.Property+": "+s.Violation, s.Result, fmt.Sprintf("%.1fs", s.Seconds), string(s.Twin), fmt.Sprintf("%.1fs", s.TwinSeconds))
	}
	if err := shown.text(a.stdout); err != nil {
		return err
	}
	for _, s := range scores {
		if s.Why != "" {
			a.printf("\n%s: %s\n", s.Name, s.Why)
		}
		if s.TwinWhy != "" {
			a.printf("\nthe twin of %s: %s\n", s.Name, s.TwinWhy)
		}
	}
	a.printf("\n%d/%d caught; %d/%d correct twins valid\n", found, all, twins, all)
	return nil
}
