package checker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

func TestRunVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		run         history.Run
		found, want checker.Verdict
		damaged     bool
	}{
		{"what was found", history.Run{}, checker.Invalid, checker.Invalid, false},
		{"a script that was cut short", history.Run{AbortReason: "step 3"}, checker.Valid, checker.Unknown, false},
		{"a violation before a script was cut short", history.Run{AbortReason: "step 3"}, checker.Invalid, checker.Invalid, false},
		{"servers that another run took over", history.Run{ClaimLostTo: "process 7"}, checker.Invalid, checker.Unknown, false},
		{"a failure of the harness hides no violation", history.Run{Failed: "redis-1 goes on"}, checker.Invalid, checker.Invalid, false},
		{"a violation in what is left", history.Run{}, checker.Invalid, checker.Invalid, true},
		{"no violation in what is left", history.Run{}, checker.Valid, checker.Unknown, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, checker.RunVerdict(tt.run, tt.found, !tt.damaged))
		})
	}
}

func TestCheckRun_doubts(t *testing.T) {
	t.Parallel()
	inject := func(events ...history.Event) *history.History { return &history.History{Events: events} }
	landed := history.Event{Time: 1, Process: history.NoProcess, Op: history.Inject, Type: history.OK, Fault: "cut"}
	tried := history.Event{Process: history.NoProcess, Op: history.Inject, Type: history.Invoke, Fault: "hold-command"}
	unmet := history.Event{Time: 2, Process: history.NoProcess, Op: history.Observe, Type: history.OK, What: history.ObserveMet, Value: "0", Fault: "cut"}
	for _, tt := range []struct {
		name string
		run  history.Run
		h    *history.History
		want string // in the last result; empty: no doubt
	}{
		{"none", history.Run{Duration: time.Second, Faults: "network"}, inject(landed), ""},
		{"no faults were asked for", history.Run{Duration: time.Second, Faults: history.NoFaults}, inject(), ""},
		{"no fault landed", history.Run{Duration: time.Second, Faults: "network"}, inject(), "none took effect on a request: the run was too short for one, or the plan is empty"},
		{"one waited in vain", history.Run{Duration: time.Second, Faults: "network"}, inject(tried), "none took effect on a request: give the run another seed, more time, or faults that wait for none of its commands"},
		{"no request met one", history.Run{Duration: time.Second, Faults: "network"}, inject(landed, unmet), "none took effect on a request"},
		{"cut short", history.Run{AbortReason: "step 3"}, inject(), "could not be played to its end: step 3"},
		{"interrupted", history.Run{Duration: time.Second, Interrupted: true}, inject(), "the run was interrupted"},
		{"no end", history.Run{}, inject(), "the run did not end in order"},
		{"whole", history.Run{Duration: time.Second, Events: 1}, inject(landed), ""},
		{"lines are missing", history.Run{Duration: time.Second, Events: 3}, inject(landed), "the history is not whole: it has 1 events, and the run recorded 3"},
		{"lines were added", history.Run{Duration: time.Second, Events: 1}, inject(landed, unmet), "the history is not whole: it has 2 events, and the run recorded 1"},
		{"failed", history.Run{Duration: time.Second, Failed: "redis-1 goes on"}, inject(), "the harness failed: redis-1 goes on"},
		{"taken over", history.Run{Duration: time.Second, ClaimLostTo: "process 7"}, inject(), "the work of another run: process 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report := checker.CheckRun(t.Context(), tt.run, tt.h, checker.RunOptions{Properties: []string{"mutual-exclusion"}})
			if tt.want == "" {
				require.Len(t, report.Results, 1)
				return
			}
			require.Len(t, report.Results, 2)
			require.Contains(t, report.Results[1].Summary, tt.want)
			require.Equal(t, checker.Unknown, report.Verdict)
		})
	}
}
