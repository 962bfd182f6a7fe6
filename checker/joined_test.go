package checker_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// Windows remember that an acquire with an unknown outcome may have been an inner
// one of a hold that they have forgotten.
func TestWindowsRememberAnAcquireThatMayBeInner(t *testing.T) {
	t.Parallel()
	h, err := history.ReadAll(strings.NewReader(`{"time":1000000,"process":0,"type":"invoke","op":"acquire","lock":"k","owner":"a","mode":"read","lease":8000000}
{"time":3000000,"process":0,"type":"ok","op":"acquire","lock":"k","owner":"a","mode":"read","lease":8000000}
{"time":3000000,"process":4,"type":"invoke","op":"acquire","lock":"k","owner":"d","mode":"read"}
{"time":4000000,"process":0,"type":"invoke","op":"release","lock":"k","owner":"a","mode":"read"}
{"time":4000000,"process":0,"type":"info","op":"release","lock":"k","owner":"a","mode":"read"}
{"time":10000000,"process":4,"type":"ok","op":"acquire","lock":"k","owner":"d","mode":"read"}
{"time":48000000,"process":8,"type":"invoke","op":"acquire","lock":"k","owner":"c","mode":"read"}
{"time":49000000,"process":5,"type":"invoke","op":"acquire","lock":"k","owner":"a","mode":"read","lease":21000000}
{"time":49000000,"process":5,"type":"info","op":"acquire","lock":"k","owner":"a","mode":"read","lease":21000000}
{"time":50000000,"process":7,"type":"invoke","op":"acquire","lock":"k","owner":"b","mode":"write","lease":21000000}
{"time":52000000,"process":9,"type":"invoke","op":"release","lock":"k","owner":"a","mode":"read"}
{"time":52000000,"process":8,"type":"ok","op":"acquire","lock":"k","owner":"c","mode":"read","expires":62000000}
{"time":52000000,"process":9,"type":"fail","op":"release","lock":"k","owner":"a","mode":"read"}
{"time":53000000,"process":7,"type":"ok","op":"acquire","lock":"k","owner":"b","mode":"write","lease":21000000}
{"time":55000000,"process":9,"type":"invoke","op":"release","lock":"k","owner":"a"}
{"time":58000000,"process":9,"type":"ok","op":"release","lock":"k","owner":"a"}
`))
	require.NoError(t, err)
	require.Equal(t, checker.Unknown, verdictOf(checker.Check(t.Context(), h), checker.Ownership().Name()))
	require.Empty(t, differences(t, h, 1, false))
}
