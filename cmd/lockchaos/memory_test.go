//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	cmd := lockchaos(t, "check", "-")
	cmd.Env = append(os.Environ(), "GOGC=100", fmt.Sprintf("GOMEMLIMIT=%dMiB", limit)) // make test sets another GOGC
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

// A history that needs more memory than there may be is unknown, with the reason, before all of it was read.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit, input, rest = 60, 200, 5000 // MB
	code, said, _ := judged(t, limit, func(w io.Writer) error {
		long := strings.Repeat("x", 1<<20)
		for i := range input {
			if _, err := fmt.Fprintf(w, `{"time":%d,"process":1,"type":"ok","op":"lost","lock":"%d%s"}`+"\n", i, i, long); err != nil {
				return err
			}
		}
		for range rest { // which takes no memory, and would be read to its end
			if _, err := io.WriteString(w, strings.Repeat("\n", 1<<20)); err != nil {
				return err
			}
		}
		return errors.New("it read all")
	})
	require.Equal(t, exitUnknown, code, said)
	require.Contains(t, said, "It could not be decided: it takes more than 80 MB of memory")
}

// handOvers writes a legal history of a lock that two clients hand to one another
// so many times.
func handOvers(w io.Writer, times int) error {
	out := bufio.NewWriter(w)
	now := 0
	event := func(process int, typ, op string) {
		now++
		_, _ = fmt.Fprintf(out, `{"time":%d,"process":%d,"type":%q,"op":%q,"lock":"k","owner":"o%d"}`+"\n", now, process, typ, op, process)
	}
	event(0, "invoke", "acquire")
	for i := range times {
		event(1-i%2, "invoke", "acquire") // and waits
		event(i%2, "ok", "acquire")
		event(i%2, "invoke", "release")
		event(i%2, "ok", "release")
	}
	return out.Flush()
}

// togetherIn writes a history in which so many readers hold a lock at once.
func togetherIn(w io.Writer, readers int) error {
	out := bufio.NewWriter(w)
	now := 0
	for _, op := range [...]string{"acquire", "release"} {
		for i := range readers {
			for _, typ := range [...]string{"invoke", "ok"} {
				now++
				_, _ = fmt.Fprintf(out, `{"time":%d,"process":%d,"type":%q,"op":%q,"lock":"k","owner":"o%d","mode":"read"}`+"\n", now, i, typ, op, i)
			}
		}
	}
	return out.Flush()
}

// The most memory that the process has does not grow with the length of a history.
func TestMemoryDoesNotGrowWithTheLength(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the histories are long")
	}
	t.Parallel()
	peaks := [2]int64{}
	for i, times := range [...]int{25_000, 200_000} {
		code, said, peak := judged(t, easeMemory>>20, func(w io.Writer) error { return handOvers(w, times) })
		require.Equal(t, exitValid, code, said)
		peaks[i] = peak
	}
	t.Logf("%d MB, %d MB", peaks[0], peaks[1])
	// Eight times as much where it grows. A busy machine collects garbage late.
	require.Less(t, peaks[1], 3*peaks[0])
}

// A hundred thousand readers at once are judged in 400 MB: 120 do on an idle machine, and 90 don't.
func TestMemoryOfManyReadersAtOnceIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the histories are long")
	}
	t.Parallel()
	for limit, enough := range map[int]bool{60: false, 400: true} {
		code, said, _ := judged(t, limit, func(w io.Writer) error { return togetherIn(w, 100_000) })
		if enough {
			require.NotContains(t, said, "memory", code)
		} else {
			require.Equal(t, exitUnknown, code, said)
			require.Regexp(t, "it takes more than (60|80) MB of memory", said) // where the search gives up, or at the end
		}
	}
}
