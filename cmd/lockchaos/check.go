package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/importers"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
)

// A judging is what the user wants to know of recorded histories.
type judging struct {
	*app
	judge.History

	json, explain bool
	minimal, out  string // out is where the reports of a history go
	undecidedOK   bool
	log           *importers.Log // that was read last, if it is one
}

func (a *app) checkCommand() *cobra.Command {
	j := &judging{app: a}
	cmd := &cobra.Command{
		Use:   "check HISTORY.jsonl... | RUNDIR... | -",
		Short: "Judge recorded histories, of lockchaos or of any other program",
		Long: `Judge recorded histories: files of JSON lines, plain or gzip, run directories,
or - for standard input. --from log judges what clients have logged of a lock, as
CSV or JSON with wall clocks (docs/logs.md). A run directory is judged again, and its reports are
rewritten. A file history.jsonl with a run.json beside it is judged together with
that run.json, and nothing is rewritten. Standard input is judged alone. A long
history without a run.json is read into little memory, and nothing is told but its verdict.
docs/history-format.md defines a history, docs/what-is-checked.md the properties.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			j.ClocksKnown, j.Explain, j.Keep = cmd.Flags().Changed("clock-error"), j.explain || j.minimal != "", j.out != ""
			if err := j.validate(args); err != nil {
				return err
			}
			var result error
			for i, arg := range args {
				if i > 0 && !j.json {
					a.printf("\n")
				}
				err := judge.Bounded(cmd.Context(), func(ctx context.Context) error { return j.one(ctx, cmd.InOrStdin(), arg) })
				if cause := context.Cause(cmd.Context()); cause != nil {
					return cause
				}
				if beyond, ok := errors.AsType[judge.MemoryError](err); ok {
					return worst(result, j.beyondMemory(beyond, arg, args[i+1:]))
				}
				if exitCode(err) == exitUsage {
					sayError(a.stderr, err, args)
					err = verdictError(exitUsage)
				}
				result = worst(result, err)
			}
			return result
		},
	}
	f := cmd.Flags()
	f.BoolVar(&j.json, "json", false, "print results.json instead of the summary")
	f.BoolVar(&j.explain, "explain", false, "print the events that prove each violation, and the least part of the history that shows it; with --json, add that part")
	f.StringVar(&j.minimal, "minimal", "", "write the least part of the history that shows the first violation to this file, as a history")
	f.StringVar(&j.out, "out", "", "write all reports of a history into this folder, as of a run, with a copy of the history")
	f.DurationVar(&j.ClockError, "clock-error", 0, "how wrong each clock may be that stamped a history of several machines, such as 50ms: only what holds in spite of it is valid or invalid")
	f.BoolVar(&j.undecidedOK, "undecided-is-ok", false, "exit with 0, too, if all that is not decided are holds that are closer than --clock-error can tell")
	f.StringVar(&j.From, "from", judge.FromLockchaos, "the format: lockchaos, log for CSV or JSON of what clients logged (docs/logs.md), or jepsen for EDN with :acquire and :release")
	return cmd
}

// validate refuses what can't be meant.
func (j *judging) validate(args []string) error {
	wrong := errors.Join(
		refuse(!slices.Contains(judge.Formats(), j.From), "%w", names.Unknown("source", j.From, judge.Formats())),
		refuse(j.out != "" && len(args) > 1, "--out is for one history: name one, or leave it out"),
		refuse(j.ClockError < 0, "--clock-error %v: give a time such as 50ms", j.ClockError),
		refuse(j.undecidedOK && j.ClockError <= 0, "--undecided-is-ok is for clocks that may be wrong: give --clock-error, too"),
		refuse(j.ClockError > maxClockError, "--clock-error %v: give %v at the most", j.ClockError, maxClockError))
	for _, arg := range args {
		ofRun, _ := j.ofRun(arg)
		info, err := os.Stat(arg)
		isDir := err == nil && info.IsDir()
		wrong = errors.Join(wrong,
			refuse(j.out != "" && isDir, "--out is for a history alone: %s is a run directory, and its reports are rewritten there", arg),
			refuse(j.ClockError > 0 && (ofRun || isDir), "--clock-error is for histories of several clocks, and %s is of a run, which has one", arg))
	}
	if wrong == nil && j.out != "" {
		return emptyDir(j.out)
	}
	return wrong
}

// maxClockError is beyond any clock that tells the time.
const maxClockError = 24 * time.Hour

// beyondMemory tells that a history takes too much memory to be judged, and which
// ones were not looked at after it.
func (j *judging) beyondMemory(err judge.MemoryError, arg string, left []string) error {
	r := reports.Results{Version: reports.ResultsVersion, Verdict: checker.Unknown, Properties: []checker.Result{}, Faults: []reports.Fault{}}
	r.Story.Headline = "It could not be decided: " + err.Error()
	if !j.json {
		j.printf("%s\n", say.OneLine(filepath.Clean(arg)))
	}
	if len(left) > 0 {
		fmt.Fprintf(j.stderr, "lockchaos: not judged for that reason: %s\n", say.OneLine(strings.Join(left, ", ")))
	}
	return worst(verdictError(exitUnknown), j.print(r, "", j.json))
}

// one judges what an argument names.
func (j *judging) one(ctx context.Context, stdin io.Reader, arg string) error {
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		return j.ofDir(ctx, arg, true)
	}
	ofRun, long := j.ofRun(arg)
	if ofRun && !long {
		return j.ofDir(ctx, filepath.Dir(arg), false)
	}
	name, r := "standard input", stdin
	if arg != "-" {
		f, err := os.Open(arg)
		if err != nil {
			return fmt.Errorf("read history: %w", err)
		}
		defer f.Close()
		name, r = arg, f
	}
	in, results, log, err := j.Read(ctx, r)
	j.log = log
	if j.log != nil {
		for _, note := range j.log.Notes {
			fmt.Fprintf(j.stderr, "lockchaos: %s: %s\n", say.OneLine(name), say.OneLine(note))
		}
	}
	if err != nil {
		if j.From == judge.FromLockchaos && strings.EqualFold(filepath.Ext(name), ".csv") {
			err = fmt.Errorf("%w; CSV of what clients logged is read with --from log", err)
		}
		return fmt.Errorf("read %s: %w", name, err)
	}
	if !j.json {
		if name = filepath.Clean(name); long {
			name += ", without the " + reports.RunFile + " beside it, for which it is too long"
		}
		if zero := in.Run.Started; !zero.IsZero() {
			name += ", in which 0 s is " + zero.UTC().Format("2006-01-02 15:04:05.999999999 UTC")
		}
		j.printf("%s\n", say.OneLine(name))
	}
	return j.tell(in, "", j.print(results, "", j.json))
}

// showLines names the lines of a log that prove the first violations.
func (j *judging) showLines(report checker.Report) {
	const most = 3
	shown := 0
	for i := range report.Results {
		for _, v := range report.Results[i].Violations {
			if j.log == nil || shown == most {
				return
			}
			shown++
			for _, event := range v.Events {
				if line := j.log.Line(event); line != "" {
					j.printf("  %-10s %s\n", v.Kind, say.OneLine(line))
				}
			}
		}
	}
}

// minimalFile is where the part of a run's history goes that shows its first
// violation, if the user wants it explained.
const minimalFile = "minimal.jsonl"

// ofDir judges a run again, with what its record says. If the directory was named, and not its history alone, its reports
// are written anew.
func (j *judging) ofDir(ctx context.Context, dir string, named bool) error {
	in, err := judge.Read(ctx, dir)
	if err != nil {
		return err
	}
	shown, beside := "", ""
	if named {
		shown, beside = dir, filepath.Join(dir, minimalFile)
		if err := judge.Write(ctx, dir, in); err != nil {
			return asHarness(err)
		}
	}
	if j.Explain {
		checker.Explain(ctx, in.History, &in.Report)
	}
	if !named && !j.json {
		j.printf("%s, with the %s beside it\n", say.OneLine(filepath.Join(dir, reports.HistoryFile)), reports.RunFile)
	}
	return j.tell(in, beside, j.print(reports.Summarize(in), shown, j.json))
}

// tell writes what else was asked for of a history whose summary was printed, or could not be, and returns its verdict.
func (j *judging) tell(in reports.Input, beside string, printed error) error {
	if printed != nil {
		return printed
	}
	if !j.json {
		j.showLines(in.Report)
	}
	if j.out != "" {
		if err := judge.Keep(j.out, version(), in); err != nil {
			return asHarness(err)
		}
		if !j.json {
			j.printf("  report     %s\n", say.OneLine(filepath.Join(j.out, reports.HTMLFile)))
		}
	}
	if err := j.show(in.Report, beside); err != nil {
		return err
	}
	pairs := in.Report.TooClose()
	if pairs > 0 && !j.json {
		j.printf("  undecided  no overlap beyond the clock error; %s of holds too close to decide\n", say.Count(pairs, "pair"))
	}
	if pairs > 0 && j.undecidedOK {
		return nil
	}
	return verdictExit(in.Report.Verdict)
}

// ofRun reports whether a file is the history of a run, with its record beside it,
// and whether it is too long to be judged with that.
func (j *judging) ofRun(path string) (is, long bool) {
	if j.From != judge.FromLockchaos || filepath.Base(path) != reports.HistoryFile || !history.Dir(filepath.Dir(path)).Exists() {
		return false, false
	}
	info, err := os.Stat(path)
	return err == nil, err == nil && info.Size() > judge.LongBytes
}

// show explains what was found, and writes the part of the history that shows
// the first violation, as far as the user wants that: to the file that was
// named, for the first violation of all histories, and beside a run.
func (j *judging) show(report checker.Report, beside string) error {
	if j.explain && !j.json {
		j.explanations(report)
	}
	part := judge.Minimal(report)
	if len(part) == 0 {
		return nil
	}
	if j.explain && beside != "" {
		if err := os.WriteFile(beside, part, 0o644); err != nil {
			return harnessError{fmt.Errorf("write explanation: %w", err)}
		}
	}
	if j.minimal != "" {
		if err := os.WriteFile(j.minimal, part, 0o644); err != nil {
			return fmt.Errorf("write --minimal: %w", err)
		}
		j.minimal = ""
	}
	return nil
}

func (j *judging) explanations(report checker.Report) {
	for _, r := range report.Results {
		kilobytes := strings.TrimSuffix(fmt.Sprintf("%.1f", float64(r.Memory)/1024), ".0")
		j.printf("\n%s: %s, by %s, in %s and %s KB\n", r.Name, r.Verdict, r.Engine, r.Took, kilobytes)
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
