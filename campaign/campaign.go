package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

// A Job is a run of a campaign.
type Job struct {
	Run

	// ID is its name in the journal: see [fleet.Job].
	ID string
	// InMatrix has the journal keep what a matrix tells of it.
	InMatrix bool
}

// A Note is what a journal keeps of a run.
type Note struct {
	Results reports.Results `json:"results"`
	// Mix are the faults that were asked for, and Tried those of one message that took effect: see [harness.Tried].
	Mix   string   `json:"mix,omitempty"`
	Tried []string `json:"tried,omitempty"`
	// First says why a run of the seed before was unknown; empty: there was none.
	First string `json:"first_unknown,omitempty"`
	// Control is what came of the same seed with the control lock; nil: it was not run.
	Control *history.Control `json:"control,omitempty"`
	// Cell is what a matrix tells of it.
	Cell *reports.MatrixRun `json:"cell,omitempty"`
}

// PlayAll makes those jobs, several at a time, of which a journal in a folder has no run, notes each, and writes the joint files of
// all of them; nil: there is none, and the folder is removed unless it was there before. Of what a process before did not note, the
// directory is set aside. A run in which the harness failed ends no other, and is not noted: it is made when the campaign is resumed.
func (p Player) PlayAll(ctx context.Context, folder string, before bool, journal *fleet.Journal, parallel int, jobs []Job) (*Summary, error) {
	left := slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return len(journal.Of(j.ID)) > 0 })
	var stores []string
	for _, j := range left {
		stores = append(stores, j.Store)
		if Exists(j.Dir) {
			if _, err := aside(j.Dir, "unfinished"); err != nil {
				return nil, err
			}
		}
	}
	file, err := createLog(folder)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	pooled, end, err := p.Pooled(ctx, file, stores...)
	var mu sync.Mutex
	var failed error
	done := len(jobs) - len(left)
	play := func(ctx context.Context, j Job) error {
		r, first, err := pooled.playTwice(ctx, j.Run)
		if err != nil {
			return fmt.Errorf("%s: %w", j.Title, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if r.Failed != nil { // others may have more luck
			failed = errors.Join(failed, fmt.Errorf("%s: %w", j.Title, r.Failed))
		}
		if r.Failed != nil || ctx.Err() != nil { // one that was cut short counts for nothing but its failure
			return nil
		}
		done++
		return p.note(journal, j, r, first, fmt.Sprintf("%d of %d", done, len(jobs)))
	}
	if err == nil {
		err = errors.Join(Batch(ctx, parallel, left, play), end())
	}
	if err != nil && failed == nil && done == 0 {
		return nil, errors.Join(err, journal.Discard(), removeEmpty(folder, before))
	}
	c, unread := fleet.Join([]string{folder})
	record, wrong := Read(c)
	s, unwritten := record.Write(folder, len(jobs))
	return s, errors.Join(failed, err, unread, wrong, unwritten)
}

// note notes a run, and tells of it.
func (p Player) note(journal *fleet.Journal, j Job, r Played, first, place string) error {
	n := Note{Results: reports.Summarize(r.Input), Mix: r.Run.Faults, Tried: harness.Tried(r.Run, r.History), First: first, Control: r.Run.Control}
	line := fleet.Run{Job: j.ID, LeftOut: r.Run.SkippedFaults}
	if r.Dir != "" {
		line.Dir = filepath.Base(r.Dir)
	}
	if j.InMatrix {
		cell := reports.NewMatrixRun(r.Input, line.Dir)
		n.Cell = &cell
	}
	landed := 0
	for _, f := range n.Results.Faults {
		if f.Counts() {
			landed++
		}
	}
	fmt.Fprintf(p.Out, "%s · %s %s · %s took effect", place, j.Title, n.Results.Verdict, say.Count(landed, "fault"))
	if n.Results.Verdict != checker.Valid {
		fmt.Fprintf(p.Out, " · %s · %s", n.Results.Story.Headline, r.Dir)
	}
	fmt.Fprintln(p.Out)
	return journal.Append(line, n)
}

// playTwice makes a run, and makes it again if it is unknown: how far its faults and its clients came may be chance. The directory
// of the first stays, of which it says why it was unknown.
func (p Player) playTwice(ctx context.Context, r Run) (played Played, first string, err error) {
	played, err = p.Play(ctx, r)
	if err != nil || played.Failed != nil || played.Report.Verdict != checker.Unknown || ctx.Err() != nil {
		return played, "", err
	}
	dir, err := aside(r.Dir, "unknown")
	if err != nil {
		return played, "", err
	}
	first = reports.Summarize(played.Input).Story.Headline
	fmt.Fprintf(p.Out, "%s unknown · %s · %s; once more\n", r.Title, first, dir)
	played, err = p.Play(ctx, r)
	return played, first, err
}

// aside renames a run directory to DIR.WHY-1, or the next number that is free.
func aside(dir, why string) (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.%s-%d", dir, why, n)
		if Exists(name) {
			continue
		}
		if err := os.Rename(dir, name); err != nil {
			return "", fmt.Errorf("set a run directory aside: %w", err)
		}
		return name, nil
	}
}

// A Summary is what came of the runs of a campaign on real servers.
type Summary struct {
	Topology string `json:"topology"`
	Lock     string `json:"lock"`
	Seeds    string `json:"seeds"`
	Valid    int    `json:"valid"`
	Unknown  int    `json:"unknown"`
	Invalid  int    `json:"invalid"`
	// Planned is how many runs there were to be: with fewer they were interrupted.
	Planned int `json:"planned"`
	// Landed and Failed count the faults of all runs: those that were of effect, and those that were not.
	Landed map[string]int `json:"faults_landed"`
	Failed map[string]int `json:"faults_failed"`
	// Tried counts faults of one message that took effect, by the request that they met, and NotTried are those that no run
	// has had yet.
	Tried    map[string]int `json:"tried,omitempty"`
	NotTried []string       `json:"not_tried,omitempty"`
	// NotValid are the runs that are not.
	NotValid []NotValid `json:"not_valid"`
	// Matrix is the one that they are of; nil: they are of none.
	Matrix *reports.Matrix `json:"-"`
}

