package reports_test

import (
	"encoding/xml"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
)

// A suite is what a CI reads of a file.
type suite struct {
	Name     string  `xml:"name,attr"`
	Failures int     `xml:"failures,attr"`
	Errors   int     `xml:"errors,attr"`
	Time     float64 `xml:"time,attr"`
	Cases    []struct {
		Class string `xml:"classname,attr"`
		Name  string `xml:"name,attr"`
	} `xml:"testcase"`
}

func suiteOf(t *testing.T, in reports.Input) suite {
	t.Helper()
	var doc struct {
		Suites []suite `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(written(t, func(w io.Writer) error { return reports.WriteJUnit(w, reports.Summarize(in)) }), &doc))
	require.Len(t, doc.Suites, 1)
	return doc.Suites[0]
}

// The file agrees with the exit code of reproduce.
func TestJUnitOfAScenario(t *testing.T) {
	in := failover()
	s := suiteOf(t, in)
	require.Zero(t, s.Failures+s.Errors, "it is invalid, as it must be")
	require.Greater(t, s.Time, 2.9, "the time of the run counts, not that of the checker alone")

	in.Run.Expect = string(checker.Valid)
	require.Equal(t, 3, suiteOf(t, in).Failures, "the verdict and two properties")

	in = valid()
	in.Run.Scenario, in.Run.Expect = "failover-double-grant", string(checker.Invalid)
	require.Equal(t, 1, suiteOf(t, in).Failures, "it shows nothing of what it must")

	in = failover()
	in.Run.Unmet = "step 3"
	require.Positive(t, suiteOf(t, in).Errors, "a script that was cut short passes nothing")
}

// Jobs of a matrix do not overwrite each other.
func TestJUnitNames(t *testing.T) {
	names := map[string]bool{}
	for _, seed := range []uint64{1, 2} {
		for _, lock := range []string{"mutex", "fair"} {
			in := valid()
			in.Run.Seed, in.Run.Lock = seed, lock
			s := suiteOf(t, in)
			names[s.Name], names[s.Cases[0].Class] = true, true
		}
	}
	require.Len(t, names, 8)
}

// A percentile is given where its sample carries it.
func TestPercentiles(t *testing.T) {
	for _, tt := range []struct {
		grants           int
		p95, p99, p99And bool
	}{{2, false, false, false}, {19, false, false, false}, {20, true, false, false}, {100, true, true, false}, {1000, true, true, true}} {
		s := &script{}
		for i := range tt.grants {
			at := 10 * float64(i)
			s.acquire(1, "orders", "a#1", "redis-1", at, at+1+float64(i%7), 300)
			s.release(1, "orders", "a#1", "redis-1", at+8, at+9)
		}
		l := reports.Summarize(reports.Input{Run: run(), History: s.history()}).Latency["acquire"]
		require.Equal(t, []bool{tt.p95, tt.p99, tt.p99And}, []bool{l.P95 > 0, l.P99 > 0, l.P999 > 0}, tt.grants)
		require.GreaterOrEqual(t, l.Max, 1*time.Millisecond)
	}
}
