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
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/checker"
)

// A folder of any name may have the libraries: the command that starts a driver is read by a shell.
func TestStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b's $x")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "driver"), []byte("#!/bin/sh\npwd\necho $1 $LOCKCHAOS_VERSION\n"), 0o700)) //nolint:gosec // it is run
	out, err := exec.Command("/bin/sh", "-c", started(dir, "4.7.0", "./driver", "none")).Output()                                 //nolint:gosec // made here
	require.NoError(t, err)
	require.Equal(t, dir+"\nnone 4.7.0\n", string(out))
}

// One of two that install the same packages at once does so, and the other one waits and finds them. The lock between them is one
// of an open file, so that it holds between processes and between calls.
func TestInstall_TwoAtOnce(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	python := "#!/bin/sh\nmkdir -p venv/bin\nprintf '#!/bin/sh\\necho installed >> log\\nmkdir busy || exit 1\\nsleep 0.2\\nrmdir busy\\n' > venv/bin/pip\nchmod +x venv/bin/pip\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o700)) //nolint:gosec // it is run
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var both errgroup.Group
	for range 2 {
		both.Go(func() error {
			_, err := Player{Cache: cache, Log: t.Output()}.Install(t.Context(), Library{Language: "python", Driver: "huey_lock.py"}, []string{"huey"})
			return err
		})
	}
	require.NoError(t, both.Wait())
	logs, err := filepath.Glob(filepath.Join(cache, "*", "log"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	text, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	require.Equal(t, "installed\n", string(text))
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
		`echo '{"unknown":2,"not_valid":[{"verdict":"unknown","headline":"the driver ended"}]}'; exit 2`: "no run could be judged: the driver ended",
		`echo '{}'`:     "no run could be judged",
		`kill -KILL $$`: "signal: killed",
		`exit 254`:      "exit status 254",
	} {
		_, err := program(t, script).runs(t.Context(), Finding{Name: "x", Kind: "double-grant"}, "mutex", 1, 2)
		require.ErrorContains(t, err, want, script)
	}
	r, err := program(t, `echo '{"valid":1,"invalid":1,"not_valid":[{"verdict":"invalid","kinds":["stuck","double-grant"]}]}'; exit 1`).runs(t.Context(), Finding{Name: "x", Kind: "double-grant"}, "mutex", 1, 2)
	require.NoError(t, err)
	require.Equal(t, Rate{1, 2}, r)
}

// What no run shows at first is looked for again, with other seeds, before it counts as gone.
func TestPlay_Again(t *testing.T) {
	p := program(t, `case "$*" in *"--seeds 3-4"*) echo '{"invalid":1,"valid":1,"not_valid":[{"verdict":"invalid","kinds":["stuck","double-grant"]}]}'; exit 1;; *) echo '{"valid":2}';; esac`)
	p.Cache = t.TempDir()
	f, err := parse("x.yaml", []byte(whole))
	require.NoError(t, err)
	_, installed := p.folder(f.Library, f.Packages)
	require.NoError(t, os.MkdirAll(installed, 0o755))
	r := p.Play(t.Context(), f, 2, true)
	r.Seconds = 0
	require.Equal(t, Result{Found: Rate{1, 4}, Control: Rate{0, 2}}, r)
	require.Equal(t, checker.Valid, r.Verdict())
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
	_, err := p.runs(ctx, Finding{Name: "x", Kind: "double-grant"}, "mutex", 1, 2)
	require.ErrorIs(t, err, user)
	require.FileExists(t, ended)
}
