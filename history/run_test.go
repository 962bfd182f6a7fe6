package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

func TestReadRun(t *testing.T) {
	t.Parallel()
	run, err := history.ReadRun(strings.NewReader(`{"version":1,"seed":18446744073709551615,"progress":5,"lock":"mutex","colour":"red","settings":{"length":7,"rate":0.5}}` + "\n"))
	require.NoError(t, err)
	require.Equal(t, uint64(18446744073709551615), run.Seed)
	require.Equal(t, time.Duration(5), run.Progress)
	require.JSONEq(t, `{"length":7,"rate":0.5}`, string(run.Settings))
}

func TestReadRunRefusesWhatNoRunWrites(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ give, want string }{
		{"", "it is empty"},
		{"[]", "want one JSON object, found a list"},
		{`{"version":1`, "want one JSON object: it ends in the middle of one"},
		{`{"version":1} {}`, "want one JSON object: there is more behind it"},
		{`{"version":1}` + "\x00\x00", "NUL bytes"},
		{`{"version":9}`, "version 9, want 1"},
		{`{"version":1,"progress":-5}`, `field "progress": -5 is out of range`},
		{`{"version":1,"duration":-1}`, `field "duration": -1 is out of range`},
		{`{"version":1,"duration":9223372036854775807}`, `field "duration": 9223372036854775807 is out of range`},
		{`{"version":1,"ledger":{"forks":-1}}`, `field "ledger.forks": -1 is out of range`},
		{`{"version":1,"plan":[{"at":-1}]}`, `field "plan.at": -1 is out of range`},
		{`{"version":1,"Progress":5}`, `field "Progress": write it as "progress"`},
		{`{"version":1,"progress":5,"progress":6}`, `field "progress" is there twice`},
		{`{"version":1,"progress":"5"}`, `field "progress": want whole nanoseconds, found a string`},
		{`{"version":1,"lock":"` + "\xff" + `"}`, `invalid UTF-8 within "/lock" after offset 21`},
		{`{"version":1,"progress":` + strings.Repeat("9", 1<<20) + `}`, "bytes)"},
		{`{"version":1,"settings":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}`, "exceeded max depth"},
		{`{"version":1,"lock":"` + strings.Repeat("x", 64<<20) + `"}`, "longer than 67108864 bytes"},
	} {
		_, err := history.ReadRun(strings.NewReader(test.give))
		require.ErrorContains(t, err, test.want)
		require.Less(t, len(err.Error()), 300)
	}
}
