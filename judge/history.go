package judge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/importers"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

const (
	// LongEvents is how many lines the longest history has that is kept in memory, for its story
	// and figures. Of a longer one there are only the verdicts, as it streams by.
	LongEvents = 100_000
	// LongBytes is how many bytes such a history may have, and one that is judged with the record of
	// its run, for which it must be in memory as a whole.
	LongBytes = 64 << 20
	// streamBudget bounds the judging of a longer history.
	streamBudget = 30 * time.Minute
)

// The formats of histories.
const (
	FromLockchaos = "lockchaos"
	FromLog       = "log"    // CSV or JSON of what clients logged
	FromJepsen    = "jepsen" // EDN with :acquire and :release
)

// Formats lists them.
func Formats() []string { return []string{FromLockchaos, FromLog, FromJepsen} }

// A History says how a history is read and judged that is of no run.
type History struct {
	// From is its format.
	From string
	// ClockError is how wrong each clock may be that stamped it, and ClocksKnown says that this was told, if only as 0.
	ClockError  time.Duration
	ClocksKnown bool
	// Explain asks for the least part of it that shows each violation, and Keep for its reports, which need all of it in memory.
	Explain, Keep bool
}

// clocks refuses events of several clocks of which nothing is known.
func (h History) clocks(events []history.Event) error {
	if h.ClocksKnown {
		return nil
	}
	if err := checker.SeveralClocks(events); err != nil {
		return fmt.Errorf("%w: give --clock-error, such as 50ms, or 0s if it is one clock", err)
	}
	return nil
}

// Read reads a history and judges it: a short one as a whole, a long one as it comes. Of a long one the results have verdicts
// only. log is what clients logged, if it is that.
func (h History) Read(ctx context.Context, r io.Reader) (in reports.Input, results reports.Results, log *importers.Log, err error) {
	short, cancel := context.WithTimeout(ctx, Budget)
	defer cancel()
	var judges []checker.Checker
	var long bool
	switch h.From {
	case FromLockchaos:
		if r, long, err = isLong(r); long && err == nil {
			in, results, err = h.stream(ctx, &clocked{Reader: history.NewReader(r)})
			return in, results, nil, err
		} else if err == nil {
			in.History, err = history.ReadAll(r)
		}
	case FromJepsen:
		if r, err = history.Plain(r); err == nil {
			in.History, err = importers.Jepsen(r)
		}
	default:
		if r, err = history.Plain(r); err == nil {
			log, err = importers.ReadLog(r)
		}
		if err == nil {
			in.History, in.Run.Started, judges = log.History, log.Zero, checker.OfLogs(log.Unit, log.Refusals)
		}
	}
	if err == nil {
		err = h.clocks(in.History.Events)
	}
	if err != nil {
		return in, results, log, err
	}
	in.Report = checker.CheckWithin(short, in.History, h.ClockError, judges...)
	if h.Explain {
		checker.Explain(short, in.History, &in.Report)
	}
	return in, reports.Summarize(in), log, nil
}

// isLong reports whether a history has more lines than LongEvents, or more bytes than LongBytes. What it read of the
// text for that is in the reader that it returns, too.
func isLong(r io.Reader) (all io.Reader, long bool, err error) {
	if r, err = history.Plain(r); err != nil {
		return nil, false, err
	}
	var head bytes.Buffer
	for lines := 0; err == nil && !long; long = lines > LongEvents || head.Len() > LongBytes {
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
func (h History) stream(ctx context.Context, r *clocked) (in reports.Input, results reports.Results, err error) {
	switch {
	case h.Keep:
		return in, results, fmt.Errorf("--out needs the whole history in memory, and this one is too long for that: leave it out")
	case h.ClockError > 0:
		return in, results, fmt.Errorf("--clock-error needs the whole history in memory, and this one is too long for that: judge a part of it")
	}
	ctx, cancel := context.WithTimeout(ctx, streamBudget)
	defer cancel()
	if os.Getenv("GOGC") == "" { // what the judge allocates it keeps: to look for garbage as often as usual takes a sixth of the time, and finds little
		defer debug.SetGCPercent(debug.SetGCPercent(400))
	}
	in.Report, err = checker.CheckReader(ctx, r)
	if err = cmp.Or(err, h.clocks(r.clocks)); err != nil {
		return in, results, err
	}
	if !h.Explain {
		for i := range in.Report.Results {
			for k := range in.Report.Results[i].Violations {
				in.Report.Results[i].Violations[k].Minimal = nil
			}
		}
	}
	results = reports.Summarize(in)
	results.Events, results.Truncated = int(in.Report.Events), r.Truncated()
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

// Minimal is the part of a history that shows the first violation that was explained, as a history of its own.
func Minimal(report checker.Report) []byte {
	for _, r := range report.Results {
		for i := range r.Violations {
			if part := r.Violations[i].Minimal; len(part) > 0 {
				return lines(part)
			}
		}
	}
	return nil
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

// Keep writes a history that was judged into a folder with its reports, as a run, whose record says that this version of the program
// judged it where it has none.
func Keep(folder, program string, in reports.Input) error {
	dir := history.Dir(folder)
	if in.Run.Version == 0 {
		in.Run = history.Run{
			Version: history.RunVersion, Program: program,
			Started: in.Run.Started, Duration: max(in.History.End(), 1), Events: int64(len(in.History.Events)), // which say that the record is whole
		}
	}
	err := history.WriteFile(dir.Path(history.EventsFile), func(w io.Writer) error {
		_, err := w.Write(lines(in.History.Events))
		return err
	})
	return errors.Join(err, dir.WriteRun(in.Run), reports.WriteDir(folder, in))
}
