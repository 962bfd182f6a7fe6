package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/lockchaos/lockchaos/bench"
)

// benchCompare is what bench does with earlier results.
type benchCompare struct {
	old, failOn string
	table       bool
}

// validate says what does not go together.
func (c benchCompare) validate(flags *pflag.FlagSet, args []string) error {
	switch {
	case c.failOn != "" && c.failOn != failOnWorse:
		return fmt.Errorf("--fail-on: %q is not known (want %s)", c.failOn, failOnWorse)
	case c.failOn != "" && c.old == "":
		return errors.New("--fail-on needs --compare with an earlier result")
	case c.table && c.old != "":
		return errors.New("--table and --compare don't go together")
	case c.table && len(args) == 0:
		return errors.New("--table: name the results to show side by side, as --json wrote them")
	case !c.table && c.old == "" && len(args) > 0:
		return fmt.Errorf("bench measures without an argument; %s is for --table, or for --compare", args[0])
	case c.old != "" && len(args) > 1:
		return errors.New("--compare takes one later result, or none, to measure it now")
	case len(args) > 0:
		return withoutMeasuring(flags)
	}
	return nil
}

// withoutMeasuring refuses flags that have no effect where results are only read.
func withoutMeasuring(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		switch {
		case slices.Contains([]string{"compare", "fail-on", "table", "verbose"}, f.Name):
		case f.Name != "markdown":
			err = errors.Join(err, fmt.Errorf("--%s is for measuring, and results are only read here", f.Name))
		case f.Value.String() != "-":
			err = errors.Join(err, errors.New("--markdown: results that are only read are printed; say --markdown -"))
		}
	})
	return err
}

func readBench(path string) (r bench.Results, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("read results: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read results: %s is not what bench --json writes: %w", path, err)
	}
	if r.Version != bench.Version {
		return r, fmt.Errorf("read results: %s has version %d, and not %d", path, r.Version, bench.Version)
	}
	return r, nil
}

// benchSide prints results side by side.
func (a *app) benchSide(paths []string, files benchFiles) error {
	var all []bench.Named
	for _, path := range paths {
		r, err := readBench(path)
		if err != nil {
			return err
		}
		all = append(all, bench.Named{Name: filepath.Clean(path), Results: r})
	}
	if files.markdown == "-" {
		return asHarness(bench.WriteSideMarkdown(a.stdout, all))
	}
	return asHarness(bench.WriteSideText(a.stdout, all))
}

// benchChange compares two results that were measured before.
func (a *app) benchChange(older bench.Results, path string, c benchCompare, files benchFiles) error {
	newer, err := readBench(path)
	if err != nil {
		return err
	}
	change := bench.Compare(older, newer)
	write := change.WriteText
	if files.markdown == "-" {
		write = change.WriteMarkdown
	}
	return errors.Join(asHarness(write(a.stdout)), c.judge(change))
}

// judge is the exit code of a comparison.
func (c benchCompare) judge(change bench.Comparison) error {
	if c.failOn != "" && len(change.Worse()) > 0 {
		return verdictError(exitInvalid)
	}
	return nil
}
