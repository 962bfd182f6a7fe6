package checker_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// metIn is what the assumptions count in a history of the corpus.
func metIn(t *testing.T, text string, meets ...string) checker.Result {
	t.Helper()
	h, err := history.ReadAll(strings.NewReader(text))
	require.NoError(t, err)
	report := checker.Check(t.Context(), h, checker.Assumptions(meets...))
	require.Len(t, report.Results, 1)
	return report.Results[0]
}

// In the one history b is refused while a holds the lock twice; then it waits,
// and a stops renewing and is gone.
const covered = `
{"time":0,"process":-1,"type":"ok","op":"declare","lock":"l","kind":"mutex","reentrant":true}
{"time":1000000,"process":1,"type":"invoke","op":"acquire","lock":"l","owner":"a","lease":100000000}
{"time":2000000,"process":1,"type":"ok","op":"acquire","lock":"l","owner":"a","expires":101000000}
{"time":3000000,"process":1,"type":"invoke","op":"acquire","lock":"l","owner":"a","lease":100000000}
{"time":4000000,"process":1,"type":"ok","op":"acquire","lock":"l","owner":"a","expires":101000000}
{"time":5000000,"process":2,"type":"invoke","op":"acquire","lock":"l","owner":"b"}
{"time":6000000,"process":2,"type":"fail","op":"acquire","lock":"l","owner":"b","error":"held"}
{"time":7000000,"process":3,"type":"invoke","op":"extend","lock":"l","owner":"a","lease":100000000}
{"time":8000000,"process":3,"type":"ok","op":"extend","lock":"l","owner":"a","expires":107000000}
{"time":9000000,"process":4,"type":"invoke","op":"extend","lock":"l","owner":"a","lease":200000000}
{"time":10000000,"process":4,"type":"info","op":"extend","lock":"l","owner":"a","error":"no answer"}
{"time":11000000,"process":2,"type":"invoke","op":"acquire","lock":"l","owner":"c","lease":100000000}
{"time":12000000,"process":1,"type":"info","op":"crash","lock":"l","owner":"a"}
{"time":300000000,"process":2,"type":"ok","op":"acquire","lock":"l","owner":"c","expires":400000000,"queued":7}
{"time":310000000,"process":2,"type":"invoke","op":"release","lock":"l","owner":"c"}
{"time":311000000,"process":2,"type":"ok","op":"release","lock":"l","owner":"c"}
`

func TestTheAssumptionsCountWhatAHistoryMet(t *testing.T) {
	r := metIn(t, covered)
	require.Equal(t, checker.Valid, r.Verdict, r.Summary)
	require.Equal(t, map[string]int{
		history.MetContention: 2, history.MetHandOvers: 1, history.MetRefusals: 1, history.MetUnknown: 1,
		history.MetExpiries: 1, history.MetRenewals: 1, history.MetReentries: 1, history.MetQueued: 1, history.MetCrashes: 1,
	}, r.Met)
}

func TestWhatAWorkloadIsForMustBeMet(t *testing.T) {
	require.Equal(t, checker.Valid, metIn(t, covered, history.MetReentries, history.MetCrashes).Verdict)
	r := metIn(t, covered, history.MetReentries, history.MetDowngrades)
	require.Equal(t, checker.Unknown, r.Verdict)
	require.Contains(t, r.Summary, "there were no downgrades, and the workload is there for that")

	r = metIn(t, covered, history.MetUnleased) // all that was asked for had a lease
	require.Equal(t, checker.Unknown, r.Verdict)
	require.Contains(t, r.Summary, "there were no grants without a lease, and the workload is there for that")
	r = metIn(t, strings.Replace(covered, `,"lease":100000000`, "", 1), history.MetUnleased)
	require.Equal(t, 1, r.Met[history.MetUnleased])
}

func TestWhatOwnersHoldTogetherIsCounted(t *testing.T) {
	for _, tt := range []struct {
		name, give string
		want       map[string]int
	}{
		{"readers, one of whom wrote", `
{"time":0,"process":-1,"type":"ok","op":"declare","lock":"l","kind":"rw"}
{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"l","owner":"a","mode":"write","lease":1000}
{"time":2,"process":1,"type":"ok","op":"acquire","lock":"l","owner":"a","mode":"write"}
{"time":3,"process":1,"type":"invoke","op":"acquire","lock":"l","owner":"a","mode":"read","lease":1000}
{"time":4,"process":1,"type":"ok","op":"acquire","lock":"l","owner":"a","mode":"read"}
{"time":5,"process":2,"type":"invoke","op":"acquire","lock":"l","owner":"b","mode":"read","lease":1000}
{"time":6,"process":1,"type":"invoke","op":"release","lock":"l","owner":"a","mode":"write"}
{"time":7,"process":1,"type":"ok","op":"release","lock":"l","owner":"a","mode":"write"}
{"time":8,"process":2,"type":"ok","op":"acquire","lock":"l","owner":"b","mode":"read"}
`, map[string]int{history.MetContention: 1, history.MetDowngrades: 1, history.MetShared: 1}},
		{"two locks, and a refused access", `
{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"x","owner":"a","lease":1000}
{"time":2,"process":1,"type":"ok","op":"acquire","lock":"x","owner":"a","token":5}
{"time":3,"process":1,"type":"invoke","op":"acquire","lock":"y","owner":"a","lease":1000}
{"time":4,"process":1,"type":"ok","op":"acquire","lock":"y","owner":"a"}
{"time":5,"process":1,"type":"invoke","op":"access","lock":"x","owner":"a","resource":"r","token":5}
{"time":6,"process":1,"type":"fail","op":"access","lock":"x","owner":"a","resource":"r","token":5,"value":"1>2","error":"stale token refused"}
{"time":7,"process":1,"type":"invoke","op":"access","lock":"x","owner":"a","resource":"r","token":5}
{"time":8,"process":1,"type":"fail","op":"access","lock":"x","owner":"a","resource":"r","token":5,"error":"abandoned: the lease is over"}
`, map[string]int{history.MetContention: 0, history.MetSeveral: 1, history.MetStale: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, metIn(t, tt.give).Met) })
	}
}
