package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
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

// What was noted stays as it is when a call of the lock that is late notes more.
func TestNotedIsACopy(t *testing.T) {
	t.Parallel()
	g := &guard{}
	for _, problem := range []string{"a", "b", "c"} { // after which the slice has room for one more
		g.note(problem)
	}
	all := append(g.noted(), "a client's")
	g.note("d")
	require.Equal(t, []string{"a", "b", "c", "a client's"}, all)
}

// A panic in a run whose verdict is unknown is told, although the run is repeated.
func TestPanicsOfTheFirstRunAreTold(t *testing.T) {
	record := func(log string) playable {
		return playable{limit: time.Minute, unexpected: mustBeValid, run: func(_ context.Context, s harness.Config) error {
			events, err := history.Dir(s.Dir).Create()
			if err != nil {
				return err
			}
			logged := os.WriteFile(history.Dir(s.Dir).Path(history.LogsDir, "client-1.log"), []byte(log), 0o600)
			return errors.Join(logged, events.Close(), history.Dir(s.Dir).WriteRun(history.Run{Version: history.RunVersion}))
		}}
	}
	p := playTwice(t, "", &guard{}, record("panic: first\n"), record("panic: second\n"), 1)
	defer p.keep(t)
	require.NoError(t, p.failed)
	require.NotNil(t, p.first)
	require.Equal(t, []string{"client 1: panic: first\n", "client 1: panic: second\n"}, p.problems)
}

func TestPattern(t *testing.T) {
	t.Parallel()
	require.Equal(t, `^TestA$/^b#01$/^c\+d$`, pattern("TestA/b#01/c+d"))
}
