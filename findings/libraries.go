package findings

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Library is a lock of a published library, as a driver puts it under test.
type Library struct {
	// Name, Language and Version say what is under test.
	Name     string `yaml:"library"`
	Language string `yaml:"language"`
	Version  string `yaml:"version"`
	// Driver is a file of the drivers, with its arguments, and Packages is what the package
	// manager of the language installs for it.
	Driver   string   `yaml:"driver"`
	Packages []string `yaml:"packages"`
}

// check joins what is wrong with what a file says of a library.
func (l Library) check(where string) error {
	var errs []error
	if l.Name == "" || l.Version == "" {
		errs = append(errs, fmt.Errorf("%s: it has no library or no version", where))
	}
	if managers()[l.Language].start == "" {
		errs = append(errs, fmt.Errorf("%s: no package manager is known for language %q", where, l.Language))
	}
	file, _, _ := strings.Cut(l.Driver, " ")
	if _, err := fs.Stat(files, path.Join("drivers", l.Language, file)); err != nil || len(l.Packages) == 0 {
		errs = append(errs, fmt.Errorf("%s: it needs a driver that is there, and packages: %w", where, err))
	}
	return errors.Join(errs...)
}

// A Subject is a lock that can be run by name, on some topologies.
type Subject struct {
	Library `yaml:",inline"`
	// Topologies are those that its driver can be on.
	Topologies []string `yaml:"topologies"`
}

// subjectsFile has the locks that can be run by name.
const subjectsFile = "drivers/libraries.yaml"

// Subjects are the locks that can be run by name, and their names in order.
func Subjects() (map[string]Subject, []string, error) {
	b, err := files.ReadFile(subjectsFile)
	if err != nil {
		return nil, nil, err
	}
	all, err := parseSubjects(b)
	return all, slices.Sorted(maps.Keys(all)), err
}

// parseSubjects reads the file strictly, and joins all that is wrong with it.
func parseSubjects(b []byte) (map[string]Subject, error) {
	var all map[string]Subject
	err := yaml.UnmarshalWithOptions(b, &all, yaml.Strict())
	for name, s := range all {
		err = errors.Join(err, s.check(name))
		if len(s.Topologies) == 0 {
			err = errors.Join(err, fmt.Errorf("%s: it has no topology", name))
		}
		for _, on := range s.Topologies {
			if !slices.Contains(topologies.Names(), on) {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, names.Unknown("topology", on, topologies.Names())))
			}
		}
	}
	return all, err
}

// Prefix begins the name of a [Subject] as a lock: lib:redis-py.
const Prefix = "lib:"

// Lock installs a library that is named as a lock, and is the command of its driver as the name of a lock; any other name
// stays as it is.
func (p Player) Lock(ctx context.Context, name string) (string, error) {
	library, is := strings.CutPrefix(name, Prefix)
	if !is {
		return name, nil
	}
	all, known, err := Subjects()
	if err != nil {
		return "", err
	}
	s, is := all[library]
	if !is {
		return "", names.Unknown("library", library, known)
	}
	command, err := p.Install(ctx, s.Library, s.Packages)
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return "exec:" + command, nil
}

// Rows are those of a comparison of locks: of a library without @TOPOLOGY one for each topology that it can be on, and of lib:all
// those of all libraries.
func Rows(entries []string) ([]string, error) {
	all, known, err := Subjects()
	var rows []string
	for _, entry := range entries {
		name, is := strings.CutPrefix(entry, Prefix)
		if !is || strings.Contains(name, "@") {
			rows = append(rows, entry)
			continue
		}
		of := []string{name}
		if name == "all" {
			of = known
		}
		for _, name := range of {
			if _, is := all[name]; !is {
				err = errors.Join(err, names.Unknown("library", name, known))
			}
			for _, topology := range all[name].Topologies {
				rows = append(rows, Prefix+name+"@"+topology)
			}
		}
	}
	return rows, err
}
