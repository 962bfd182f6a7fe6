package reports_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

func TestCompare(t *testing.T) {
	for name, pair := range map[string][2]reports.Named{
		"failover-undecided": {{Name: "runs/a", Input: failover()}, {Name: "runs/b", Input: undecided()}},
		"busy-slow":          {{Name: "runs/quick", Input: busy(4, 200, 6)}, {Name: "runs/slow", Input: busy(4, 80, 18)}},
		"same":               {{Name: "runs/a", Input: valid()}, {Name: "runs/b", Input: valid()}},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "compare/"+name+".txt", written(t, func(w io.Writer) error {
				return reports.WriteComparisonText(w, reports.Compare(pair[0], pair[1]))
			}))
			page := string(written(t, func(w io.Writer) error { return reports.WriteComparison(w, pair[0], pair[1]) }))
			counts := elements(t, withoutCode(page), false)
			require.Equal(t, 1, counts["h1"])
			require.NotContains(t, page, "<script")
			require.Equal(t, page, string(written(t, func(w io.Writer) error { return reports.WriteComparison(w, pair[0], pair[1]) })))
		})
	}
}

func TestCompareHostileNames(t *testing.T) {
	page := string(written(t, func(w io.Writer) error {
		return reports.WriteComparison(w, reports.Named{Name: leaves, Input: hostile(leaves)}, reports.Named{Name: leaves, Input: valid()})
	}))
	require.NotContains(t, page, "<script")
	require.Zero(t, elements(t, withoutCode(page), false)["img"])
}
