package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// A double grant without any fault tells of a release that can have come after its lease,
// though it proves nothing, and of none that can't.
func TestALateReleaseIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent, answered float64
		outcome        history.Type
		fault          bool
		want           string
	}{
		"unknown":            {350, 360, history.Info, false, "the release of orders by client a, whose outcome is unknown, was sent after its time had ended at"},
		"slow":               {290, 360, history.OK, false, "may have reached the servers after its time had ended at"},
		"refused":            {350, 360, history.Fail, false, ""},
		"in time":            {290, 300, history.OK, false, ""},
		"after the grant":    {380, 390, history.Info, false, ""},
		"there was a reason": {350, 360, history.Info, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			s.declare("orders")
			lateRelease(c.sent, c.answered, c.outcome)(s)
			if c.fault {
				s.fault(history.Inject, "flush", "redis-1", 340, 345, history.OK, "redis-1 forgot 1 key", "")
			}
			story := reports.Summarize(judged(run(), s.history())).Story
			require.Contains(t, story.Headline, "Two clients held the lock orders at the same time")
			if c.want == "" {
				require.NotContains(t, story.String(), "ends the hold of client")
				return
			}
			require.Contains(t, story.String(), c.want)
			require.Contains(t, story.String(), "compare the owner and delete in one step on the server")
		})
	}
}
