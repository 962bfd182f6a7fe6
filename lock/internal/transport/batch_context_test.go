package transport

import (
	"context"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

type traced struct{}

// A call that is sent alone has the values of its caller, so that a hook which traces requests
// counts it as that caller's. Calls of several callers have those of none.
func TestBatchHasTheValuesOfNoCaller(t *testing.T) {
	deadline := time.Now().Add(time.Minute)
	a, cancel := context.WithDeadline(context.WithValue(t.Context(), traced{}, "a"), deadline)
	defer cancel()
	b, cancel := context.WithDeadline(context.WithValue(t.Context(), traced{}, "b"), deadline.Add(time.Minute))
	defer cancel()
	forever := context.WithValue(t.Context(), traced{}, "c")

	alone, stop := batchContext([]*queuedCall{{ctx: a}})
	defer stop()
	require.Equal(t, any("a"), alone.Value(traced{}))
	for _, batch := range [][]*queuedCall{{{ctx: a}, {ctx: b}}, {{ctx: a}, {ctx: forever}}} {
		ctx, stop := batchContext(batch)
		defer stop()
		require.Equal(t, nil, ctx.Value(traced{}))
	}
	last, stop := batchContext([]*queuedCall{{ctx: a}, {ctx: b}})
	defer stop()
	end, ok := last.Deadline()
	require.True(t, ok)
	require.Equal(t, deadline.Add(time.Minute), end)
}
