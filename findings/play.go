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
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/drivers"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/spawn"
)

// A manager installs the packages of a driver into a folder that has the drivers of its language, and
// says how a driver there is started. In its texts FILE is the driver, NAME that without its ending, and PACKAGES, with what is
// before it, each of the packages.
type manager struct {
	install string // commands, a line each, run in the folder
	build   string // as well; empty: there is nothing to do
	start   string // from the folder
}

// managers are those of each language: the ordinary ones, which install nothing globally.
func managers() map[string]manager {
	return map[string]manager{
		"python": {
			install: "python3 -m venv venv\nvenv/bin/pip install --quiet --disable-pip-version-check PACKAGES",
			start:   "./venv/bin/python FILE",
		},
		"node": {
			install: "npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix . PACKAGES",
			start:   "node FILE",
		},
		"go": {
			install: "go mod init findings\ngo get PACKAGES",
			build:   "go build -mod=mod -o NAME lockchaos.go FILE",
			start:   "./NAME",
		},
		"rust": {
			install: "cargo init --quiet --vcs none --name findings .\ncargo add --quiet PACKAGES",
			build:   "cp FILE src/main.rs\ncp lockchaos.rs src\ncargo build --quiet --release",
			start:   "./target/release/findings",
		},
		"java": { // its packages are NAME=VERSION, as the pom has them
			install: "mvn --batch-mode --quiet dependency:copy-dependencies -DoutputDirectory=lib -DPACKAGES",
			build:   "javac -cp lib/* Lockchaos.java FILE",
			start:   "java -cp 'lib/*:.' NAME",
		},
	}
}

// of is a text of a manager for a driver.
func of(text, file string) string {
	return strings.NewReplacer("FILE", file, "NAME", strings.TrimSuffix(file, path.Ext(file))).Replace(text)
}

// A Player plays findings.
type Player struct {
	// Program is lockchaos, and Cache the folder for what drivers need; empty: lockchaos/findings in the user's cache folder.
	Program, Cache string
	// Log receives what installers and runs say.
	Log io.Writer
}

// installed marks a folder of which the installation came to its end, and a name with [built] before it a driver that was built
// there.
const installed, built = "installed", "built-"

// folder is where packages are installed, and the file that marks them as installed.
func (p Player) folder(l Library, packages []string) (dir, mark string) {
	sum := sha256.Sum256([]byte(strings.Join(packages, "\n")))
	dir = filepath.Join(p.Cache, l.Language+"-"+hex.EncodeToString(sum[:6]))
	return dir, filepath.Join(dir, installed)
}

// Install makes a folder with the drivers of the library's language and these packages, unless it is
// there, and returns the command that starts the driver. Other processes that install wait meanwhile.
func (p Player) Install(ctx context.Context, l Library, packages []string) (command string, err error) {
	if p.Cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no folder for libraries: %w", err)
		}
		p.Cache = filepath.Join(user, "lockchaos", "findings")
	}
	if p.Cache, err = filepath.Abs(p.Cache); err != nil {
		return "", err
	}
	release, err := p.hold(ctx)
	if err != nil {
		return "", err
	}
	defer release() //nolint:errcheck // nothing was written to what it closes
	m := managers()[l.Language]
	file, arguments, _ := strings.Cut(l.Driver, " ")
	dir, mark := p.folder(l, packages)
	_, missing := os.Stat(mark)
	if missing != nil {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return "", err
		}
	}
	sum, err := write(dir, l.Language) // also in a folder of an earlier version
	if err != nil {
		return "", err
	}
	if missing != nil {
		if err := p.make(ctx, dir, of(m.install, file), packages, mark, ""); err != nil {
			return "", err
		}
	}
	mark = filepath.Join(dir, built+file)
	if was, _ := os.ReadFile(mark); m.build != "" && string(was) != sum { // not while a run may be loading it
		if err := p.make(ctx, dir, of(m.build, file), nil, mark, sum); err != nil {
			return "", err
		}
	}
	return started(dir, l.Version, of(m.start, file), arguments), nil
}

