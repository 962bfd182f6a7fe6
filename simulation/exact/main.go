// Exact writes an overlay for `go build` in which the Go runtime takes what it chooses at
// random in a simulation from the simulation's seed, so that a run replays identically:
//
//	go run ./simulation/exact DIR && go build -overlay DIR/overlay.json -tags lockchaos_exact ./cmd/lockchaos
//
// The sources of the installed Go are copied to DIR and changed there. If they are not those
// for which the changes were written, it says which change does not fit, and writes nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A change replaces a text that occurs once in a file of package runtime.
type change struct{ file, why, old, new string }

// changes lists what is random, or depends on the load of the machine, in a bubble of
// testing/synctest.
func changes() []change {
	return []change{
		{
			"synctest.go", "a bubble has a seed",
			"\tnow     int64  // current fake time\n",
			"\tnow     int64  // current fake time\n\trandom, order, maps uint64\n\tset uint32\n",
		},
		{
			"synctest.go", "the seed is that of the next simulation",
			"\t\troot:    gp,\n",
			"\t\troot:    gp,\n\t\trandom: SimulationSeed, order: SimulationSeed + 1, maps: SimulationSeed*0x9e3779b97f4a7c15 + 1,\n",
		},
		{
			"time.go", "of two timers of one instant that which was set first fires first",
			"\t\t\tt.rand = cheaprand()\n",
			"\t\t\tb := getg().bubble\n\t\t\tb.set++\n\t\t\tt.rand = b.set\n",
		},
		{
			"select.go", "which ready case of a select is taken",
			"\t\tj := cheaprandn(uint32(norder + 1))\n",
			"\t\tj := orderOf(gp, uint32(norder+1))\n",
		},
		{
			"rand.go", "math/rand/v2, and others that draw from the runtime",
			"func rand() uint64 {\n",
			"func rand() uint64 {\n\tif b := getg().bubble; b != nil {\n\t\treturn nextOf(&b.random)\n\t}\n",
		},
		{
			"rand.go", "the order in which maps are iterated over",
			"func maps_rand() uint64 {\n",
			"func maps_rand() uint64 {\n\tif b := getg().bubble; b != nil {\n\t\treturn b.maps\n\t}\n",
		},
		{
			"rand.go", "the seeds of small maps",
			"func rand32() uint32 {\n",
			"func rand32() uint32 {\n\tif b := getg().bubble; b != nil {\n\t\treturn uint32(b.maps)\n\t}\n",
		},
		{
			"rand.go", "what a process draws at its start, such as the keys of hashes",
			"\tglobalRand.state.Init(*seed)\n",
			"\t*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)\n",
		},
		{
			"proc.go", "a goroutine is not interrupted because the machine is busy",
			"\t\t\tpreemptone(pp)\n\t\t\t// If pp is in a syscall",
			"\t\t\tif mp := pp.m.ptr(); mp == nil || mp.curg == nil || mp.curg.bubble == nil {\n\t\t\t\tpreemptone(pp)\n\t\t\t}\n\t\t\t// If pp is in a syscall",
		},
	}
}

// added is appended to a file.
const (
	addedTo = "rand.go"
	added   = `
// SimulationSeed is the seed of the next bubble.
//
//go:linkname SimulationSeed
var SimulationSeed uint64

// nextOf is the next number of a splitmix64.
//
//go:nosplit
func nextOf(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func orderOf(gp *g, n uint32) uint32 {
	if gp.bubble == nil {
		return cheaprandn(n)
	}
	return uint32((nextOf(&gp.bubble.order) >> 32) * uint64(n) >> 32)
}
`
)

// changed is what the files of a runtime are with all changes, by name.
func changed(read func(name string) ([]byte, error)) (map[string]string, error) {
	files := map[string]string{}
	var errs []error
	for _, c := range changes() {
		if _, had := files[c.file]; !had {
			b, err := read(c.file)
			if err != nil {
				return nil, fmt.Errorf("read the source of Go: %w", err)
			}
			files[c.file] = string(b)
		}
		if n := strings.Count(files[c.file], c.old); n != 1 {
			errs = append(errs, fmt.Errorf("runtime/%s: want one place, and there are %d, for: %s", c.file, n, c.why))
		}
		files[c.file] = strings.Replace(files[c.file], c.old, c.new, 1)
	}
	files[addedTo] += added
	return files, errors.Join(errs...)
}

// write writes the overlay to a directory.
func write(dir string) error {
	out, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	runtime := filepath.Join(goroot, "src", "runtime")
	files, err := changed(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(runtime, name)) }) //nolint:gosec // of the installed Go
	if err != nil {
		return fmt.Errorf("the exact build does not fit %s; lockchaos simulate works with the plain build:\n%w", version, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("find directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // others may read it
		return fmt.Errorf("make directory: %w", err)
	}
	replace := map[string]string{}
	put := func(name string, b []byte) error {
		return os.WriteFile(filepath.Join(dir, name), b, 0o644) //nolint:gosec // others may read it
	}
	for name, text := range files {
		replace[filepath.Join(runtime, name)] = filepath.Join(dir, name)
		err = errors.Join(err, put(name, []byte(text)))
	}
	list, encoding := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err := errors.Join(err, encoding, put("overlay.json", list)); err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	return nil
}

func main() {
	if len(os.Args) != 2 || slices.Contains([]string{"-h", "--help"}, os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: exact DIR")
		os.Exit(2) //nolint:forbidigo // it is a program
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "exact:", err)
		os.Exit(1) //nolint:forbidigo // it is a program
	}
}
