package await_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
)

// What does not become true at once is looked at less often, and never much too late.
func TestUntilLooksLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var looks []time.Duration
		require.NoError(t, await.Until(t.Context(), func() error {
			looks = append(looks, time.Since(begin))
			if looks[len(looks)-1] < 10*time.Second {
				return errors.New("not yet")
			}
			return nil
		}))
		require.Zero(t, looks[0])
		for i, look := range looks[1:] {
			require.LessOrEqual(t, look-looks[i], min(max(2*time.Millisecond, look/50), 20*time.Millisecond))
		}
		require.Less(t, len(looks), 800, "it was looked at 5,000 times when it was each 2 ms")
	})
}

func TestUntilSaysWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("it took too long")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ended)
		defer cancel()
		err := await.Until(ctx, func() error {
			if ctx.Err() != nil || await.Over(ctx) {
				return errors.New("timed out")
			}
			return errors.New("not yet")
		})
		require.ErrorIs(t, err, ended)
		require.ErrorContains(t, err, "not yet", "what was said before the end")
		require.NotContains(t, err.Error(), "timed out")
		require.NoError(t, await.Until(ctx, func() error { return nil }), "looked at once, even if there is no time left")
		require.ErrorContains(t, await.Until(ctx, func() error { return errors.New("not yet") }), "not yet")
	})
}

func TestThroughOutlivesWhoeverCalledItOff(t *testing.T) {
	called := errors.New("called off")
	tests := []struct {
		name         string
		within, want time.Duration
	}{
		{"no deadline", 0, 10 * time.Second},
		{"a late one", 20 * time.Second, 20 * time.Second},
		{"one that is near", time.Second, 10 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, off := context.WithCancelCause(t.Context())
				if tt.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				through, cancel, err := await.Through(ctx)
				require.NoError(t, err)
				defer cancel()
				off(called)
				began := time.Now()
				<-through.Done()
				require.Equal(t, tt.want, time.Since(began))
				require.EqualError(t, context.Cause(through), "not done after "+tt.want.String())
				_, _, err = await.Through(ctx)
				require.ErrorIs(t, err, called)
			})
		})
	}
}

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
