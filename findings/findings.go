// Package findings has drivers of published libraries, and what lockchaos found in these: for each finding a
// file says which library, what it does, how that is shown, and how often it was.
//
// The drivers beside the files are small: a library, and the protocol of docs/driver-protocol.md.
package findings

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

//go:embed *.yaml drivers
var files embed.FS

// A Finding is one defect or limit of a library, with what shows it.
type Finding struct {
	// Name is that of the file.
	Name string `yaml:"-"`
	// Library is what was under test.
	Library `yaml:",inline"`
	// Fixed is a version in which it is gone, and FixedPackages is what is installed for that; empty: none is known.
	Fixed         string   `yaml:"fixed"`
	FixedPackages []string `yaml:"fixed_packages"`
	// Kind is that of the violation, one of [checker.Kinds].
	Kind string `yaml:"kind"`
	// Text says in a sentence or two what the library does, by which mechanism.
	Text string `yaml:"finding"`
	// Run are the flags of lockchaos run, but for the lock and the seeds, which are 1 to Rate.Of.
	Run string `yaml:"run"`
	// Rate is how often it was found, FixedRate that with the fixed version, and Control that of a
	// correct lock with the same flags.
	Rate      Rate  `yaml:"rate"`
	FixedRate *Rate `yaml:"fixed_rate"`
	Control   Rate  `yaml:"control"`
	// Issue is a public report; empty: none was found.
	Issue string `yaml:"issue"`
	// View is how the maintainers see it, one of [Views].
	View string `yaml:"view"`
}

// A Rate is how many of so many runs showed a finding.
type Rate struct {
	Found int `json:"found" yaml:"found"`
	Of    int `json:"of" yaml:"of"`
}

// String is the rate with the interval in which the share of all runs lies; empty where there were none.
func (r Rate) String() string {
	if r.Of == 0 {
		return ""
	}
	in := reports.Interval(r.Found, r.Of)
	return fmt.Sprintf("%d of %d (%.0f–%.0f %%)", r.Found, r.Of, 100*in[0], 100*in[1])
}

// Views are the ways in which maintainers see a finding.
func Views() []string { return []string{"defect", "documented limit", "meant", "open", "not asked"} }

// All are the findings, in order of language and name.
func All() ([]Finding, error) {
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	all, errs := make([]Finding, 0, len(paths)), []error{err}
	for _, name := range paths {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parse(name, b)
		all, errs = append(all, f), append(errs, err)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return strings.Compare(a.Language, b.Language) })
	return all, errors.Join(errs...)
}

// parse reads a file strictly, and joins all that is wrong with it.
func parse(name string, b []byte) (Finding, error) {
	f := Finding{Name: strings.TrimSuffix(name, ".yaml")}
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil {
		return f, fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(name+": "+format, args...)) }
	errs = append(errs, f.check(name))
	if f.Text == "" || f.Run == "" {
		wrong("it has no finding or no run")
	}
	if _, place := checker.KindOf(f.Kind); place == len(checker.Kinds()) {
		wrong("unknown kind of violation %q", f.Kind)
	}
	if !slices.Contains(Views(), f.View) {
		wrong("%v", names.Unknown("view", f.View, Views()))
	}
	for what, r := range map[string]*Rate{"rate": &f.Rate, "control": &f.Control, "fixed_rate": f.FixedRate} {
		if r != nil && (r.Found < 0 || r.Of < 1 || r.Found > r.Of) {
			wrong("%s: %d of %d is no rate", what, r.Found, r.Of)
		}
	}
	if f.Rate.Found == 0 {
		wrong("no run showed it")
	}
	if (f.Fixed == "") != (len(f.FixedPackages) == 0) || (f.Fixed == "") != (f.FixedRate == nil) {
		wrong("a fixed version has packages and a rate, and nothing else has")
	}
	if u, err := url.Parse(f.Issue); f.Issue != "" && (err != nil || u.Scheme != "https") {
		wrong("the issue %q is no address", f.Issue)
	}
	return f, errors.Join(errs...)
}

// ByName are the findings of these names.
func ByName(all []Finding, wanted []string) ([]Finding, error) {
	var found []Finding
	var known []string
	for _, f := range all {
		known = append(known, f.Name)
	}
	for _, name := range wanted {
		at := slices.Index(known, name)
		if at < 0 {
			return nil, names.Unknown("finding", name, known)
		}
		found = append(found, all[at])
	}
	return found, nil
}

// Markdown is the page of all findings.
func Markdown(all []Finding) string {
	rows := [][]string{{"finding", "library", "what it does", "kind", "found", "correct lock", "public report"}}
	for _, f := range all {
		found := f.Rate.String()
		if f.FixedRate != nil {
			found += fmt.Sprintf("; %s: %s", f.Fixed, f.FixedRate)
		}
		issue := "none found when we looked"
		if f.Issue != "" {
			issue = "[" + strings.TrimPrefix(f.Issue, "https://github.com/") + "](" + f.Issue + ")"
		}
		rows = append(rows, []string{
			"`" + f.Name + "`", fmt.Sprintf("%s %s (%s)", f.Library.Name, f.Version, f.Language),
			strings.ReplaceAll(strings.TrimSpace(f.Text), "\n", " "), "`" + f.Kind + "`", found, f.Control.String(), issue + "; " + f.View,
		})
	}
	return say.Markdown(rows)
}
