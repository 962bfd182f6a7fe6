package reports

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// IndexFile is the page that lists the runs of a folder.
const IndexFile = "index.html"

// A RunEntry is what an index says of one run directory.
type RunEntry struct {
	Name                     string // of the directory
	Verdict                  checker.Verdict
	Headline                 string
	Scenario, Topology, Lock string
	Seed                     uint64
	Started                  time.Time
	Length                   time.Duration // of the record
	Judged                   bool          // there are verdicts
	Page                     bool          // there is a report.html
	Violations               int           // over all properties
	Faults, Effective        int
}

// ReadRuns lists the run directories in a folder, the newest first. One that
// can't be read, or is not judged yet, has the verdict unknown and says why. It
// reads nothing outside of the folder.
func ReadRuns(dir string) ([]RunEntry, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	defer root.Close()
	return readRuns(root)
}

func readRuns(root *os.Root) ([]RunEntry, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var runs []RunEntry
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") { // latest is a link to another
			continue
		}
		if r, ok := readEntry(root, e.Name()); ok {
			r.Name = e.Name()
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b RunEntry) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.Name, a.Name))
	})
	return runs, nil
}

// readEntry reads a run directory as far as an index needs it. It reports
// false for a folder that is none.
func readEntry(root *os.Root, dir string) (RunEntry, bool) {
	r := RunEntry{Verdict: checker.Unknown}
	var results Results
	err := readFile(inside(root), filepath.Join(dir, ResultsFile), func(f io.Reader) (err error) {
		results, err = ReadJSON(f)
		return err
	})
	if err == nil {
		r.Judged, r.Verdict, r.Headline = true, results.Verdict, results.Story.Headline
		r.Scenario, r.Topology, r.Lock = results.Scenario, results.Topology, results.Lock
		r.Seed, r.Started, r.Length = results.Seed, results.Started, results.Duration
		r.Faults, r.Effective = len(results.Faults), effective(results.Faults)
		for _, p := range results.Properties {
			r.Violations += max(p.Total, len(p.Violations))
		}
	} else {
		var run history.Run
		runErr := readFile(inside(root), filepath.Join(dir, RunFile), func(f io.Reader) (err error) {
			run, err = history.ReadRun(f)
			return err
		})
		if errors.Is(err, os.ErrNotExist) && errors.Is(runErr, os.ErrNotExist) {
			return r, false
		}
		r.Scenario, r.Topology, r.Lock = run.Scenario, run.Topology.Name, run.Lock
		r.Seed, r.Started, r.Length = run.Seed, run.Started, run.Duration
		switch {
		case !errors.Is(err, os.ErrNotExist):
			r.Headline = "The results can't be read"
		case runErr != nil:
			r.Headline = "The record of the run can't be read"
		default:
			r.Headline = "Not judged: it is still under way, or was stopped"
		}
	}
	page, err := root.Stat(filepath.Join(dir, HTMLFile))
	r.Page = err == nil && page.Mode().IsRegular()
	return r, true
}

// WriteIndex writes the page that lists runs. It leads to each run's report,
// in the folder of the run's name beside the page.
func WriteIndex(w io.Writer, runs []RunEntry) error {
	t, err := template.New("index").Funcs(template.FuncMap{
		"sign": sign, "length": runLength, "thousands": func(n int) string { return thousands(int64(n)) },
		"wall":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"link":  func(name, file string) string { return "./" + url.PathEscape(name) + "/" + file },
	}).Parse(indexHTML)
	if err != nil {
		return fmt.Errorf("parse template: %w", err)
	}
	counts := map[checker.Verdict]int{}
	for _, r := range runs {
		counts[r.Verdict]++
	}
	var b bytes.Buffer
	if err := t.Execute(&b, map[string]any{
		"CSS": template.CSS(paletteCSS + pageCSS), "Runs": runs,
		"Summary": fmt.Sprintf("%s, the newest first, times in UTC: %d valid, %d invalid, %d unknown", count(len(runs), "run"),
			counts[checker.Valid], counts[checker.Invalid], counts[checker.Unknown]),
	}); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	if _, err := io.WriteString(w, Plain(b.String())); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	return nil
}

// UpdateIndex writes the index of a folder of runs anew, in one step.
func UpdateIndex(dir string) error {
	runs, err := ReadRuns(dir)
	if err != nil {
		return err
	}
	return history.WriteFile(filepath.Join(dir, IndexFile), func(w io.Writer) error { return WriteIndex(w, runs) })
}
