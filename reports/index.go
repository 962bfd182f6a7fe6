package reports

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// IndexFile is the page that lists the runs of a folder.
const IndexFile = "index.html"

// A RunEntry is what an index says of one run directory.
type RunEntry struct {
	JointRun

	Name              string // of the directory
	Started           time.Time
	Length            time.Duration // of the record
	Judged            bool          // there are verdicts
	Pending           bool          // it is still under way, or was stopped
	Page              bool          // there is a report.html
	Live              bool          // it is under way, and can be watched
	Violations        int           // what several properties found is one
	Faults, Effective int
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
	r := RunEntry{JointRun: JointRun{Verdict: checker.Unknown}}
	results, err := history.Load(inside(root), filepath.Join(dir, ResultsFile), ReadJSON)
	if err == nil {
		r.JointRun, r.Judged, r.Started, r.Length = NewJointRun(results, dir), true, results.Started, results.Duration
		if results.AbortReason != "" {
			r.Expect = ""
		}
		r.Faults, r.Effective = len(results.Faults), facts.Effective(results.Faults)
		r.Violations = results.Counts.Total
	} else {
		run, runErr := history.Load(inside(root), filepath.Join(dir, RunFile), history.ReadRun)
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
			r.Pending, r.Headline = true, "Not judged: it is still under way, or was stopped"
		}
	}
	page, err := root.Stat(filepath.Join(dir, HTMLFile))
	r.Page = err == nil && page.Mode().IsRegular()
	return r, true
}

// AsExpected reports whether the run gave the verdict that its scenario must give.
func (r RunEntry) AsExpected() bool { return r.Expect != "" && r.met() }

// Mark is the verdict with its sign, or that the run is under way.
func (r RunEntry) Mark() string {
	switch {
	case r.Live:
		return "… running"
	case r.AsExpected():
		return sign(r.Verdict) + " " + string(r.Verdict) + ", as expected"
	case r.Expect != "":
		return sign(r.Verdict) + " " + string(r.Verdict) + ", expected " + r.Expect
	default:
		return sign(r.Verdict) + " " + string(r.Verdict)
	}
}

// WriteIndex writes the page that lists runs. It leads to each run's report,
// in the folder of the run's name beside the page. What came of all runs together
// is nil where that is not known.
func WriteIndex(w io.Writer, runs []RunEntry, joint *Joint) error {
	counts, expected, running := map[checker.Verdict]int{}, 0, 0
	for _, r := range runs {
		switch {
		case r.Live || r.Pending:
			running++
			continue
		case r.AsExpected() && r.Verdict != checker.Valid:
			expected++
		}
		counts[r.Verdict]++
	}
	summary := fmt.Sprintf("%s, times in UTC: %d valid, %d invalid, %d unknown", say.Count(len(runs), "run"),
		counts[checker.Valid], counts[checker.Invalid], counts[checker.Unknown])
	if expected > 0 {
		summary += fmt.Sprintf(", of which %d are as their scenario expects", expected)
	}
	if running > 0 {
		summary += fmt.Sprintf("; %d not judged yet", running)
	}
	return writePage(w, "index.html", map[string]any{"Runs": runs, "Summary": summary, "Joint": joint}, "index.js")
}

// UpdateIndex writes the index of a folder of runs anew, in one step. If the folder has
// the joint results of its runs, the index begins with them.
func UpdateIndex(dir string) error {
	runs, err := ReadRuns(dir)
	if err != nil {
		return err
	}
	return history.WriteFile(filepath.Join(dir, IndexFile), func(w io.Writer) error { return WriteIndex(w, runs, readJoint(dir)) })
}
