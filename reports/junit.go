package reports

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
	Out        string          `xml:"system-out,omitempty"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr"`
	Failure *junitResult `xml:"failure,omitempty"`
	Error   *junitResult `xml:"error,omitempty"`
}

type junitResult struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes one test case a property. Invalid is a failure. Unknown is
// an error, not a skip: most readers of JUnit files colour a skip green, and
// what could not be decided must never pass for valid.
func WriteJUnit(w io.Writer, r Results) error {
	name := r.Scenario
	if name == "" {
		name = "run"
	}
	suite := junitSuite{
		Name: "lockchaos " + name, Properties: junitProperties(&r), Out: r.Story.String() + "\n",
	}
	if !r.Started.IsZero() {
		suite.Timestamp = r.Started.UTC().Format("2006-01-02T15:04:05")
	}
	var total time.Duration
	for i := range r.Properties {
		p := &r.Properties[i]
		c := junitCase{Class: "lockchaos." + name, Name: p.Name, Time: seconds(p.Took)}
		switch p.Verdict {
		case checker.Valid:
		case checker.Invalid:
			suite.Failures++
			c.Failure = &junitResult{Type: failureType(p), Message: p.Summary, Text: explanations(p)}
		default:
			suite.Errors++
			c.Error = &junitResult{Type: "unknown", Message: p.Summary}
		}
		total += p.Took
		suite.Cases = append(suite.Cases, c)
	}
	if len(suite.Cases) == 0 {
		suite.Errors++
		suite.Cases = []junitCase{{
			Class: "lockchaos." + name, Name: "verdict", Time: seconds(0),
			Error: &junitResult{Type: "unknown", Message: "nothing was checked"},
		}}
	}
	suite.Tests, suite.Time = len(suite.Cases), seconds(total)
	doc := junitSuites{
		Name: "lockchaos", Tests: suite.Tests, Failures: suite.Failures, Errors: suite.Errors,
		Time: suite.Time, Suites: []junitSuite{suite},
	}
	out, err := xml.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	if _, err := fmt.Fprintf(w, "%s%s\n", xml.Header, Plain(string(out))); err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	return nil
}

func junitProperties(r *Results) []junitProperty {
	var properties []junitProperty
	for _, p := range []junitProperty{
		{"verdict", string(r.Verdict)},
		{"seed", fmt.Sprint(r.Seed)},
		{"command", r.Command},
		{"topology", r.Topology},
		{"lock", r.Lock},
		{"workload", r.Workload},
		{"version", r.Program},
	} {
		if p.Value != "" {
			properties = append(properties, p)
		}
	}
	return properties
}

func failureType(p *checker.Result) string {
	if len(p.Violations) == 0 {
		return "violation"
	}
	return p.Violations[0].Kind
}

// explanations are the violations of a property, one a line.
func explanations(p *checker.Result) string {
	var b strings.Builder
	for _, v := range p.Violations {
		fmt.Fprintf(&b, "%s: %s (events %s)\n", v.Kind, v.Explanation, indices(v.Events))
	}
	if more := p.Total - len(p.Violations); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String()
}

func indices(events []int64) string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = fmt.Sprintf("#%d", e)
	}
	return strings.Join(names, ", ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
