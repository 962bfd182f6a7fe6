package reports

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
)

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	ID         int             `xml:"id,attr"`
	Name       string          `xml:"name,attr"`
	Package    string          `xml:"package,attr"`
	Hostname   string          `xml:"hostname,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
	Out        string          `xml:"system-out"`
	Err        string          `xml:"system-err"`
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
	Skipped *struct{}    `xml:"skipped"`
}

type junitResult struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes one test case a property. Invalid is a failure. Unknown is
// an error, not a skip: most readers of JUnit files colour a skip green, and
// what could not be decided must never pass for valid. A scenario has a case for its
// verdict too, which passes if it is the one that it expects: then what it violates
// on purpose passes as well, so that the file says what the exit code says.
func WriteJUnit(w io.Writer, r Results) error {
	return writeJUnit(w, junitSuites{Suites: []junitSuite{junitSuiteOf(&r)}})
}

// junitSuiteOf is the suite of a run.
func junitSuiteOf(r *Results) junitSuite {
	met, names := r.met(), junitNames(r)
	suite := junitSuite{
		Name: "lockchaos " + strings.Join(names, " "), Package: "lockchaos", Hostname: "localhost",
		Properties: junitProperties(r), Out: junitOut(r, met),
	}
	if !r.Started.IsZero() {
		suite.Timestamp = r.Started.UTC().Format("2006-01-02T15:04:05")
	}
	total := r.Duration
	add := func(name string, took time.Duration, c junitCase) {
		c.Class, c.Name, c.Time = "lockchaos."+strings.Join(names, "."), name, seconds(took)
		switch {
		case c.Failure != nil:
			suite.Failures++
		case c.Error != nil:
			suite.Errors++
		case c.Skipped != nil:
			suite.Skipped++
		}
		suite.Tests++
		suite.Cases = append(suite.Cases, c)
	}
	message := fmt.Sprintf("expected %s, got %s: %s", r.Expect, r.Verdict, r.Story.Headline)
	switch {
	case r.Expect == "" && len(r.Properties) == 0:
		add("verdict", 0, junitCase{Error: &junitResult{Type: "unknown", Message: "nothing was checked"}})
	case r.Expect == "":
	case met:
		add("verdict", r.Duration, junitCase{})
	case r.Verdict == checker.Unknown || r.AbortReason != "":
		add("verdict", r.Duration, junitCase{Error: &junitResult{Type: "unknown", Message: message}})
	default:
		add("verdict", r.Duration, junitCase{Failure: &junitResult{Type: "verdict", Message: message}})
	}
	for i := range r.Properties {
		p, c := &r.Properties[i], junitCase{}
		switch {
		case met && p.Verdict == checker.Unknown:
			c.Skipped = &struct{}{}
		case p.Verdict == checker.Valid, met:
		case p.Verdict == checker.Invalid:
			c.Failure = &junitResult{Type: "violation", Message: p.Summary, Text: explanations(p)}
			if len(p.Violations) > 0 {
				c.Failure.Type = p.Violations[0].Kind
			}
		default:
			c.Error = &junitResult{Type: "unknown", Message: p.Summary}
		}
		total += p.Took
		add(p.Name, p.Took, c)
	}
	suite.Time = seconds(total)
	return suite
}

// junitNames tell this run from others in one report of many.
func junitNames(r *Results) []string {
	names := slices.DeleteFunc([]string{cmp.Or(r.Scenario, "run"), r.Topology, r.Lock}, func(name string) bool { return name == "" })
	if r.recorded() {
		names = append(names, fmt.Sprintf("seed-%d", r.Seed))
	}
	return names
}

// named is the suite with one more part in its name, and in those of its classes.
func (s junitSuite) named(part string) junitSuite {
	s.Name += " " + part
	s.Cases = slices.Clone(s.Cases)
	for i := range s.Cases {
		s.Cases[i].Class += "." + part
	}
	return s
}

// junitOut is the story, a moment a line, with what a scenario violates as it must.
func junitOut(r *Results, met bool) string {
	lines := append([]string{r.Story.Headline}, r.Story.Lines()...)
	if words := r.Counts.String(); words != "" {
		lines = append(lines, "violated: "+words)
	}
	for i := range r.Properties {
		if p := &r.Properties[i]; p.Verdict == checker.Invalid && met {
			lines = append(lines, "as expected, "+p.Name+" is violated: "+p.Summary)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func junitProperties(r *Results) []junitProperty {
	return slices.DeleteFunc([]junitProperty{
		{"verdict", string(r.Verdict)},
		{"seed", fmt.Sprint(r.Seed)},
		{"command", r.Command},
		{"topology", r.Topology},
		{"lock", r.Lock},
		{"workload", r.Workload},
		{"version", r.Program},
	}, func(p junitProperty) bool { return p.Value == "" })
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

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
