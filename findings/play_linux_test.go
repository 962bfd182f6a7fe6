package findings

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A folder of any name may have the libraries: the command that starts a driver is read by a shell.
func TestStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b's $x")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "driver"), []byte("#!/bin/sh\npwd\necho $1\n"), 0o700)) //nolint:gosec // it is run
	out, err := exec.Command("/bin/sh", "-c", started(dir, "./driver", "none")).Output()                       //nolint:gosec // made here
	require.NoError(t, err)
	require.Equal(t, dir+"\nnone\n", string(out))
}

// program stands in for lockchaos.
func program(t *testing.T, script string) Player {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lockchaos")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700)) //nolint:gosec // it is run
	return Player{Program: path, Log: t.Output()}
}

// Runs of which none could be judged do not say that a defect is gone.
func TestRuns_AllUnknown(t *testing.T) {
	for script, want := range map[string]string{
		`echo '{"unknown":2,"not_valid":[{"verdict":"unknown","found":"the driver ended"}]}'; exit 2`: "no run could be judged: the driver ended",
		`echo '{}'`:     "no run could be judged",
		`kill -KILL $$`: "signal: killed",
		`exit 254`:      "exit status 254",
	} {
		_, err := program(t, script).runs(t.Context(), Finding{Name: "x", Kind: "double-grant"}, "mutex", 2)
		require.ErrorContains(t, err, want, script)
	}
	r, err := program(t, `echo '{"valid":1,"invalid":1,"not_valid":[{"verdict":"invalid","found":"a (mutual-exclusion: 3)"}]}'; exit 1`).runs(t.Context(), Finding{Name: "x", Kind: "double-grant"}, "mutex", 2)
	require.NoError(t, err)
	require.Equal(t, Rate{1, 2}, r)
}

// Runs that a user ends are ended in order, so that nothing is left of them.
func TestRuns_Interrupted(t *testing.T) {
	dir := t.TempDir()
	begun, ended := filepath.Join(dir, "begun"), filepath.Join(dir, "ended")
	p := program(t, "trap 'echo > "+ended+"; exit 130' INT\necho > "+begun+"\nwhile :; do sleep 0.05; done\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	user := errors.New("the user")
	go func() {
		for {
			if _, err := os.Stat(begun); err == nil {
				cancel(user)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := p.runs(ctx, Finding{Name: "x", Kind: "double-grant"}, "mutex", 2)
	require.ErrorIs(t, err, user)
	require.FileExists(t, ended)
}