// A NotValid is a run that is not, with what its [Note] says of the run before and of the control.
type NotValid struct {
	reports.JointRun

	First   string           `json:"first_unknown,omitempty"`
	Control *history.Control `json:"control,omitempty"`
}

// A Record is a campaign on real servers, with what its journals keep of its runs, in their order.
type Record struct {
	fleet.Campaign

	Notes []Note

	matrix *Matrix // nil: it is of none
}

// Read reads what the journals of a campaign keep of its runs.
func Read(c fleet.Campaign) (Record, error) {
	r := Record{Campaign: c}
	var err error
	if r.matrix, err = matrixOf(c.Header); err != nil {
		return r, err
	}
	for _, line := range c.Runs {
		var n Note
		if err := line.Decode(&n); err != nil {
			return r, err
		}
		ofSeed := n.Results.Verdict != "" && strings.HasSuffix(line.Job, fleet.Job("", n.Results.Seed))
		if !ofSeed || r.matrix != nil && (n.Cell == nil || r.matrix.cell(line.Job, n.Results.Seed) == nil) {
			return r, line.Wrong(errors.New("its result is of another run"))
		}
		r.Notes = append(r.Notes, n)
	}
	return r, nil
}

// Write copies the run directories of a campaign, of which so many runs were planned, into a folder, unless they are there, and
// writes the joint files.
func (r Record) Write(folder string, planned int) (*Summary, error) {
	s := &Summary{Seeds: r.Seeds, Planned: planned, Landed: map[string]int{}, Failed: map[string]int{}, Tried: map[string]int{}, NotValid: []NotValid{}}
	var runs []reports.JointRun
	taken := map[string]bool{}
	for i, n := range r.Notes {
		line, dir := r.Runs[i], r.Runs[i].Dir
		if dir != "" && line.Folder != folder {
			for n := 2; taken[dir]; n++ { // the same seed again
				dir = fmt.Sprintf("%s-%d", line.Dir, n)
			}
			taken[dir] = true
			if err := os.CopyFS(filepath.Join(folder, dir), os.DirFS(filepath.Join(line.Folder, line.Dir))); err != nil {
				return nil, err
			}
		}
		run := reports.NewJointRun(n.Results, dir)
		run.Faults = n.Mix
		runs = append(runs, run)
		if r.matrix != nil {
			n.Cell.Dir = dir
			r.matrix.cell(line.Job, n.Results.Seed).Add(*n.Cell)
		}
		s.add(n, run, folder)
	}
	if r.matrix == nil {
		return s, reports.WriteJoint(folder, runs, planned)
	}
	m := reports.NewMatrix(runs, planned, r.Seeds, r.matrix.Length, r.matrix.Families, r.matrix.Cells)
	m.Command = r.Repeat()
	s.Matrix = &m
	return s, reports.WriteMatrix(folder, m)
}

// add counts a run, whose directory is in a folder.
func (s *Summary) add(n Note, run reports.JointRun, folder string) {
	switch run.Verdict {
	case checker.Valid:
		s.Valid++
	case checker.Invalid:
		s.Invalid++
	default:
		s.Unknown++
	}
	for _, f := range n.Results.Faults {
		if f.Counts() {
			s.Landed[f.Name]++
		} else {
			s.Failed[f.Name]++
		}
	}
	for _, name := range n.Tried {
		s.Tried[name]++
	}
	if run.Verdict != checker.Valid {
		run.Dir = filepath.Join(folder, run.Dir)
		s.NotValid = append(s.NotValid, NotValid{run, n.First, n.Control})
	}
}

// A Matrix is what the shards of a matrix have in common beside the command and the seeds: its cells are those of their jobs.
type Matrix struct {
	Length   time.Duration        `json:"length_ns"`
	Families []string             `json:"families"`
	Cells    []reports.MatrixCell `json:"cells"`
}

// CellName is the name of a cell in jobs.
func CellName(c reports.MatrixCell) string {
	return fmt.Sprintf("%s on %s · %s", c.Lock, c.Topology, c.Faults)
}

// Header is that of a matrix of which nothing was played yet.
func (m *Matrix) Header(command, seeds string) (h fleet.Header, err error) {
	h = fleet.Header{Command: command, Seeds: seeds}
	for _, c := range m.Cells {
		if c.Impossible == "" {
			h.Cells = append(h.Cells, CellName(c))
		}
	}
	if h.Plan, err = json.Marshal(m); err != nil {
		return h, fmt.Errorf("note the matrix: %w", err)
	}
	return h, nil
}

// matrixOf is the matrix that a header is of, without runs; nil: it is of none.
func matrixOf(h fleet.Header) (m *Matrix, err error) {
	if len(h.Plan) > 0 {
		err = json.Unmarshal(h.Plan, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: its plan is no matrix: %w", fleet.JournalFile, err)
	}
	return m, nil
}

// cell is that of a job with a seed; nil: it has none.
func (m *Matrix) cell(job string, seed uint64) *reports.MatrixCell {
	for i := range m.Cells {
		if fleet.Job(CellName(m.Cells[i]), seed) == job {
			return &m.Cells[i]
		}
	}
	return nil
}
