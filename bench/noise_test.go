package bench

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// A result says that the machine was busy by its load average, or by a baseline that is not steady.
func TestWarnings(t *testing.T) {
	at := func(load string, rounds ...int64) Results {
		r := Results{Machine: Machine{Cores: 2, Load: load}, Workloads: []WorkloadResult{{
			Workload: Workload{Name: "uncontended-1", Metric: OpsPerSecond, Baseline: BaselineSetNX},
			Systems:  []SystemResult{{Name: BaselineSetNX, Baseline: true, Rounds: slicesOf(rounds...)}},
		}}}
		r.Warnings = r.warnings()
		return r
	}
	require.Empty(t, at("0.99 3.00 3.00", 100, 101, 99).Warnings)
	require.Empty(t, at("", 100, 101, 99, 100, 10).Warnings, "one bad round of many")
	require.Empty(t, at("").Warnings)
	require.Empty(t, at("", 0, 0).Warnings)
	busy := at("1.00 0.00 0.00", 100, 200, 100, 200)
	require.Len(t, busy.Warnings, 2)
	require.Contains(t, busy.Warnings[0], "load average 1.00 on 2 cores")
	require.Contains(t, busy.Warnings[1], "uncontended-1 (2.0 times)")
	for _, write := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return busy.WriteText(b, 0) },
		func(b *bytes.Buffer) error { return busy.WriteMarkdown(b) },
		func(b *bytes.Buffer) error { return busy.WritePage(b) },
	} {
		var out bytes.Buffer
		require.NoError(t, write(&out))
		require.Contains(t, out.String(), "the machine was busy when the run began")
	}
}

// The machine is described where the system tells about it.
func TestMachine(t *testing.T) {
	m := thisMachine()
	require.NotEmpty(t, m.OS)
	require.Positive(t, m.Cores)
	require.Positive(t, m.Procs)
	require.Contains(t, Machine{Cores: 2, CPU: "a processor", Virtual: true}.describe(), "2 × a processor (virtual)")
}
