package fleet

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// After a line that may be there in part, as on a disk that is full, there is no other.
func TestAppend_AfterAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	j := &Journal{file: full}
	require.ErrorIs(t, j.Append(Run{Job: "seed 1"}, 1), syscall.ENOSPC)
	later, err := os.Create(filepath.Join(t.TempDir(), JournalFile)) // there is room again
	require.NoError(t, err)
	defer later.Close()
	j.file = later
	require.ErrorIs(t, j.Append(Run{Job: "seed 2"}, 1), syscall.ENOSPC)
	b, err := os.ReadFile(later.Name())
	require.NoError(t, err)
	require.Empty(t, b)
}

// One process plays in a folder at a time; what another would write falls upon it.
func TestResume_WhileAnotherPlays(t *testing.T) {
	dir := t.TempDir()
	h := Header{Program: "v1", Build: "aa", Command: "c", Seeds: "1-2"}
	j, err := Open(dir, h, false)
	require.NoError(t, err)
	_, err = Open(dir, h, true)
	require.ErrorContains(t, err, "another process plays in "+dir)
	require.ErrorIs(t, err, syscall.EWOULDBLOCK)
	require.NoError(t, j.Close())
	j, err = Open(dir, h, true)
	require.NoError(t, err)
	require.NoError(t, j.Discard())
	require.NoError(t, j.Close())
	require.NoFileExists(t, filepath.Join(dir, JournalFile))
}
