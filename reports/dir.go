package reports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// The files of a run directory that reports read or write.
const (
	RunFile        = history.RunFile
	HistoryFile    = history.EventsFile
	ResultsFile    = "results.json"
	HTMLFile       = "report.html"
	JUnitFile      = "junit.xml"
	TimelineFile   = "timeline.svg"
	LatencyFile    = "latency.svg"
	ThroughputFile = "throughput.svg"
)

// WriteDir writes all reports into a run directory, each file at once or not
// at all. It leaves run.json and history.jsonl alone: those are their writer's.
func WriteDir(dir string, in Input) error {
	d := newDigest(in)
	r := d.results()
	var errs []error
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{ResultsFile, func(w io.Writer) error { return WriteJSON(w, r) }},
		{JUnitFile, func(w io.Writer) error { return WriteJUnit(w, r) }},
		{HTMLFile, d.writeHTML},
		{TimelineFile, d.writeTimeline},
		{LatencyFile, d.writeLatency},
		{ThroughputFile, d.writeThroughput},
	} {
		if err := writeFile(filepath.Join(dir, f.name), f.write); err != nil {
			errs = append(errs, err)
		}
	}
	pictures, err := d.drawPictures()
	errs = append(errs, err)
	for _, p := range pictures {
		errs = append(errs, writeFile(filepath.Join(dir, p.File), func(w io.Writer) error {
			_, err := w.Write(p.page)
			return err
		}))
	}
	return errors.Join(errs...)
}

// writeFile replaces a file in one step, so that no reader sees half of it.
func writeFile(path string, write func(io.Writer) error) (err error) {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(b.Bytes())
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// ReadDir reads a run directory for another look at it: the run, the history,
// and the verdicts as they were stored. Its errors name every part that is
// missing or damaged; what could be read is returned beside them.
func ReadDir(dir string) (Input, error) {
	var in Input
	var stored Results
	err := errors.Join(
		readFile(dir, RunFile, func(r io.Reader) error {
			if err := json.NewDecoder(r).Decode(&in.Run); err != nil {
				return err
			}
			if in.Run.Version != history.RunVersion {
				return fmt.Errorf("version %d, want %d", in.Run.Version, history.RunVersion)
			}
			return nil
		}),
		readFile(dir, HistoryFile, func(r io.Reader) (err error) {
			in.History, err = history.ReadAll(r)
			return err
		}),
		readFile(dir, ResultsFile, func(r io.Reader) (err error) {
			stored, err = ReadJSON(r)
			return err
		}),
	)
	in.Report = checker.Report{Verdict: stored.Verdict, Results: stored.Properties}
	return in, err
}

func readFile(dir, name string, read func(io.Reader) error) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("read run directory: %w", err)
	}
	err = read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(dir, name), err)
	}
	return nil
}
