package fleet_test

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
	m := fleet.Matrix{Length: time.Second, Families: []string{"none", "redis"}, Cells: []reports.MatrixCell{
		{Lock: driver, Topology: "single", Faults: "none"},
		{Lock: "etcd-mutex", Topology: "etcd", Faults: "redis", Impossible: "no Redis"},
		{Lock: "mutex", Topology: "single", Faults: "none"},
	}}
	h, err := m.Header("lockchaos matrix", "1-2")
	require.NoError(t, err)
	jobs, err := h.Jobs()
	require.NoError(t, err)
	require.Equal(t, []string{driver + " on single · none seed 1", driver + " on single · none seed 2", "mutex on single · none seed 1", "mutex on single · none seed 2"}, jobs)
	read, err := fleet.MatrixOf(h)
	require.NoError(t, err)
	require.Equal(t, &m, read)
	for i, job := range jobs {
		run := reports.MatrixRun{JointRun: reports.JointRun{Seed: uint64(i%2 + 1), Verdict: checker.Valid}, Acquires: []time.Duration{time.Duration(i)}, NoAnswer: 1}
		require.NoError(t, read.Add(job, run.Seed, &run))
		require.ErrorContains(t, read.Add(job, 3, &run), "is of no cell of the matrix")
		require.ErrorContains(t, read.Add(job, run.Seed, nil), "is of no cell of the matrix")
	}
	joint := read.Joint(h, nil, 4)
	require.Equal(t, "lockchaos matrix --seeds 1-2", joint.Command)
	require.Equal(t, 2, joint.Cells[2].Acquire.Count)
	require.Equal(t, 2, joint.Cells[0].NoAnswer)
	require.Nil(t, joint.Cells[0].Runs[0].Acquires)

	none, err := fleet.MatrixOf(fleet.Header{})
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = fleet.MatrixOf(fleet.Header{Plan: []byte("1")})
	require.ErrorContains(t, err, "its plan is no matrix")
}
