package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/reports"
)

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
func (m *Matrix) Header(command, seeds string) (h Header, err error) {
	h = Header{Command: command, Seeds: seeds}
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

// MatrixOf is the matrix that a header is of, without runs; nil: it is of none.
func MatrixOf(h Header) (m *Matrix, err error) {
	if len(h.Plan) > 0 {
		err = json.Unmarshal(h.Plan, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: its plan is no matrix: %w", JournalFile, err)
	}
	return m, nil
}

// Add counts the run of a job with a seed; one that no cell has is an error.
func (m *Matrix) Add(job string, seed uint64, r *reports.MatrixRun) error {
	at := slices.IndexFunc(m.Cells, func(c reports.MatrixCell) bool { return Job(CellName(c), seed) == job })
	if at < 0 || r == nil {
		return fmt.Errorf("%s: %s is of no cell of the matrix", JournalFile, job)
	}
	m.Cells[at].Add(*r)
	return nil
}

// Joint is the matrix of the runs that were counted, of so many that were planned.
func (m *Matrix) Joint(h Header, runs []reports.JointRun, planned int) reports.Matrix {
	joint := reports.NewMatrix(runs, planned, h.Seeds, m.Length, m.Families, m.Cells)
	joint.Command = h.Command + " --seeds " + h.Seeds
	return joint
}
