package reports_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
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

// A strictSuite is a suite as the schema of Ant has it, which Jenkins and Surefire read
// too: these attributes and elements, each with its type, in this order, and no others.
var strictSuite = map[string]struct{ attributes, optional, children []string }{
	"testsuites": {children: []string{"testsuite"}},
	"testsuite": {
		attributes: []string{"errors", "failures", "hostname", "id", "name", "package", "skipped", "tests", "time"}, optional: []string{"timestamp"},
		children: []string{"properties", "testcase", "system-out", "system-err"},
	},
	"properties": {children: []string{"property"}},
	"property":   {attributes: []string{"name", "value"}},
	"testcase":   {attributes: []string{"classname", "name", "time"}, children: []string{"skipped", "error", "failure"}},
	"skipped":    {},
	"error":      {attributes: []string{"message", "type"}},
	"failure":    {attributes: []string{"message", "type"}},
	"system-out": {},
	"system-err": {},
}

// strictly checks a file against the schema.
func strictly(t *testing.T, file []byte) {
	t.Helper()
	type open struct {
		name  string
		child int // the place of the last child among those that may come
		cases map[string]int
		attrs map[string]string
	}
	var stack []*open
	d := xml.NewDecoder(bytes.NewReader(file))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			name := e.Name.Local
			known, ok := strictSuite[name]
			require.True(t, ok, "an element %s", name)
			now := &open{name: name, cases: map[string]int{}, attrs: map[string]string{}}
			for _, a := range e.Attr {
				require.True(t, slices.Contains(append(known.attributes, known.optional...), a.Name.Local), "%s has an attribute %s", name, a.Name.Local)
				now.attrs[a.Name.Local] = a.Value
			}
			for _, a := range known.attributes {
				require.Contains(t, now.attrs, a, name)
			}
			for _, number := range []string{"tests", "failures", "errors", "skipped", "id"} {
				if v, ok := now.attrs[number]; ok {
					_, err := strconv.ParseUint(v, 10, 31)
					require.NoError(t, err, number)
				}
			}
			if v, ok := now.attrs["time"]; ok {
				require.Regexp(t, `^\d+\.\d{3}$`, v)
			}
			if v, ok := now.attrs["timestamp"]; ok {
				require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$`, v)
			}
			if len(stack) > 0 {
				in := stack[len(stack)-1]
				at := slices.Index(strictSuite[in.name].children, name)
				require.GreaterOrEqual(t, at, in.child, "%s after others in %s", name, in.name)
				in.child = at
				in.cases[name]++
				if in.name == "testcase" {
					require.Equal(t, 1, len(in.cases), "a case has one result")
					stack[len(stack)-2].cases[name]++
				}
			} else {
				require.Equal(t, "testsuites", name)
			}
			stack = append(stack, now)
		case xml.EndElement:
			now := stack[len(stack)-1]
			if now.name == "testsuite" {
				for attribute, of := range map[string]string{"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"} {
					require.Equal(t, now.attrs[attribute], strconv.Itoa(now.cases[of]), attribute)
				}
			}
			stack = stack[:len(stack)-1]
		}
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
