package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
)

// Judge fails the test unless a history is valid. The history is of any origin:
// [history.ReadAll] reads one, and [history.Recorder] records one.
func Judge(t *testing.T, h *history.History) {
	t.Helper()
	p, err := judged(t.Context(), h)
	if err != nil {
		t.Fatalf("chaos.Judge: %v", err)
	}
	if p.unexpected != nil {
		if p.dir, p.failed = newDir(t, t.Name()); p.failed == nil {
			p.failed = reports.WriteDir(p.dir, p.in)
		}
	}
	report(t, p)
}

// judged is a history with its verdict, which must be valid.
func judged(ctx context.Context, h *history.History) (played, error) {
	if h == nil {
		return played{}, errors.New("there is no history")
	}
	if err := checker.SeveralClocks(h.Events); err != nil {
		return played{}, fmt.Errorf("%w: judge such a history by lockchaos check --clock-error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, judge.Budget)
	defer cancel()
	p := played{}
	p.in = reports.Input{Run: history.Run{Version: history.RunVersion, Duration: h.End()}, History: h}
	p.in.Report = checker.CheckRun(ctx, p.in.Run, h, checker.RunOptions{})
	p.unexpected = mustBeValid(p.in)
	return p, nil
}
