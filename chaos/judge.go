package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// Judge fails the test unless a history is valid. The history is of any origin:
// [history.ReadAll] reads one, and [history.Recorder] records one.
func Judge(t *testing.T, h *history.History) {
	t.Helper()
	if h == nil {
		t.Fatal("chaos.Judge: there is no history")
	}
	ctx, cancel := context.WithTimeout(t.Context(), judgeBudget)
	defer cancel()
	p := played{}
	p.in = reports.Input{Run: history.Run{Version: history.RunVersion, Duration: lastOf(h)}, History: h}
	p.in.Report = checker.CheckRun(ctx, p.in.Run, h, checker.RunOptions{})
	if p.met = mustBeValid(p.in); p.met != nil {
		if p.dir, p.failed = newDir(t, t.Name()); p.failed == nil {
			p.failed = reports.WriteDir(p.dir, p.in)
		}
	}
	report(t, p)
}

// lastOf is when the last event of a history was.
func lastOf(h *history.History) time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].Time
}
