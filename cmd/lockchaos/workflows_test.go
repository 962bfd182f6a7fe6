//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/internal/runtest"
)

// A workflow is a file for GitHub Actions, as far as it matters here.
type workflow struct {
	Env  map[string]string `yaml:"env"`
	Jobs map[string]struct {
		Env   map[string]string `yaml:"env"`
		Steps []struct {
			Name string            `yaml:"name"`
			Uses string            `yaml:"uses"`
			Run  string            `yaml:"run"`
			With map[string]string `yaml:"with"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

func readWorkflow(t *testing.T, name string) workflow {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../examples/ci", name))
	require.NoError(t, err)
	var w workflow
	require.NoError(t, yaml.Unmarshal(b, &w))
	return w
}

// What the workflow files for a user's repository run is run here, in a folder that has no more than a driver: shorter,
// and without what installs a program.
func TestWorkflowsOfAUser(t *testing.T) {
	needServers(t)
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import redis").Run(); err != nil {
		runtest.Lacks(t, fmt.Errorf("redis-py is missing (make drivers installs it): %w", err))
	}
	driver, err := os.ReadFile("../../drivers/redis-py/driver.py")
	require.NoError(t, err)
	shorter := strings.NewReplacer("driver check --", `driver check --only "given back" --`, "--duration 10s", "--duration 2s", "1-5", "1", "SHARD/4", "SHARD/2", "$(date -u +%s) / 86400 * 200", "1", "+ 199", "+ 1", "python3", "/usr/bin/python3")
	for name, jobs := range map[string][]string{"driver.yml": {"lock"}, "nightly.yml": {"play", "judge"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, dir := readWorkflow(t, name), t.TempDir()
			require.Len(t, w.Jobs, len(jobs))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "lock"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "lock", "driver.py"), driver, 0o755)) //nolint:gosec // a program
			summary := filepath.Join(dir, "summary")
			for _, job := range jobs {
				shards := []string{""}
				if w.Jobs[job].Env["SHARD"] != "" {
					shards = []string{"0", "1"}
				}
				for _, shard := range shards {
					for _, step := range w.Jobs[job].Steps {
						if step.Run == "" || step.Name == "install" {
							continue
						}
						cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", shorter.Replace(step.Run))
						cmd.Dir, cmd.Env = dir, append(os.Environ(), "GITHUB_STEP_SUMMARY="+summary, "LOCK="+shorter.Replace(w.Env["LOCK"]+w.Jobs[job].Env["LOCK"]), "SHARD="+shard)
						out, err := cmd.CombinedOutput()
						require.NoError(t, err, "%s, %s: %s", job, step.Name, out)
					}
				}
			}
			told, err := os.ReadFile(summary)
			require.NoError(t, err)
			require.Contains(t, string(told), "## ✓ ")
			require.Positive(t, bytes.Count(told, []byte("✓ valid")))
		})
	}
}

// The one for a lock in Go names what package chaos reads and writes.
func TestWorkflowOfAGoUser(t *testing.T) {
	t.Parallel()
	w := readWorkflow(t, "go.yml")
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
	require.Equal(t, 4, runs)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "logs.txtar"), []byte(script+files), 0o600))
	scripts(t, dir)
}
