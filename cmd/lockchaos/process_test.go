//go:build linux

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

// awaits waits until a condition holds.
func awaits(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 20*time.Millisecond, what)
}

// lockchaos is the program, which is the test binary under this name. It ends with the tests.
func lockchaos(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("lockchaos")
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// An engine that accepts and never answers is being waited for.
func TestCtrlCWhileTheEngineIsLookedForIsAnInterruption(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "engine.sock")
	engine, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	var said bytes.Buffer
	dir := filepath.Join(t.TempDir(), "run")
	cmd := lockchaos(t, "run", "--topology", "single", "--backend", "container", "--out", dir)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+socket)
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	require.NoError(t, engine.(*net.UnixListener).SetDeadline(time.Now().Add(patience)))
	asked, err := engine.Accept()
	require.NoError(t, err)
	defer asked.Close()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", said.String())
	require.NoDirExists(t, dir)
}

// needServers skips the test where servers can't be run.
func needServers(t *testing.T) {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
}

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
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
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
