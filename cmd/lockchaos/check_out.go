package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

// validOut refuses files and folders of reports that can't be meant.
func (j *judging) validOut(args []string) error {
	switch {
	case j.out == "" && j.html == "":
		return nil
	case len(args) > 1:
		return errors.New("--out and --html are for one history: name one, or leave them out")
	case j.out == "":
		return nil
	}
	if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
		return fmt.Errorf("--out is for a history alone: %s is a run directory, and its reports are rewritten there", args[0])
	}
	return emptyDir(j.out)
}

// tooLong refuses reports of a history that is judged as it streams by.
func (j *judging) tooLong() error {
	if j.out == "" && j.html == "" {
		return nil
	}
	return fmt.Errorf("--out and --html need the whole history in memory, and this one has more than %d events: leave them out", storyEvents)
}

// keep writes the reports that were asked for: a page, and for a history alone a
// run directory with a copy of it.
func (j *judging) keep(in reports.Input, source string) error {
	if j.html != "" {
		if err := history.WriteFile(j.html, func(w io.Writer) error { return reports.WriteHTML(w, in) }); err != nil {
			return fmt.Errorf("--html %s: %w", j.html, err)
		}
	}
	if j.out == "" {
		return nil
	}
	dir := history.Dir(j.out)
	if in.Run.Version == 0 {
		in.Run = history.Run{
			Version: history.RunVersion, Program: version(), Command: "lockchaos check " + quoted(source),
			Duration: max(in.History.End(), 1), Events: int64(len(in.History.Events)), // which say that the record is whole
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
