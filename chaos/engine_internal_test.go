package chaos

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
)

// A run that does not end is given up, and what it waits for is written down.
func TestARunThatDoesNotEndIsGivenUp(t *testing.T) {
	t.Parallel()
	p := playable{run: func(context.Context, harness.Config) error { select {} }, limit: 10 * time.Millisecond}
	dir := t.TempDir()
	_, err := p.play(t.Context(), setup(dir, "", 1))
	require.ErrorContains(t, err, "the run did not end within 10ms: a call of the lock does not return")
	require.FileExists(t, filepath.Join(dir, "goroutines.txt"))
}

func TestPattern(t *testing.T) {
	t.Parallel()
	require.Equal(t, `^TestA$/^b#01$/^c\+d$`, pattern("TestA/b#01/c+d"))
}
