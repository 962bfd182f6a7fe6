package main

import (
	"cmp"
	"context"
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
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

const (
	// storyEvents is the longest history that is kept in memory, for its story
	// and figures. Of a longer one there are only the verdicts, as it streams by.
	storyEvents = 100_000
	// streamBudget bounds the judging of a longer history.
	streamBudget = 30 * time.Minute
)

// A judging is what the user wants to know of recorded histories.
type judging struct {
	*app
	json, explain bool
	properties    []string
	from, minimal string
	out, html     string // where reports of a history go
	clockError    time.Duration
	clocksTold    bool // it was given, if only as 0

	checkers []checker.Checker
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
			if err := errors.Join(j.validate(), j.validOut(args), j.validClocks(args)); err != nil {
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
	f.StringSliceVar(&j.properties, "properties", nil, "judge only these ("+strings.Join(propertyNames(), ", ")+")")
	f.StringVar(&j.out, "out", "", "write all reports of a history into this folder, as of a run, with a copy of the history")
	f.StringVar(&j.html, "html", "", "write the report as one HTML file")
	f.DurationVar(&j.clockError, "clock-error", 0, "how wrong each clock may be that stamped a history of several machines, such as 50ms: only what holds in spite of it is valid or invalid")
	f.StringVar(&j.from, "from", "", "the format: lockchaos, log for CSV or JSON of what clients logged (docs/logs.md), or jepsen for EDN with :acquire and :release (default lockchaos)")
	return cmd
}

func propertyNames() []string {
	var list []string
	for _, c := range checker.Standard() {
		list = append(list, c.Name())
	}
	return list
}

// validate finds the checkers, and refuses what can't be meant.
func (j *judging) validate() error {
	if sources := []string{"lockchaos", "log", "jepsen"}; j.from != "" && !slices.Contains(sources, j.from) {
		return names.Unknown("source", j.from, sources)
	}
	for _, name := range j.properties {
		found := false
		for _, c := range checker.Standard() {
			if c.Name() == name {
				j.checkers = append(j.checkers, c)
				found = true
			}
		}
		if !found {
			return names.Unknown("property", name, propertyNames())
		}
	}
	return nil
}

// validClocks refuses errors of clocks that can't be meant.
func (j *judging) validClocks(args []string) error {
	switch {
	case j.clockError < 0:
		return fmt.Errorf("--clock-error %v: give a time such as 50ms", j.clockError)
	case j.clockError > maxClockError:
		return fmt.Errorf("--clock-error %v: give %v at the most", j.clockError, maxClockError)
	case j.clockError == 0:
		return nil
	}
	for _, arg := range args {
		is, _ := j.ofRun(arg)
		if info, err := os.Stat(arg); is || err == nil && info.IsDir() {
			return fmt.Errorf("--clock-error is for histories of several clocks, and %s is of a run, which has one", arg)
		}
	}
	return nil
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
	return worst(verdictError(exitUnknown), j.write(r))
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
	in, results, err := j.read(ctx, r)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if !j.json {
		if name = filepath.Clean(name); long {
			name += ", without the " + reports.RunFile + " beside it, for which it is too long"
		}
		j.printf("%s\n", say.OneLine(name))
	}
	if results != nil {
		return j.tell(in, arg, "", j.write(*results))
	}
	return j.tell(in, arg, "", j.print(in, "", j.json))
}

// minimalFile is where the part of a run's history goes that shows its first
// violation, if the user wants it explained.
const minimalFile = "minimal.jsonl"

// ofDir judges a run again, with what its record says. Its reports are written anew if the directory was named, and not
// its history alone, and if all properties are judged.
func (j *judging) ofDir(ctx context.Context, dir string, named bool) (err error) {
	var in reports.Input
	shown, beside := "", ""
	if named {
		beside = filepath.Join(dir, minimalFile)
	}
	if named && len(j.properties) == 0 {
		shown = dir
		in, err = judge(ctx, dir)
	} else if in, err = readRecord(dir); err == nil {
		budget, cancel := context.WithTimeout(ctx, checkBudget)
		defer cancel()
		in.Report = harness.Judge(budget, in.Run, in.History, j.properties...)
	}
	if err != nil {
		return err
	}
	if j.explain || j.minimal != "" {
		checker.Explain(ctx, in.History, &in.Report)
	}
	if !named && !j.json {
		j.printf("%s, with the %s beside it\n", say.OneLine(filepath.Join(dir, reports.HistoryFile)), reports.RunFile)
	}
	return j.tell(in, "", beside, j.print(in, shown, j.json))
}

// tell writes what else was asked for of a history whose summary was printed, or could not be, and returns its verdict.
func (j *judging) tell(in reports.Input, source, beside string, printed error) error {
	if printed != nil {
		return printed
	}
	if err := errors.Join(j.keep(in, source), j.show(in.Report, beside)); err != nil {
		return err
	}
	return verdictExit(in.Report.Verdict)
}

// mostOfRun is how many bytes a history may have that is judged with the record of
// its run, for which it must be in memory as a whole.
const mostOfRun = 64 << 20

// ofRun reports whether a file is the history of a run, with its record beside it,
// and whether it is too long to be judged with that.
func (j *judging) ofRun(path string) (is, long bool) {
	if j.from != "" && j.from != "lockchaos" || filepath.Base(path) != reports.HistoryFile || !history.Dir(filepath.Dir(path)).Exists() {
		return false, false
	}
	info, err := os.Stat(path)
	return err == nil, err == nil && info.Size() > mostOfRun
}

// read reads a history and judges it: a short one as a whole, a long one as it
// comes. Of a long one there are the results only.
func (j *judging) read(ctx context.Context, r io.Reader) (in reports.Input, long *reports.Results, err error) {
	short, cancel := context.WithTimeout(ctx, checkBudget)
	defer cancel()
	judges := j.checkers
	if j.from == "jepsen" || j.from == "log" {
		if r, err = history.Plain(r); err != nil {
			return in, nil, err
		}
		if j.from == "jepsen" {
			in.History, err = importers.Jepsen(r)
		} else if in.History, err = importers.Log(r); len(judges) == 0 {
			judges = checker.OfLogs()
		}
		if err != nil {
			return in, nil, err
		}
	} else {
		reader := history.NewReader(r)
		var first [][]history.Event
		read := 0
		for err == nil && read < storyEvents {
			var events []history.Event
			events, err = reader.ReadSome(make([]history.Event, 0, 1<<12))
			first, read = append(first, events), read+len(events)
		}
		switch {
		case errors.Is(err, io.EOF):
			in.History = &history.History{Events: slices.Concat(first...), Truncated: reader.Truncated()}
		case err != nil:
			return in, nil, err
		default:
			return j.stream(ctx, first, reader)
		}
	}
	if err := j.clocksKnown(in.History.Events); err != nil {
		return in, nil, err
	}
	in.Report = checker.CheckWithin(short, in.History, j.clockError, judges...)
	if j.explain || j.minimal != "" {
		checker.Explain(short, in.History, &in.Report)
	}
	return in, nil, nil
}

// stream judges a history of which some events were read already.
func (j *judging) stream(ctx context.Context, first [][]history.Event, rest *history.Reader) (in reports.Input, long *reports.Results, err error) {
	if err := j.tooLong(); err != nil {
		return in, nil, err
	}
	if j.clockError > 0 {
		return in, nil, fmt.Errorf("--clock-error needs the whole history in memory, and this one has more than %d events: judge a part of it", storyEvents)
	}
	if err := j.clocksKnown(slices.Concat(first...)); err != nil {
		return in, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, streamBudget)
	defer cancel()
	whole := &resumed{first: first, Reader: rest}
	in.Report, err = checker.CheckReader(ctx, whole, j.checkers...)
	if err = cmp.Or(err, j.clocksKnown(whole.clocks)); err != nil {
		return in, nil, err
	}
	if !j.explain && j.minimal == "" {
		for i := range in.Report.Results {
			for k := range in.Report.Results[i].Violations {
				in.Report.Results[i].Violations[k].Minimal = nil
			}
		}
	}
	results := reports.Summarize(in)
	results.Events, results.Duration, results.Truncated = int(in.Report.Events), in.Report.Until, rest.Truncated()
	results.Story, results.Operations = verdictStory(in.Report), nil
	return in, &results, nil
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

// write writes results that are no more than verdicts.
func (j *judging) write(r reports.Results) error {
	if j.json {
		return asHarness(reports.WriteJSON(j.stdout, r))
	}
	width, _ := onTerminal(j.stdout)
	return asHarness(reports.WriteText(j.stdout, r, reports.TextOptions{Color: j.colour(), Width: width}))
}

// A resumed is a reader of which some events were read already. They are let go
// as they are read again.
type resumed struct {
	*history.Reader
	first  [][]history.Event
	clocks []history.Event // the first of each clock
}

// ReadSome gives the first events first.
func (r *resumed) ReadSome(list []history.Event) (_ []history.Event, err error) {
	had := len(list)
	if len(r.first) == 0 {
		list, err = r.Reader.ReadSome(list)
	} else {
		n := min(len(r.first[0]), cap(list)-len(list))
		list = append(list, r.first[0][:n]...)
		if r.first[0] = r.first[0][n:]; len(r.first[0]) == 0 {
			r.first[0], r.first = nil, r.first[1:]
		}
	}
	for i := range list[had:] {
		e := &list[had+i]
		if e.Process >= 0 && !slices.ContainsFunc(r.clocks, func(c history.Event) bool { return c.Clock == e.Clock }) && len(r.clocks) < 2 {
			r.clocks = append(r.clocks, *e)
		}
	}
	return list, err
}
