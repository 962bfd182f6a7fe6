package history_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

func TestDir(t *testing.T) {
	t.Parallel()
	d := history.Dir(filepath.Join(t.TempDir(), "runs", "first"))
	require.False(t, d.Exists())
	_, err := d.Run()
	require.ErrorIs(t, err, os.ErrNotExist)
	f, err := d.Create()
	require.NoError(t, err)
	require.DirExists(t, d.Path(history.LogsDir))
	recorder := history.NewRecorder(f)
	recorder.Record(history.Event{Process: history.NoProcess, Op: history.Declare, Type: history.OK, Lock: "orders", Kind: history.KindMutex})
	require.NoError(t, recorder.Close())
	require.NoError(t, f.Close())
	require.False(t, d.Exists(), "the events alone are no record")

	for _, want := range []history.Run{{Version: history.RunVersion, Lock: "mutex"}, {Version: history.RunVersion, Lock: "mutex", Duration: time.Second}} {
		require.NoError(t, d.WriteRun(want))
		require.True(t, d.Exists())
		got, err := d.Run()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	h, err := d.History()
	require.NoError(t, err)
	require.Len(t, h.Events, 1)
}

func TestDir_Run_damaged(t *testing.T) {
	t.Parallel()
	d := history.Dir(t.TempDir())
	require.NoError(t, os.WriteFile(d.Path(history.RunFile), []byte(`{"version":9}`), 0o600))
	_, err := d.Run()
	require.EqualError(t, err, "read "+d.Path(history.RunFile)+": version 9, want 1")
	require.NoError(t, os.Remove(d.Path(history.RunFile)))
	require.NoError(t, os.Mkdir(d.Path(history.RunFile), 0o700))
	_, err = d.Run()
	require.ErrorContains(t, err, "it is no regular file")
}

// A file is there as a whole or as it was before.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "run.json")
	require.NoError(t, os.WriteFile(path, []byte("before"), 0o600))
	broken := errors.New("no more")
	require.ErrorIs(t, history.WriteFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "half of")
		return errors.Join(err, broken)
	}), broken)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "before", string(b))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
}
