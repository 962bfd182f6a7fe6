package await_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
)

// A container that the runtime can't freeze is paused again, for a while; any other error is
// told at once.
func TestFrozen(t *testing.T) {
	t.Parallel()
	busy, gone := errors.New("OCI runtime pause failed: unable to freeze: unknown"), errors.New("no such container")
	for name, c := range map[string]struct {
		answers []error // of the first calls; the last one is that of all others
		calls   int     // 0: many
		want    error
	}{
		"at once":  {[]error{nil}, 1, nil},
		"later":    {[]error{busy, busy, nil}, 3, nil},
		"gone":     {[]error{busy, gone}, 2, gone},
		"too long": {[]error{busy}, 0, busy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := await.Frozen(t.Context(), func(context.Context) error {
					calls++
					return c.answers[min(calls, len(c.answers))-1]
				})
				require.ErrorIs(t, err, c.want)
				if c.calls > 0 {
					require.Equal(t, c.calls, calls)
				} else {
					require.Greater(t, calls, 100)
				}
			})
		})
	}
}
