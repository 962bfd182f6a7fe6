package findings

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/spawn"
)

// A manager installs the packages of a driver into a folder that has the drivers of its language, and
// says how a driver there is started.
type manager struct {
	install func(packages []string) [][]string // commands, run in the folder
	build   func(file string) [][]string       // as well; nil: there is nothing to do
	start   func(file string) string           // from the folder
}

// managers are those of each language: the ordinary ones, which install nothing globally.
func managers() map[string]*manager {
	return map[string]*manager{
		"python": {
			install: func(packages []string) [][]string {
				return [][]string{
					{"python3", "-m", "venv", "venv"},
					append([]string{"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check"}, packages...),
				}
			},
			start: func(file string) string { return "./venv/bin/python " + file },
		},
		"node": {
			install: func(packages []string) [][]string {
				return [][]string{append([]string{"npm", "install", "--silent", "--no-fund", "--no-audit", "--legacy-peer-deps", "--prefix", "."}, packages...)}
			},
			start: func(file string) string { return "node " + file },
		},
		"go": {
			install: func(packages []string) [][]string {
				return [][]string{{"go", "mod", "init", "findings"}, append([]string{"go", "get"}, packages...)}
			},
			build: func(file string) [][]string {
				return [][]string{{"go", "build", "-mod=mod", "-o", strings.TrimSuffix(file, ".go"), "wire.go", file}}
			},
			start: func(file string) string { return "./" + strings.TrimSuffix(file, ".go") },
		},
		"rust": {
			install: func(packages []string) [][]string {
				return [][]string{{"cargo", "init", "--quiet", "--vcs", "none", "--name", "findings", "."}, append([]string{"cargo", "add", "--quiet"}, packages...)}
			},
			build: func(file string) [][]string {
				return [][]string{{"cp", file, "src/main.rs"}, {"cp", "wire.rs", "src"}, {"cargo", "build", "--quiet", "--release"}}
			},
			start: func(string) string { return "./target/release/findings" },
		},
		"java": {
			install: func(packages []string) [][]string { // NAME=VERSION, as the pom has them
				get := []string{"mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", "-DoutputDirectory=lib"}
				for _, p := range packages {
					get = append(get, "-D"+p)
				}
				return [][]string{get}
			},
			build: func(file string) [][]string { return [][]string{{"javac", "-cp", "lib/*", "Wire.java", file}} },
			start: func(file string) string { return "java -cp 'lib/*:.' " + strings.TrimSuffix(file, ".java") },
		},
	}
}

// A Player plays findings.
type Player struct {
	// Program is lockchaos, and Cache the folder for what drivers need; empty: lockchaos/findings in the user's cache folder.
	Program, Cache string
	// Log receives what installers and runs say.
	Log io.Writer
}

// installed marks a folder of which the installation came to its end.
const installed = "installed"

// Install makes a folder with the drivers of the library's language and these packages, unless it is
// there, and returns the command that starts the driver.
func (p Player) Install(ctx context.Context, l Library, packages []string) (command string, err error) {
	m := managers()[l.Language]
	sum := sha256.Sum256([]byte(strings.Join(packages, "\n")))
	if p.Cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no folder for libraries: %w", err)
		}
		p.Cache = filepath.Join(user, "lockchaos", "findings")
	}
	dir, err := filepath.Abs(filepath.Join(p.Cache, l.Language+"-"+hex.EncodeToString(sum[:6])))
	if err != nil {
		return "", err
	}
	_, missing := os.Stat(filepath.Join(dir, installed))
	if missing != nil {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return "", err
		}
	}
	drivers, err := fs.Sub(files, "drivers/"+l.Language)
	if err != nil {
		return "", err
	}
	if err := write(dir, drivers); err != nil { // also in a folder of an earlier version
		return "", err
	}
	if missing != nil {
		if err := p.make(ctx, dir, m.install(packages)); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, installed), nil, 0o644); err != nil {
			return "", err
		}
	}
	file, arguments, _ := strings.Cut(l.Driver, " ")
	if m.build != nil {
		if err := p.make(ctx, dir, m.build(file)); err != nil {
			return "", err
		}
	}
	return started(dir, m.start(file), arguments), nil
}

// started is the command that starts a driver in a folder, as a shell reads it.
func started(dir, start, arguments string) string {
	return strings.TrimSpace("env -C '" + strings.ReplaceAll(dir, "'", `'\''`) + "' " + start + " " + arguments)
}

