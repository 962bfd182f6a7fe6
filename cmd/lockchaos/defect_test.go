package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// defects are programs with one defect each, which [TestMain] makes commands of.
func defects() map[string]func() {
	program := func(run func()) func() {
		return func() {
			os.Exit(guarded(os.Stderr, func() int { //nolint:forbidigo // each is a program of its own
				run()
				return exitValid
			}))
		}
	}
	return map[string]func(){
		"panics": program(func() { panic("a defect") }),
		"panics-alone": program(func() {
			go panic("a defect")
			select {}
		}),
		"recurses": program(func() { _ = recurse(1) }),
	}
}

func recurse(n int) int {
	if n == 0 {
		return 0
	}
	return recurse(n+1) + 1
}

// No defect ends the program with the code of a verdict.
func TestADefectIsNoVerdict(t *testing.T) {
	t.Parallel()
	const aborted = -1 // by a signal
	for _, test := range []struct {
		program string
		code    int
		says    string
	}{
		{"panics", exitHarness, "defects.func"},
		{"panics-alone", aborted, "defects.func"},
		{"recurses", aborted, "stack overflow"},
	} {
		t.Run(test.program, func(t *testing.T) {
			t.Parallel()
			var said bytes.Buffer
			cmd := exec.CommandContext(t.Context(), test.program)
			cmd.Dir, cmd.Stderr = t.TempDir(), &said
			exit, ok := errors.AsType[*exec.ExitError](cmd.Run())
			require.True(t, ok)
			require.Equal(t, test.code, exit.ExitCode(), "%s", said.String())
			require.Contains(t, said.String(), test.says)
		})
	}
}
