package reports

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// The files of a run directory that reports read or write.
const (
	RunFile      = history.RunFile
	HistoryFile  = history.EventsFile
	ResultsFile  = "results.json"
	HTMLFile     = "report.html"
	JUnitFile    = "junit.xml"
	MarkdownFile = "summary.md"
)

// WriteDir writes all reports into a run directory, each file at once or not
// at all. It leaves run.json and history.jsonl alone: those are their writer's.
// Of an input with something missing it writes the page and the drawings alone,
// and leaves the verdicts as they were stored.
func WriteDir(dir string, in Input) error {
	m := newModel(in)
	var logs []string                                             // of the servers
	entries, _ := os.ReadDir(filepath.Join(dir, history.LogsDir)) // there may be none
	for _, e := range entries {
		if name, isLog := strings.CutSuffix(e.Name(), ".log"); isLog && e.Type().IsRegular() {
			logs = append(logs, name)
		}
	}
	plots, pictures, err := m.drawn()
	errs := []error{err}
	file := func(name string, write func(io.Writer) error) {
		errs = append(errs, history.WriteFile(filepath.Join(dir, name), write))
	}
	text := func(name, text string) {
		file(name, func(w io.Writer) error { return write(w, name, text, nil) })
	}
	if len(in.Missing) == 0 {
		file(ResultsFile, func(w io.Writer) error { return WriteJSON(w, m.Results) })
		file(JUnitFile, func(w io.Writer) error { return WriteJUnit(w, m.Results) })
		file(MarkdownFile, func(w io.Writer) error { return WriteMarkdown(w, m.Results) })
	}
	file(HTMLFile, func(w io.Writer) error { return m.writeHTML(w, plots, pictures, logs) })
	for _, p := range plots {
		text(p.File, p.SVG)
	}
	for _, p := range pictures {
		text(p.File, p.page)
	}
	return errors.Join(errs...)
}

// ReadRecord reads what a run left in its directory, without its results.
func ReadRecord(dir string) (in Input, err error) {
	if in.Run, err = history.Dir(dir).Run(); err == nil {
		in.History, err = history.Dir(dir).History()
	}
	return in, err
}

// ReadDir reads a run directory for another look at it: the run, the history,
// and the verdicts as they were stored. Its errors name every part that is
// missing or damaged; what could be read is returned beside them, with the
// same words in Missing. Of a damaged history those are the events before the
// damage.
func ReadDir(dir string) (Input, error) { return readDir(history.Open, dir) }

func readDir(open opener, dir string) (Input, error) {
	in := Input{History: &history.History{}}
	var errs []error
	note := func(name string, err error) {
		switch {
		case errors.Is(err, os.ErrNotExist):
			in.Pending = name == ResultsFile && len(in.Missing) == 0
			in.Missing = append(in.Missing, name+" is missing")
		case err != nil:
			in.Missing = append(in.Missing, strings.TrimPrefix(err.Error(), "read "+dir+string(filepath.Separator)))
		}
		errs = append(errs, err)
	}
	var err error
	in.Run, err = history.Load(open, filepath.Join(dir, RunFile), history.ReadRun)
	note(RunFile, err)
	_, err = history.Load(open, filepath.Join(dir, HistoryFile), func(r io.Reader) (h *history.History, err error) {
		if in.History, err = history.ReadAll(r); err != nil { // up to where it is damaged
			err = fmt.Errorf("%w; %s before it can be read", err, say.Count(len(in.History.Events), "event"))
		}
		return in.History, err
	})
	note(HistoryFile, err)
	stored, err := history.Load(open, filepath.Join(dir, ResultsFile), ReadJSON)
	note(ResultsFile, err)
	if events := int64(len(in.History.Events)); in.Run.Events > 0 && events != in.Run.Events && len(in.Missing) == 0 {
		in.Missing = append(in.Missing, fmt.Sprintf("%s has %d events, and the run recorded %d", HistoryFile, events, in.Run.Events))
		errs = append(errs, errors.New(in.Missing[0]))
	}
	in.Report = checker.Report{Verdict: stored.Verdict, Results: stored.Properties}
	if !slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, os.ErrNotExist) }) {
		return in, fmt.Errorf("%s is no run directory: it has no %s, %s and %s: %w", dir, RunFile, HistoryFile, ResultsFile, os.ErrNotExist)
	}
	return in, errors.Join(errs...)
}

// An opener opens a file to read it.
type opener func(path string) (*os.File, error)

// inside is an opener that reads nothing outside of a folder: it refuses links that
// lead out.
func inside(root *os.Root) opener {
	return func(path string) (*os.File, error) { return openIn(root, path, os.FileMode.IsRegular) }
}

// openIn opens what is in a folder and of a wanted kind; a pipe without waiting for a writer.
func openIn(root *os.Root, path string, wanted func(os.FileMode) bool) (*os.File, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !wanted(info.Mode()) {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
