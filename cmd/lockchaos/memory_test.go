package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// judged runs lockchaos check on a history with a limit of memory, in MB. It returns
// the exit code, what was said, and the most memory that the process had, in MB.
func judged(t *testing.T, limit int, write func(io.Writer) error) (code int, said string, peak int64) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "lockchaos", "check", "-")
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%dMiB", limit))
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &out
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	if err := write(in); !errors.Is(err, syscall.EPIPE) {
		require.NoError(t, err)
	}
	_ = in.Close() // it may be closed already
	err = cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(t, err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	require.True(t, ok)
	return cmd.ProcessState.ExitCode(), out.String(), usage.Maxrss >> 10
}

// mayTake is the most memory that a process may have with such a limit, all in MB:
// besides what Go counts that is its code, what it took between two measurements (more on a busy machine),
// and the records of the race detector, which are several times the program's own.
func mayTake(limit int) int64 {
	most := int64(limit/3*4 + 300)
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		most *= 4
	}
	return most
}

// A history that needs more memory than there may be is unknown, with the reason.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 60
	code, said, peak := judged(t, limit, func(w io.Writer) error {
		long := strings.Repeat("x", 1<<20)
		for i := range 800 {
			if _, err := fmt.Fprintf(w, `{"time":%d,"process":1,"type":"ok","op":"lost","lock":"%d%s"}`+"\n", i, i, long); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(t, exitUnknown, code, said)
	require.Contains(t, said, "It could not be decided: it takes more than 80 MB of memory")
	require.Less(t, peak, mayTake(limit))
}