// hold waits until no other process installs into the cache folder, and keeps others from it until release is called.
func (p Player) hold(ctx context.Context) (release func() error, err error) {
	if err := os.MkdirAll(p.Cache, 0o755); err != nil {
		return nil, err
	}
	type held struct {
		release func() error
		err     error
	}
	done := make(chan held, 1)
	go func() {
		release, err := fleet.Hold(p.Cache)
		done <- held{release, err}
	}()
	select {
	case h := <-done:
		return h.release, h.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// started is the command that starts a driver in a folder, as a shell reads it. A run says the version.
func started(dir, version, start, arguments string) string {
	return strings.TrimSpace("env -C '" + strings.ReplaceAll(dir, "'", `'\''`) + "' LOCKCHAOS_VERSION=" + version + " " + start + " " + arguments)
}

// make runs commands in a folder, a line each, and writes a mark once all of them came to their end.
func (p Player) make(ctx context.Context, dir, commands string, packages []string, mark, text string) error {
	for line := range strings.Lines(commands) {
		words := strings.Fields(line)
		if before, is := strings.CutSuffix(words[len(words)-1], "PACKAGES"); is {
			words = append(words[:len(words)-1], names.Of(packages, func(p string) string { return before + p })...)
		}
		if strings.Contains(words[0], "/") {
			words[0] = filepath.Join(dir, words[0])
		}
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, p.Log, p.Log
		if err := do(ctx, cmd, func() error { return spawn.Kill(cmd.Process.Pid) }); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
	}
	return os.WriteFile(mark, []byte(text), 0o644)
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

// write copies the drivers of a language, and the protocol that they share, to a folder, those files alone that differ from what is
// there, and returns a sum of all.
func write(dir, language string) (sum string, err error) {
	h := sha256.New()
	for _, from := range []struct {
		fs.FS
		files string
	}{{drivers.Transports, language + "/*"}, {files, "drivers/" + language + "/*"}} {
		paths, err := fs.Glob(from, from.files)
		if err != nil {
			return "", err
		}
		for _, name := range paths {
			b, err := fs.ReadFile(from, name)
			if err != nil {
				return "", err
			}
			_, _ = h.Write(b)
			to := filepath.Join(dir, path.Base(name))
			if was, err := os.ReadFile(to); err == nil && bytes.Equal(was, b) {
				continue
			}
			if err := os.WriteFile(to, b, 0o644); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// A Result is what came of the runs of a finding.
type Result struct {
	// Found is how many showed it, Fixed those with the version that has it fixed, and Control those with a correct lock.
	Found   Rate `json:"found,omitzero"`
	Fixed   Rate `json:"fixed,omitzero"`
	Control Rate `json:"control,omitzero"`
	// Failed is what kept runs from being made, or from being judged, and Uninstalled says that a library could not be
	// installed: another try may succeed.
	Failed      string `json:"failed,omitempty"`
	Uninstalled bool   `json:"uninstalled,omitempty"`
	// Seconds is how long all of it took, the installation included.
	Seconds float64 `json:"seconds"`
}

// Verdict is valid where the library does what was found, and its fixed version and the correct lock do not; and unknown where
// that could not be told.
func (r Result) Verdict() checker.Verdict {
	switch {
	case r.Fixed.Found+r.Control.Found > 0, r.Found.Of > 0 && r.Found.Found == 0:
		return checker.Invalid
	case r.Failed != "":
		return checker.Unknown
	default:
		return checker.Valid
	}
}

// rounds is how often a finding is looked for with as many runs as are asked for, until it is found: of one that a quarter of
// all runs shows, 4 rounds of 4 miss one in a hundred, and one round misses one in three.
const rounds = 4

// Play makes so many runs of a finding, with the seeds from 1 on, and as many again where none of them shows it; then as many of
// the fixed version, and with control of a correct lock of the same store.
func (p Player) Play(ctx context.Context, f Finding, runs int, control bool) (r Result) {
	begun := time.Now()
	library := func(packages []string, rounds int) (rate Rate, err error) {
		command, err := p.Install(ctx, f.Library, packages)
		if err != nil {
			r.Uninstalled = true
			return rate, fmt.Errorf("install the library: %w", err)
		}
		for round := 0; err == nil && rate.Found == 0 && round < rounds; round++ {
			var more Rate
			more, err = p.runs(ctx, f, "exec:"+command, 1+round*runs, runs)
			rate.Found, rate.Of = rate.Found+more.Found, rate.Of+more.Of
		}
		return rate, err
	}
	var err, other error
	r.Found, err = library(f.Packages, rounds)
	if f.FixedRate != nil && ctx.Err() == nil {
		f.Version = f.Fixed
		r.Fixed, other = library(f.FixedPackages, 1)
		err = errors.Join(err, other)
	}
	if control && ctx.Err() == nil {
		lock := "mutex"
		switch {
		case strings.Contains(f.Run, "readers-writers"): // one for readers and writers is on Redis
			lock, f.Run = "rwmutex", strings.Replace(f.Run, "--topology zookeeper", "", 1)
		case strings.Contains(f.Run, "--topology independent"):
			lock = "redlock"
		case strings.Contains(f.Run, "--topology etcd"):
			lock = "etcd-mutex-leased"
		}
		r.Control, other = p.runs(ctx, f, lock, 1, runs)
		err = errors.Join(err, other)
	}
	if err != nil {
		r.Failed = err.Error()
	}
	r.Seconds = time.Since(begun).Round(time.Second).Seconds()
	return r
}

// runs makes runs with the seeds from that one on, and returns how many showed the finding.
func (p Player) runs(ctx context.Context, f Finding, lock string, from, runs int) (Rate, error) {
	out, err := os.MkdirTemp("", "lockchaos-finding-")
	if err != nil {
		return Rate{}, err
	}
	defer os.RemoveAll(out)
	args := append([]string{"run", "--lock", lock, "--seeds", fmt.Sprintf("%d-%d", from, from+runs-1), "--parallel", "2", "--json", "--out", filepath.Join(out, "runs")}, strings.Fields(f.Run)...)
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, p.Program, args...)
	cmd.Stdout, cmd.Stderr = &said, p.Log
	err = do(ctx, cmd, func() error { return cmd.Process.Signal(os.Interrupt) }) // it ends its servers and drivers
	var verdict *exec.ExitError
	if err != nil && (!errors.As(err, &verdict) || verdict.ExitCode() < 0 || verdict.ExitCode() > 2) {
		return Rate{}, fmt.Errorf("%s %s: %w", p.Program, strings.Join(args, " "), err)
	}
	var result struct {
		Valid, Unknown, Invalid int
		NotValid                []struct {
			Verdict, Headline string
			Kinds             []string
		} `json:"not_valid"`
	}
	if err := json.Unmarshal(said.Bytes(), &result); err != nil {
		return Rate{}, fmt.Errorf("read the result: %w", err)
	}
	r := Rate{Of: result.Valid + result.Unknown + result.Invalid}
	if result.Valid+result.Invalid == 0 { // which is not that it was not found
		why := ""
		for _, run := range result.NotValid {
			why = cmp.Or(why, ": "+run.Headline)
		}
		return Rate{}, fmt.Errorf("no run could be judged%s", why)
	}
	for _, run := range result.NotValid {
		if run.Verdict == string(checker.Invalid) && slices.Contains(run.Kinds, f.Kind) {
			r.Found++
		}
	}
	return r, nil
}