// make runs commands in a folder.
func (p Player) make(ctx context.Context, dir string, commands [][]string) error {
	for _, words := range commands {
		if strings.Contains(words[0], "/") {
			words[0] = filepath.Join(dir, words[0])
		}
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, p.Log, p.Log
		if err := do(ctx, cmd, func() error { return spawn.Kill(cmd.Process.Pid) }); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
	}
	return nil
}

// do runs a command in a process group of its own, which a user's Ctrl-C does not reach: cancel ends it, and has
// so long for it.
func do(ctx context.Context, cmd *exec.Cmd, cancel func() error) error {
	cmd.Cancel, cmd.WaitDelay = cancel, time.Minute
	if err := spawn.Start(cmd); err != nil {
		return err
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// write copies files to a folder.
func write(dir string, from fs.FS) error {
	return fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), b, 0o644)
	})
}

// Play makes runs of a finding, with the seeds from 1 on, and returns how many showed it.
func (p Player) Play(ctx context.Context, f Finding, packages []string, runs int) (Rate, error) {
	command, err := p.Install(ctx, f.Library, packages)
	if err != nil {
		return Rate{}, fmt.Errorf("%s: install the library: %w", f.Name, err)
	}
	return p.runs(ctx, f, "exec:"+command, runs)
}

// PlayControl makes the same runs with a correct lock of the same store; one for readers and writers is on Redis.
func (p Player) PlayControl(ctx context.Context, f Finding, runs int) (Rate, error) {
	lock := "mutex"
	switch {
	case strings.Contains(f.Run, "readers-writers"):
		lock, f.Run = "rwmutex", strings.Replace(f.Run, "--topology zookeeper", "", 1)
	case strings.Contains(f.Run, "--topology independent"):
		lock = "redlock"
	case strings.Contains(f.Run, "--topology etcd"):
		lock = "etcd-mutex-leased"
	}
	return p.runs(ctx, f, lock, runs)
}

func (p Player) runs(ctx context.Context, f Finding, lock string, runs int) (Rate, error) {
	out, err := os.MkdirTemp("", "lockchaos-finding-")
	if err != nil {
		return Rate{}, err
	}
	defer os.RemoveAll(out)
	args := append([]string{"run", "--lock", lock, "--seeds", "1-" + strconv.Itoa(runs), "--parallel", "2", "--json", "--out", filepath.Join(out, "runs")}, strings.Fields(f.Run)...)
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, p.Program, args...)
	cmd.Stdout, cmd.Stderr = &said, p.Log
	err = do(ctx, cmd, func() error { return cmd.Process.Signal(os.Interrupt) }) // it ends its servers and drivers
	var verdict *exec.ExitError
	if err != nil && (!errors.As(err, &verdict) || verdict.ExitCode() < 0 || verdict.ExitCode() > 2) {
		return Rate{}, fmt.Errorf("%s: %s %s: %w", f.Name, p.Program, strings.Join(args, " "), err)
	}
	var result struct {
		Valid, Unknown, Invalid int
		NotValid                []struct{ Verdict, Found string } `json:"not_valid"`
	}
	if err := json.Unmarshal(said.Bytes(), &result); err != nil {
		return Rate{}, fmt.Errorf("%s: read the result: %w", f.Name, err)
	}
	r := Rate{Of: result.Valid + result.Unknown + result.Invalid}
	if result.Valid+result.Invalid == 0 { // which is not that it was not found
		why := ""
		for _, run := range result.NotValid {
			why = cmp.Or(why, ": "+run.Found)
		}
		return Rate{}, fmt.Errorf("%s: no run could be judged%s", f.Name, why)
	}
	for _, run := range result.NotValid {
		if run.Verdict == string(checker.Invalid) && strings.Contains(run.Found, property(f.Kind)+": ") {
			r.Found++
		}
	}
	return r, nil
}

// property is the one that a kind of violation breaks.
func property(kind string) string {
	switch kind {
	case checker.DoubleGrant:
		return "mutual-exclusion"
	case checker.ForeignRelease, checker.PrematureLoss:
		return "ownership"
	case checker.Stuck:
		return "progress"
	case checker.UseAfterLease:
		return "use-within-lease"
	case checker.LostUpdate:
		return "protected-resource"
	default:
		return kind
	}
}
