package reports_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	diagram "github.com/lockchaos/lockchaos/reports/internal/chart"
)

// Many double grants that all come late in the first lease tell of leases that the servers end
// too early, and not of releases.
func TestACutLeaseIsTold(t *testing.T) {
	t.Parallel()
	told := func(passed ...float64) string {
		s := &script{}
		s.declare("orders")
		cutLeases(passed...)(s)
		return reports.Summarize(judged(run(), s.history())).Story.String()
	}
	const words, cure = "Each of the 5 double grants without a fault came when at least 1,001 ms of the first client's lease had passed", "live for the whole lease"
	require.Contains(t, told(1000, 1100, 1002, 1300, 1001), words)
	require.Contains(t, told(1000, 1100, 1002, 1300, 1001), cure)
	for name, passed := range map[string][]float64{"too few": {1000, 1100, 1002, 1300}, "one comes early": {1000, 1100, 100, 1300, 1001}} {
		require.NotContains(t, told(passed...), "double grants without a fault", name)
		require.NotContains(t, told(passed...), cure, name)
	}
}

// Requests that were granted while both were under way tell of a lock that is acquired in two
// steps; a single one may come from a release in between.
func TestTwoStepsAreTold(t *testing.T) {
	t.Parallel()
	told := func(apart ...float64) string {
		s := &script{}
		s.declare("orders")
		twoSteps(apart...)(s)
		return reports.Summarize(judged(run(), s.history())).Story.String()
	}
	const words, cure = "3 gave the lock to two clients whose requests were under way at once", "look whether the lock is free and acquire it in one step on the server"
	require.Contains(t, told(2, 5, 8, 100), "Of 4 double grants without a fault, "+words)
	require.Contains(t, told(2, 5, 8, 100), cure)
	for name, apart := range map[string][]float64{"too few": {2, 5, 100}, "one after the other": {12, 15, 100, 20}, "few of many": {2, 5, 8, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100}} {
		require.NotContains(t, told(apart...), "under way at once", name)
		require.NotContains(t, told(apart...), cure, name)
	}
}

// A double grant without any fault tells of a release that can have come after its lease,
// though it proves nothing, and of none that can't.
func TestALateReleaseIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent, answered float64
		outcome        history.Type
		fault, what    string
		want           string
	}{
		"unknown":            {350, 360, history.Info, "", "", "the release of orders by client a, whose outcome is unknown, was sent after its time had ended at"},
		"slow":               {290, 360, history.OK, "", "", "may have reached the servers after its time had ended at"},
		"refused":            {350, 360, history.Fail, "", "", ""},
		"confirmed again":    {350, 360, history.Fail, "", history.ConfirmedAgain, "the release of orders by client a, which was confirmed although it was the second one of its hold, was sent after another one at 0.250 s"},
		"in time":            {290, 300, history.OK, "", "", ""},
		"given up in time":   {250, 255, history.Info, "", "", ""},
		"after the grant":    {380, 390, history.Info, "", "", ""},
		"there was a reason": {350, 360, history.Info, "flush", "", ""},
		"held back":          {250, 255, history.Info, "hold-command", "", "the release of orders by client a, whose outcome is unknown, may have reached the servers after its time had ended at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			s.declare("orders")
			lateRelease(c.sent, c.answered, c.outcome, c.what)(s)
			switch c.fault {
			case "flush":
				s.fault(history.Inject, "flush", "redis-1", 340, 345, history.OK, "redis-1 forgot 1 key", "")
			case "hold-command":
				s.fault(history.Inject, "hold-command", "zone-a>redis-1", 240, 251, history.OK, "the first DEL was held back", "")
				s.fault(history.Heal, "hold-command", "zone-a>redis-1", 340, 345, history.OK, "the first DEL was delivered", "")
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

// What was held back arrives when the heal begins, which may be answered after the violation.
func TestTheHealThatLetsALateWriteGoIsTold(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "zone-a.1#1", "redis-1", 10, 11, 500)
	s.access(1, "orders", "zone-a.1#1", "stock", "0>1", 20, 801)
	s.fault(history.Inject, "hold-command", "zone-a>resource", 21, 22, history.OK, "the first SET stock on zone-a>resource was held back", "")
	s.acquire(2, "orders", "zone-b.1#1", "redis-1", 600, 601, 500)
	s.access(2, "orders", "zone-b.1#1", "stock", "0>1", 610, 611)
	s.fault(history.Heal, "hold-command", "zone-a>resource", 800, 802, history.OK, "", "")
	r := reports.Summarize(judged(run(), s.history()))
	story := r.Story
	at := slices.IndexFunc(story.Events, func(m reports.StoryEvent) bool { return m.Text == "the heal of hold-command zone-a>resource began" })
	require.GreaterOrEqual(t, at, 0, story.String())
	require.Equal(t, ms(800), story.Events[at].At)
	require.Equal(t, reports.EventViolation, story.Events[at+1].Kind)

	steps := r.Causes[0].Sequence.Steps
	at = slices.IndexFunc(steps, func(step diagram.Step) bool { return strings.HasPrefix(step.Text, "hold-command") })
	require.Equal(t, []string{"stock", "zone-a.1"}, steps[at].Over, "the diagram shows it between the client and the resource")
}
