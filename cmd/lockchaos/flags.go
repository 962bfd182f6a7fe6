package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// aboveZero refuses flags that were set to 0, which would mean their default.
func aboveZero(cmd *cobra.Command, names ...string) error {
	var errs []error
	for _, name := range names {
		f := cmd.Flag(name)
		if v := f.Value.String(); f.Changed && (v == "0" || v == "0s") {
			errs = append(errs, fmt.Errorf("--%s must be above 0", name))
		}
	}
	return errors.Join(errs...)
}

// changedFlags are the flags that repeat a command: those that were given, but
// for where the output goes. The seed is named in any case.
func changedFlags(cmd *cobra.Command) string {
	seed := cmd.Flag("seed")
	if seed == nil {
		return flagsWithSeed(cmd, "")
	}
	return flagsWithSeed(cmd, seed.Value.String())
}

// flagsWithSeed are those of changedFlags with another seed; with none if it is empty.
func flagsWithSeed(cmd *cobra.Command, seed string) string {
	var b strings.Builder
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "out", "json", "markdown", "verbose", "help", "all", "stores", "repeat", "seeds", "parallel", "keep", "shard", "resume", "judged-is-ok":
			return
		case "seed":
			if seed != "" {
				b.WriteString(" --seed " + seed)
			}
			return
		default:
			if !f.Changed {
				return
			}
		}
		b.WriteString(" --" + f.Name)
		if list, ok := f.Value.(pflag.SliceValue); ok {
			b.WriteString(" " + quoted(strings.Join(list.GetSlice(), ",")))
		} else if f.Value.Type() != "bool" {
			b.WriteString(" " + quoted(f.Value.String()))
		} else if f.Value.String() != "true" {
			b.WriteString("=" + f.Value.String())
		}
	})
	return b.String()
}

// plain are the words that mean themselves to a shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted is a word as it must be typed into a shell.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
