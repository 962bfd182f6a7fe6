package reports_test

import (
	"encoding/xml"
	"io"
	"testing"

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
	in.Run.AbortReason = "step 3"
	require.Positive(t, suiteOf(t, in).Errors, "a script that was cut short passes nothing")
}

// strictly checks a file against what the schema of Ant wants, which Jenkins and Surefire read too, beyond the order of
// its elements, which the golden files have: a case has one result at most, and the counts are those of the cases.
func strictly(t *testing.T, file []byte) {
	t.Helper()
	type result struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
	}
	var doc struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []struct {
			Tests    int    `xml:"tests,attr"`
			Failures int    `xml:"failures,attr"`
			Errors   int    `xml:"errors,attr"`
			Skipped  int    `xml:"skipped,attr"`
			Time     string `xml:"time,attr"`
			Cases    []struct {
				Class   string     `xml:"classname,attr"`
				Name    string     `xml:"name,attr"`
				Time    string     `xml:"time,attr"`
				Failure []result   `xml:"failure"`
				Error   []result   `xml:"error"`
				Skipped []struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(file, &doc))
	for _, s := range doc.Suites {
		counts := [4]int{len(s.Cases)}
		for _, c := range s.Cases {
			require.NotEmpty(t, c.Class+c.Name)
			require.LessOrEqual(t, len(c.Failure)+len(c.Error)+len(c.Skipped), 1, "a case has one result")
			for _, r := range append(c.Failure, c.Error...) {
				require.NotEmpty(t, r.Type)
			}
			counts[1], counts[2], counts[3] = counts[1]+len(c.Failure), counts[2]+len(c.Error), counts[3]+len(c.Skipped)
		}
		require.Equal(t, counts, [4]int{s.Tests, s.Failures, s.Errors, s.Skipped})
	}
}

func TestJUnitKeepsToTheSchema(t *testing.T) {
	for _, fixture := range fixtures() {
		for _, expect := range []string{"", "valid", "invalid", "unknown"} {
			in := fixture()
			in.Run.Expect = expect
			strictly(t, written(t, func(w io.Writer) error { return reports.WriteJUnit(w, reports.Summarize(in)) }))
		}
	}
	strictly(t, written(t, func(w io.Writer) error { return reports.WriteJUnit(w, reports.Summarize(hostile(leaves))) }))
}
