package checker_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// A cost is what the command takes for one history.
type cost struct {
	name  string
	write func(io.Writer) error
}

// costs are the histories of the tables in docs/what-is-checked.md. LOCKCHAOS_OPERATIONS
// is how many operations the longest has, by default a million.
func costs(longest int) []cost {
	var list []cost
	add := func(name string, c crowd) { list = append(list, cost{name, c.write}) }
	for operations := longest; operations >= 1_000_000; operations /= 10 {
		add(fmt.Sprintf("operations=%d", operations), crowd{operations: operations, clients: 20})
	}
	const operations = 200_000
	for _, clients := range []int{5, 20, 100, 1_000} {
		for _, unknown := range []float64{0, 0.01, 0.2} {
			add(fmt.Sprintf("clients=%d/unknown=%g%%", clients, 100*unknown), crowd{operations: operations, clients: clients, unknown: unknown})
		}
	}
	for _, locks := range []int{1, 10, 100, 1_000, 10_000} {
		for _, unknown := range []float64{0, 0.01, 0.2} {
			add(fmt.Sprintf("locks=%d/unknown=%g%%", locks, 100*unknown), crowd{operations: operations, clients: 1_000, unknown: unknown, locks: locks})
		}
	}
	for _, unknown := range []float64{0, 0.01, 0.2} {
		add(fmt.Sprintf("read-write/unknown=%g%%", 100*unknown), crowd{operations: operations, clients: 100, unknown: unknown, mode: history.Read})
		for _, permits := range []int{5, 50} {
			add(fmt.Sprintf("permits=%d/unknown=%g%%", permits, 100*unknown), crowd{operations: operations, clients: 100, unknown: unknown, mode: history.Permit, permits: permits})
		}
	}
	for _, t := range []struct {
		name    string
		n       int
		declare history.Event
		mode    history.Mode
	}{
		{"readers", 100_000, history.Event{Kind: history.KindRW}, history.Read},
		{"permits", 60_000, history.Event{Kind: history.KindSemaphore, Capacity: 1 << 20}, history.Permit},
		{"locks", 100_000, history.Event{}, ""},
		{"locks", 400_000, history.Event{}, ""},
	} {
		list = append(list, cost{fmt.Sprintf("together/%s=%d", t.name, t.n), func(w io.Writer) error {
			out := bufio.NewWriterSize(w, 1<<20)
			lines := json.NewEncoder(out)
			for e := range heldTogether(t.n, t.declare, t.mode) {
				if err := lines.Encode(e); err != nil {
					return err
				}
			}
			return out.Flush()
		}})
	}
	return list
}

// BenchmarkCost is what `lockchaos check FILE` takes: time, processor time and the peak of
// the memory of its process. LOCKCHAOS_BINARY names the program.
func BenchmarkCost(b *testing.B) {
	binary := os.Getenv("LOCKCHAOS_BINARY")
	if binary == "" {
		b.Skip("LOCKCHAOS_BINARY names no program: make bench-checker")
	}
	for _, c := range costs(longest(b)) {
		b.Run(c.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "history.jsonl")
			f, err := os.Create(path)
			require.NoError(b, err)
			require.NoError(b, c.write(f))
			require.NoError(b, f.Close())
			var took, processor []time.Duration
			peak := int64(0)
			for b.Loop() {
				check := exec.CommandContext(b.Context(), binary, "check", path)
				began := time.Now()
				out, err := check.CombinedOutput()
				took = append(took, time.Since(began))
				if code := check.ProcessState.ExitCode(); code != 0 && code != 2 {
					require.NoError(b, err, "%s", out)
				}
				processor = append(processor, check.ProcessState.UserTime()+check.ProcessState.SystemTime())
				if usage, ok := check.ProcessState.SysUsage().(*syscall.Rusage); ok {
					peak = max(peak, usage.Maxrss)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(took).Seconds(), "s")
			b.ReportMetric(median(processor).Seconds(), "CPU-s")
			b.ReportMetric(float64(peak)/1024, "peak-MB")
		})
	}
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
