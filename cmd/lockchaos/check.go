package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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
	"github.com/lockchaos/lockchaos/reports"
)

const (
	// storyEvents is how many lines the longest history has that is kept in memory, for its story
	// and figures. Of a longer one there are only the verdicts, as it streams by.
	storyEvents = 100_000
	// streamBudget bounds the judging of a longer history.
	streamBudget = 30 * time.Minute
)

// A judging is what the user wants to know of recorded histories.
type judging struct {
	*app
	json, explain      bool
	from, minimal, out string // out is where the reports of a history go
	clockError         time.Duration
	clocksTold         bool // it was given, if only as 0
	undecidedOK        bool
	log                *importers.Log // that was read last, if it is one
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
			j.clocksTold = cmd.Flags().Changed("clock-error")
			if err := j.validate(args); err != nil {
				return err
			}
			var result error
			for i, arg := range args {
				if i > 0 && !j.json {
					a.printf("\n")
				}
				err := bounded(cmd.Context(), func(ctx context.Context) error { return j.one(ctx, cmd.InOrStdin(), arg) })
				if cause := context.Cause(cmd.Context()); cause != nil {
					return cause
				}
				if beyond, ok := errors.AsType[memoryError](err); ok {
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
	f.DurationVar(&j.clockError, "clock-error", 0, "how wrong each clock may be that stamped a history of several machines, such as 50ms: only what holds in spite of it is valid or invalid")
	f.BoolVar(&j.undecidedOK, "undecided-is-ok", false, "exit with 0, too, if all that is not decided are holds that are closer than --clock-error can tell")
	f.StringVar(&j.from, "from", "lockchaos", "the format: lockchaos, log for CSV or JSON of what clients logged (docs/logs.md), or jepsen for EDN with :acquire and :release")
	return cmd
}

func sources() []string { return []string{"lockchaos", "log", "jepsen"} }

// validate refuses what can't be meant.
func (j *judging) validate(args []string) error {
	wrong := errors.Join(
		refuse(!slices.Contains(sources(), j.from), "%w", names.Unknown("source", j.from, sources())),
		refuse(j.out != "" && len(args) > 1, "--out is for one history: name one, or leave it out"),
		refuse(j.clockError < 0, "--clock-error %v: give a time such as 50ms", j.clockError),
		refuse(j.undecidedOK && j.clockError <= 0, "--undecided-is-ok is for clocks that may be wrong: give --clock-error, too"),
		refuse(j.clockError > maxClockError, "--clock-error %v: give %v at the most", j.clockError, maxClockError))
	for _, arg := range args {
		ofRun, _ := j.ofRun(arg)
		info, err := os.Stat(arg)
		isDir := err == nil && info.IsDir()
		wrong = errors.Join(wrong,
			refuse(j.out != "" && isDir, "--out is for a history alone: %s is a run directory, and its reports are rewritten there", arg),
			refuse(j.clockError > 0 && (ofRun || isDir), "--clock-error is for histories of several clocks, and %s is of a run, which has one", arg))
	}
	if wrong == nil && j.out != "" {
		return emptyDir(j.out)
	}
	return wrong
}

// clocksKnown refuses a history of several clocks of which nothing is known.
func (j *judging) clocksKnown(events []history.Event) error {
	if j.clocksTold {
		return nil
	}
	if err := checker.SeveralClocks(events); err != nil {
		return fmt.Errorf("%w: give --clock-error, such as 50ms, or 0s if it is one clock", err)
	}
	return nil
}

// maxClockError is beyond any clock that tells the time.
const maxClockError = 24 * time.Hour

// beyondMemory tells that a history takes too much memory to be judged, and which
// ones were not looked at after it.
func (j *judging) beyondMemory(err memoryError, arg string, left []string) error {
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
	j.log = nil
	in, results, err := j.read(ctx, r)
	if j.log != nil {
		for _, note := range j.log.Notes {
			fmt.Fprintf(j.stderr, "lockchaos: %s: %s\n", say.OneLine(name), say.OneLine(note))
		}
	}
	if err != nil {
		if j.from == "lockchaos" && strings.EqualFold(filepath.Ext(name), ".csv") {
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
	shown, beside, read := dir, filepath.Join(dir, minimalFile), judge
	if !named {
		shown, beside, read = "", "", judgeOnly
	}
	in, err := read(ctx, dir)
	if err != nil {
		return err
	}
	if j.explain || j.minimal != "" {
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
	if err := errors.Join(j.keep(in), j.show(in.Report, beside)); err != nil {
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

// mostOfRun is how many bytes a history may have that is judged with the record of
// its run, for which it must be in memory as a whole.
const mostOfRun = 64 << 20

// ofRun reports whether a file is the history of a run, with its record beside it,
// and whether it is too long to be judged with that.
func (j *judging) ofRun(path string) (is, long bool) {
	if j.from != "lockchaos" || filepath.Base(path) != reports.HistoryFile || !history.Dir(filepath.Dir(path)).Exists() {
		return false, false
	}
	info, err := os.Stat(path)
	return err == nil, err == nil && info.Size() > mostOfRun
}

// read reads a history and judges it: a short one as a whole, a long one as it
// comes. Of a long one the results have verdicts only.
func (j *judging) read(ctx context.Context, r io.Reader) (in reports.Input, results reports.Results, err error) {
	short, cancel := context.WithTimeout(ctx, checkBudget)
	defer cancel()
	var judges []checker.Checker
	if j.from == "lockchaos" {
		var long bool
		if r, long, err = isLong(r); err == nil && long {
			return j.stream(ctx, &clocked{Reader: history.NewReader(r)})
		} else if err == nil {
			in.History, err = history.ReadAll(r)
		}
	} else if r, err = history.Plain(r); err == nil {
		if j.from == "jepsen" {
			in.History, err = importers.Jepsen(r)
		} else {
			if j.log, err = importers.ReadLog(r); err != nil {
				return in, results, err
			}
			in.History, in.Run.Started, judges = j.log.History, j.log.Zero, checker.OfLogs(j.log.Unit, j.log.Refusals)
		}
	}
	if err == nil {
		err = j.clocksKnown(in.History.Events)
	}
	if err != nil {
		return in, results, err
	}
	in.Report = checker.CheckWithin(short, in.History, j.clockError, judges...)
	if j.explain || j.minimal != "" {
		checker.Explain(short, in.History, &in.Report)
	}
	return in, reports.Summarize(in), nil
}

// isLong reports whether a history has more lines than storyEvents, or more bytes than mostOfRun. What it read of the
// text for that is in the reader that it returns, too.
func isLong(r io.Reader) (all io.Reader, long bool, err error) {
	if f, is := r.(*os.File); is {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > mostOfRun {
			return r, true, nil
		}
	}
	if r, err = history.Plain(r); err != nil {
		return nil, false, err
	}
	var head bytes.Buffer
	for lines := 0; err == nil && !long; long = lines > storyEvents || head.Len() > mostOfRun {
		var n int64
		n, err = io.CopyN(&head, r, 1<<20)
		lines += bytes.Count(head.Bytes()[head.Len()-int(n):], []byte("\n"))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("read history: %w", err)
	}
	return io.MultiReader(&head, r), long, nil
}

// stream judges a long history.
func (j *judging) stream(ctx context.Context, r *clocked) (in reports.Input, results reports.Results, err error) {
	switch {
	case j.out != "":
		return in, results, fmt.Errorf("--out needs the whole history in memory, and this one is too long for that: leave it out")
	case j.clockError > 0:
		return in, results, fmt.Errorf("--clock-error needs the whole history in memory, and this one is too long for that: judge a part of it")
	}
	ctx, cancel := context.WithTimeout(ctx, streamBudget)
	defer cancel()
	in.Report, err = checker.CheckReader(ctx, r)
	if err = cmp.Or(err, j.clocksKnown(r.clocks)); err != nil {
		return in, results, err
	}
	if !j.explain && j.minimal == "" {
		for i := range in.Report.Results {
			for k := range in.Report.Results[i].Violations {
				in.Report.Results[i].Violations[k].Minimal = nil
			}
		}
	}
	results = reports.Summarize(in)
	results.Events, results.Duration, results.Truncated = int(in.Report.Events), in.Report.Until, r.Truncated()
	results.Story, results.Operations = verdictStory(in.Report), nil
	return in, results, nil
}

// verdictStory is what can be told of a history that has streamed by.
func verdictStory(report checker.Report) reports.Story {
	story := reports.Story{
		Headline: "No violation",
		Outcome: []string{fmt.Sprintf("%d events over %.3f s were judged in %.1f s.",
			report.Events, report.Until.Seconds(), report.Took.Seconds())},
	}
	if report.Verdict == checker.Unknown {
		story.Headline = "It could not be decided"
	}
	for i := range report.Results {
		if r := &report.Results[i]; r.Verdict == checker.Invalid && report.Verdict == checker.Invalid {
			story.Headline = fmt.Sprintf("%s is violated, %d times", r.Name, r.Total)
			story.Outcome = append(story.Outcome, "The first time: "+r.Violations[0].Explanation+".")
			break
		}
	}
	return story
}

// A clocked is a history that keeps the first events of two clocks.
type clocked struct {
	*history.Reader

	clocks []history.Event
}

// Events are all events of the history.
func (r *clocked) Events() iter.Seq2[[]history.Event, error] {
	return func(yield func([]history.Event, error) bool) {
		for events, err := range r.Reader.Events() {
			for i := range events {
				e := &events[i]
				if e.Process >= 0 && len(r.clocks) < 2 && !slices.ContainsFunc(r.clocks, func(c history.Event) bool { return c.Clock == e.Clock }) {
					r.clocks = append(r.clocks, *e)
				}
			}
			if !yield(events, err) {
				return
			}
		}
	}
}

// keep writes the reports of a history alone, as of a run with a copy of it, where they were asked for.
func (j *judging) keep(in reports.Input) error {
	if j.out == "" {
		return nil
	}
	dir := history.Dir(j.out)
	if in.Run.Version == 0 {
		in.Run = history.Run{
			Version: history.RunVersion, Program: version(),
			Started: in.Run.Started, Duration: max(in.History.End(), 1), Events: int64(len(in.History.Events)), // which say that the record is whole
		}
	}
	err := history.WriteFile(dir.Path(history.EventsFile), func(w io.Writer) error {
		_, err := w.Write(lines(in.History.Events))
		return err
	})
	if err = errors.Join(err, dir.WriteRun(in.Run), reports.WriteDir(j.out, in)); err != nil {
		return harnessError{err}
	}
	if !j.json {
		j.printf("  report     %s\n", say.OneLine(filepath.Join(j.out, reports.HTMLFile)))
	}
	return nil
}
