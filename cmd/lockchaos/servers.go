package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/scenarios"
)

// inServersFile are the flags that a file can say. --yes is none: leave to disturb the users of servers is given for each run.
func inServersFile() []string {
	return append([]string{"backend", "image"}, slices.DeleteFunc(slices.Clone(attachFlags), func(name string) bool { return name == "yes" })...)
}

// readFile sets the flags that the file of --servers says, and returns their names. What was typed counts.
func (s *serverFlags) readFile(cmd *cobra.Command) (set []string, err error) {
	if s.file == "" {
		return nil, nil
	}
	said := map[string]any{}
	f, err := history.Open(s.file)
	if err != nil {
		return nil, fmt.Errorf("--servers: %w", err)
	}
	defer f.Close()
	const most = 1 << 16
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("longer than %d bytes", most)
	}
	if err == nil {
		err = scenarios.Bounded(b)
	}
	if errors.Is(err, scenarios.ErrEmpty) {
		err = errors.New(`it is empty; want flags without their dashes, such as "endpoints: [127.0.0.1:6379]"`)
	}
	if err == nil {
		if wrong := yaml.Unmarshal(b, &said); wrong != nil {
			err = errors.New(strings.TrimSpace(yaml.FormatError(wrong, false, true)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		flag := cmd.Flag(name)
		if !slices.Contains(inServersFile(), name) {
			err = errors.Join(err, names.Unknown("setting", name, inServersFile()))
			continue
		}
		var words []string
		list, isList := said[name].([]any)
		if !isList {
			list = []any{said[name]}
		}
		for _, word := range list {
			words = append(words, fmt.Sprint(word))
		}
		if flag.Changed {
			continue
		}
		if wrong := flag.Value.Set(strings.Join(words, ",")); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, wrong))
		}
		set = append(set, name)
	}
	if err != nil {
		return nil, fmt.Errorf("--servers %s: %w", s.file, err)
	}
	return set, nil
}
