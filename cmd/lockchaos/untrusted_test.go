//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The first signal ends a check that waits for its input: what runs it under a limit of time is not kept waiting.
func TestASignalEndsACheckThatWaits(t *testing.T) {
	t.Parallel()
	for name, arg := range map[string]string{"standard input": "-", "a pipe without a writer": "pipe", "a pipe whose writer is silent": "./pipe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := lockchaos(t, "check", arg)
			cmd.Dir = t.TempDir()
			var said bytes.Buffer
			cmd.Stderr = &said
			pipe := filepath.Join(cmd.Dir, "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			waits := func() bool { return opens(cmd.Process.Pid) }
			if arg != "pipe" {
				writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
				require.NoError(t, err)
				defer writer.Close()
				cmd.Stdin = writer
				_, err = writer.WriteString(`{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k"}` + "\n")
				require.NoError(t, err)
				waits = func() bool { return unread(t, writer) == 0 }
			}
			require.NoError(t, cmd.Start())
			awaits(t, "it waits for its input", waits)
			send(t, cmd, syscall.SIGTERM)
			_ = cmd.Wait()
			require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%v: %s", cmd.ProcessState, &said)
			require.Contains(t, said.String(), "interrupted")
		})
	}
}

// opens reports whether a thread of a process waits in an open.
func opens(pid int) bool {
	calls, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "syscall"))
	return slices.ContainsFunc(calls, func(path string) bool {
		call, err := os.ReadFile(path)
		return err == nil && strings.HasPrefix(string(call), strconv.Itoa(syscall.SYS_OPENAT)+" ")
	})
}

// unread is how many bytes of a pipe were not read yet.
func unread(t *testing.T, pipe *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	require.NoError(t, err)
	return n
}

// The names of run directories are of another author, too: what a terminal would obey in them is shown.
func TestNamesOfDirectoriesAreEscaped(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a\x1b[2J\nforged\u202e")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for file, text := range map[string]string{
		"run.json": `{"version":1,"program":"v0.1.0","command":"lockchaos run","seed":1,"topology":{"name":"single","nodes":[{"name":"redis-1","kind":"redis","role":"master"}],"links":[]},"lock":"mutex","started":"2026-11-21T09:30:00Z","duration":5000000}`,
		"history.jsonl": `{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a"}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a"}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	for _, args := range [][]string{
		{"check", dir},
		{"check", "--json", dir},
		{"check", filepath.Join(dir, "history.jsonl")},
		{"report", dir},
		{"report", "--format", "text", dir},
		{"report", "--format", "markdown", dir},
		{"compare", dir, dir},
		{"check", dir + "/nowhere"},
		{"report", dir + "/nowhere"},
		{"compare", dir, dir + "/nowhere"},
		{"serve", dir},
		{"run", "--replay", dir},
		{"simulate", "--replay", dir},
		{"reproduce", dir + "/nowhere.yaml"},
	} {
		var out, errs bytes.Buffer
		run(args, &out, &errs)
		said := out.String() + errs.String()
		require.NotEmpty(t, said, args)
		require.NotRegexp(t, regexp.MustCompile("\x1b\\[2J|\n *forged|\u202e"), said, "%q", args)
	}
}
