package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// aboveZero refuses flags that were set to 0, which would mean their default.
func aboveZero(cmd *cobra.Command, names ...string) error {
	var wrong error
	for _, name := range names {
		f := cmd.Flag(name)
		wrong = errors.Join(wrong, refuse(f.Changed && (f.Value.String() == "0" || f.Value.String() == "0s"), "--%s must be above 0", name))
	}
	return wrong
}

// refuse is an error where that is so.
func refuse(is bool, format string, args ...any) error {
	if is {
		return fmt.Errorf(format, args...)
	}
	return nil
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
	var words []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "out", "json", "format", "verbose", "help", "all", "stores", "repeat", "seeds", "parallel", "keep", "shard", "resume", "judged-is-ok":
			return
		case "seed":
			if seed != "" {
				words = append(words, " --seed "+seed)
			}
			return
		}
		list, isList := f.Value.(pflag.SliceValue)
		switch value := f.Value.String(); {
		case !f.Changed:
		case isList:
			words = append(words, " --"+f.Name+" "+quoted(strings.Join(list.GetSlice(), ",")))
		case f.Value.Type() != "bool":
			words = append(words, " --"+f.Name+" "+quoted(value))
		case value == "true":
			words = append(words, " --"+f.Name)
		default:
			words = append(words, " --"+f.Name+"="+value)
		}
	})
	slices.Sort(words)
	return strings.Join(words, "")
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
