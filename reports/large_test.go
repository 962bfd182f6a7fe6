package reports_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// A million operations must stay small and quick to draw. `go test -bench
// Large ./reports` prints the figures.
func BenchmarkLarge(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := crowded(3, 8, n/3)
			b.ResetTimer()
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				require.NoError(b, reports.WriteHTML(&out, in))
			}
			b.ReportMetric(float64(out.Len())/1e6, "MB")
			require.Less(b, out.Len(), 1_500_000)
		})
	}
}
