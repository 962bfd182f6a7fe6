//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/internal/runtest"
)

// A workflow is a file for GitHub Actions.
type workflow struct {
	Name             string
	On               any
	Permissions, Env map[string]string
	Jobs             map[string]struct {
		RunsOn    string `yaml:"runs-on"`
		Timeout   int    `yaml:"timeout-minutes"`
		Needs, If string
		Strategy  any
		Env       map[string]string
		Steps     []step
	}
}

type step struct {
	Name, If, Uses, Shell, Run string
	With, Env                  map[string]string
}

// strict decodes YAML, of which all fields must be known.
func strict(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalWithOptions(b, into, yaml.Strict()))
}

// shorter makes what a user's workflow runs a test, by the Python that has redis-py.
func shorter(script string) string {
	return strings.NewReplacer("driver check --", `driver check --only "given back" --`, "--faults safe", "--faults none", "--duration 10s", "--duration 2s",
		"1-5", "1", "SHARD/4", "SHARD/2", "$(date -u +%s) / 86400 * 200", "1", "+ 199", "+ 1", "python3", "/usr/bin/python3").Replace(script)
}

// repository is that of a user, in a folder that has no more than a driver, and what runs a script in it.
func repository(t *testing.T) (dir string, play func(lock, script string, env ...string)) {
	t.Helper()
	needServers(t)
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import redis").Run(); err != nil {
		runtest.Lacks(t, fmt.Errorf("redis-py is missing (make drivers installs it): %w", err))
	}
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "lock"), os.DirFS("../../drivers/python")))
	require.NoError(t, os.Rename(filepath.Join(dir, "lock", "redis_py.py"), filepath.Join(dir, "lock", "driver.py")))
	return dir, func(lock, script string, env ...string) {
		require.NotContains(t, script, "apt-get")
		command(t, append(append(os.Environ(), "LOCK="+shorter(lock)), env...), dir, "bash", "-e", "-c", shorter(script))
	}
}

// What the workflow files for a user's repository run is run here: shorter, and without what installs a program.
func TestWorkflowsOfAUser(t *testing.T) {
	for name, jobs := range map[string][]string{"driver.yml": {"lock"}, "nightly.yml": {"play", "judge"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, play := repository(t)
			var w workflow
			strict(t, "examples/ci/"+name, &w)
			require.Len(t, w.Jobs, len(jobs))
			summary := filepath.Join(dir, "summary")
			for _, job := range jobs {
				shards := []string{""}
				if w.Jobs[job].Env["SHARD"] != "" {
					shards = []string{"0", "1"}
				}
				for _, shard := range shards {
					for _, step := range w.Jobs[job].Steps {
						if step.Run != "" && step.Name != "install" {
							play(w.Env["LOCK"]+w.Jobs[job].Env["LOCK"], step.Run, "GITHUB_STEP_SUMMARY="+summary, "SHARD="+shard)
						}
					}
				}
			}
			told, err := os.ReadFile(summary)
			require.NoError(t, err)
			require.Contains(t, string(told), "## ✓ ")
			require.Contains(t, string(told), "✓ valid")
		})
	}
}

// release makes a release whose program is the one under test, by the names that scripts/release gives its files, and returns its place.
func release(t *testing.T, version string) (place string) {
	t.Helper()
	program, err := exec.LookPath("lockchaos")
	require.NoError(t, err)
	place = t.TempDir()
	name := fmt.Sprintf("lockchaos_%s_%s_%s", strings.TrimPrefix(version, "v"), runtime.GOOS, runtime.GOARCH)
	folder := filepath.Join(place, version)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, name), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, name, "lockchaos"), []byte("#!/bin/sh\nexec "+program+` "$@"`), 0o755)) //nolint:gosec // a program
	command(t, os.Environ(), folder, "sh", "-c", "tar -czf "+name+".tar.gz "+name+" && sha256sum *.tar.gz >checksums.txt && rm -r "+name)
	return "file://" + place
}

