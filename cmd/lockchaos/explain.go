package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// show explains what was found, and writes the part of the history that shows
// the first violation, as far as the user wants that: to the file that was
// named, for the first violation of all histories, and beside a run.
func (j *judging) show(report checker.Report, beside string) error {
	if j.explain && !j.json {
		j.explanations(report)
	}
	part := firstMinimal(report)
	if len(part) == 0 {
		return nil
	}
	if j.explain && beside != "" {
		if err := os.WriteFile(beside, lines(part), 0o644); err != nil {
			return harnessError{fmt.Errorf("write explanation: %w", err)}
		}
	}
	if j.minimal != "" {
		if err := os.WriteFile(j.minimal, lines(part), 0o644); err != nil {
			return fmt.Errorf("write --minimal: %w", err)
		}
		j.minimal = ""
	}
	return nil
}

// firstMinimal is the part of the history that shows the first violation that
// was explained.
func firstMinimal(report checker.Report) []history.Event {
	for _, r := range report.Results {
		for i := range r.Violations {
			if part := r.Violations[i].Minimal; len(part) > 0 {
				return part
			}
		}
	}
	return nil
}

func (j *judging) explanations(report checker.Report) {
	for _, r := range report.Results {
		j.printf("\n%s: %s, by %s, in %s and %s\n", r.Name, r.Verdict, r.Engine, r.Took, kilobytes(r.Memory))
		if len(r.Violations) == 0 {
			j.printf("  %s\n", say.OneLine(r.Summary))
		}
		told := min(len(r.Violations), checker.Explained)
		for i := range r.Violations[:told] {
			j.explanation(&r.Violations[i])
		}
		if more := r.Total - told; more > 0 {
			j.printf("  and %d more\n", more)
		}
	}
}

func (j *judging) explanation(v *checker.Violation) {
	j.printf("  %s: %s\n", v.Kind, say.OneLine(v.Explanation))
	if length := v.Until - v.From; length > 0 {
		j.printf("    for %g ms, from %.6f s until %.6f s\n", float64(length.Nanoseconds())/1e6, v.From.Seconds(), v.Until.Seconds())
	} else {
		j.printf("    at %.6f s\n", v.From.Seconds())
	}
	if len(v.Minimal) == 0 {
		return
	}
	j.printf("    The events that prove it, and what else must be there; this part alone shows it:\n")
	for _, e := range v.Minimal {
		mark := " "
		if slices.Contains(v.Events, e.Index) {
			mark = "*"
		}
		text, err := json.Marshal(e)
		if err != nil {
			continue // an event that was read can be written
		}
		j.printf("    %s %s\n", mark, say.Plain(string(text)))
	}
}

// lines are events as a history of their own.
func lines(events []history.Event) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i, e := range events {
		e.Index = int64(i)
		if err := enc.Encode(e); err != nil {
			continue // an event that was read can be written
		}
	}
	return []byte(say.Plain(b.String()))
}

func kilobytes(n int64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/1024), ".0") + " KB"
}
