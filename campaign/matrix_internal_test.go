package campaign

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/reports"
)

// The runs of a matrix find their cells by their jobs, also where a lock is a command with words of ours, and its cells
// have the figures of all of them.
func TestMatrix(t *testing.T) {
	t.Parallel()
	const driver = "exec:driver --of seed 1 on single · none"
	m := Matrix{Length: time.Second, Families: []string{"none", "redis"}, Cells: []reports.MatrixCell{
		{Lock: driver, Topology: "single", Faults: "none"},
		{Lock: "etcd-mutex", Topology: "etcd", Faults: "redis", Impossible: "no Redis"},
		{Lock: "mutex", Topology: "single", Faults: "none"},
	}}
	h, err := m.Header("lockchaos matrix", "1-2")
	require.NoError(t, err)
	jobs, err := h.Jobs()
	require.NoError(t, err)
	require.Equal(t, []string{driver + " on single · none seed 1", driver + " on single · none seed 2", "mutex on single · none seed 1", "mutex on single · none seed 2"}, jobs)
	read, err := matrixOf(h)
	require.NoError(t, err)
	require.Equal(t, &m, read)
	for i, job := range jobs {
		seed := uint64(i%2 + 1)
		require.Same(t, &read.Cells[i/2*2], read.cell(job, seed))
		require.Nil(t, read.cell(job, 3))
		run := reports.MatrixRun{JointRun: reports.JointRun{Seed: seed, Verdict: checker.Valid}, Acquires: []time.Duration{time.Duration(i)}, NoAnswer: 1}
		read.cell(job, seed).Add(run)
	}
	joint := reports.NewMatrix(nil, 4, h.Seeds, read.Length, read.Families, read.Cells)
	require.Equal(t, 2, joint.Cells[2].Acquire.Count)
	require.Equal(t, 2, joint.Cells[0].NoAnswer)
	require.Nil(t, joint.Cells[0].Runs[0].Acquires)
	require.Equal(t, "lockchaos matrix --seeds 1-2", h.Repeat())

	none, err := matrixOf(fleet.Header{})
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = matrixOf(fleet.Header{Plan: []byte("1")})
	require.ErrorContains(t, err, "its plan is no matrix")
}