// The action installs a release, after a look at its checksum, and runs a command; what it ends with is the answer.
func TestAction(t *testing.T) {
	t.Parallel()
	needServers(t)
	var action struct {
		Name, Description string
		Inputs            map[string]struct{ Description, Default string }
		Runs              struct {
			Using string
			Steps []step
		}
	}
	strict(t, "action.yml", &action)
	require.Equal(t, "composite", action.Runs.Using)
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	place := release(t, "v9.9.9")
	try := func(version, lockchaos string) (output, summary string, err error) {
		dir := t.TempDir()
		path := "PATH=" + filepath.Join(dir, "lockchaos-bin") + ":" + os.Getenv("PATH") // as GITHUB_PATH says
		inputs := strings.NewReplacer("${{ inputs.version || github.action_ref }}", version, "${{ inputs.command }}", lockchaos)
		for _, step := range action.Runs.Steps {
			cmd := exec.CommandContext(t.Context(), step.Shell, "-e", "-c", step.Run)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GITHUB_ACTION_PATH="+top, "RUNNER_TEMP="+dir, "RUNNER_OS=Linux", "GITHUB_PATH="+filepath.Join(dir, "path"),
				"GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary"), "LOCKCHAOS_RELEASES="+place, path)
			for name, value := range step.Env {
				value = inputs.Replace(value)
				require.NotContains(t, value, "${{")
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			out, err := cmd.CombinedOutput()
			output += string(out)
			if err != nil {
				return output, "", err
			}
		}
		b, _ := os.ReadFile(filepath.Join(dir, "summary"))
		return output, string(b), nil
	}
	output, summary, err := try("v9.9.9", "run --seeds 1 --faults none --duration 1s --lock 'mutex'")
	require.NoError(t, err, output)
	require.Contains(t, output, "lockchaos "+version())
	require.Contains(t, summary, "✓ valid")
	output, _, err = try("v9.9.8", "")
	require.Error(t, err)
	require.Contains(t, output, "v9.9.8 has no checksums.txt")
	output, _, err = try("v9.9.9", "run --lock nothing")
	require.ErrorContains(t, err, "exit status 254", output)

	archive, err := filepath.Glob(filepath.Join(strings.TrimPrefix(place, "file://"), "v9.9.9", "*.tar.gz"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(archive[0], []byte("other"), 0o600))
	output, _, err = try("v9.9.9", "")
	require.Error(t, err)
	require.Contains(t, output, "is not what checksums.txt of v9.9.9 says")
}

// What publishes a release decodes, and has the notes of the version in CHANGELOG.md.
func TestReleaseWorkflow(t *testing.T) {
	t.Parallel()
	var release workflow
	strict(t, ".github/workflows/release.yml", &release)
	dir := t.TempDir()
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), append(changelog, "\n## v0.0.9\n\nolder\n"...), 0o600))
	for _, step := range release.Jobs["release"].Steps {
		command(t, nil, dir, "bash", "-n", "-c", step.Run)
		if step.Name == "notes" {
			command(t, []string{"PATH=" + os.Getenv("PATH"), "VERSION=v0.1.0"}, dir, "bash", "-c", step.Run)
		}
	}
	notes, err := os.ReadFile(filepath.Join(dir, "dist", "notes.md"))
	require.NoError(t, err)
	require.Contains(t, string(notes), "The first release.")
	require.NotContains(t, string(notes), "older")
}

// The jobs for GitLab decode, and their scripts run: shorter, and without what installs a program.
func TestGitLabJobs(t *testing.T) {
	t.Parallel()
	type job struct {
		Image, Extends string
		BeforeScript   []string `yaml:"before_script"`
		Script, Needs  []string
		Parallel       int
		Rules          []struct{ If, When string }
		Cache          struct {
			Key, When string
			Paths     []string
		}
		Artifacts struct {
			When    string
			Paths   []string
			Reports map[string]string
		}
	}
	var jobs struct {
		Variables          map[string]string
		Base               job `yaml:".lockchaos"`
		Lock, Night, Merge job
	}
	strict(t, "examples/ci/gitlab.yml", &jobs)
	require.Contains(t, strings.Join(jobs.Base.BeforeScript, " "), "scripts/get")
	dir, play := repository(t)
	run := func(j job, env ...string) { play(jobs.Variables["LOCK"], strings.Join(j.Script, "\n"), env...) }
	run(jobs.Lock)
	require.FileExists(t, filepath.Join(dir, jobs.Lock.Artifacts.Reports["junit"]))
	for _, index := range []string{"1", "2"} {
		run(jobs.Night, "CI_NODE_INDEX="+index, "CI_NODE_TOTAL=2")
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "lockchaos"))) // each job begins with a clean folder
	run(jobs.Merge)
	require.FileExists(t, filepath.Join(dir, jobs.Merge.Artifacts.Reports["junit"]))
}

// The one for a lock in Go names what package chaos reads and writes.
func TestWorkflowOfAGoUser(t *testing.T) {
	t.Parallel()
	var w workflow
	strict(t, "examples/ci/go.yml", &w)
	require.Equal(t, "1", w.Jobs["lock"].Env[chaos.RequireVariable])
	steps := w.Jobs["lock"].Steps
	require.Equal(t, "**/"+chaos.ReportsDir, steps[len(steps)-1].With["path"])
}

// What docs/logs.md shows is what comes of its files: the exit codes, and the first line of each answer.
func TestLogsOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"jq", "sqlite3"} {
		if _, err := exec.LookPath(program); err != nil {
			runtest.Lacks(t, err)
		}
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "logs.md"))
	require.NoError(t, err)
	dir, script, files, runs := t.TempDir(), "", "", 0
	for _, part := range regexp.MustCompile("(?s)<!-- (file|run) (\\S+) -->\n```[a-z]*\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		if part[1] == "file" {
			files += "-- " + part[2] + " --\n" + part[3]
			continue
		}
		command, want, _ := strings.Cut(strings.TrimPrefix(part[3], "$ "), "\n")
		script += fmt.Sprintf("exits %s bash -o pipefail -c '%s'\nstdout '%s'\n", part[2], command, strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "'", "."))
		runs++
	}
	require.Equal(t, 5, runs)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "logs.txtar"), []byte(script+files), 0o600))
	scripts(t, dir)
}
