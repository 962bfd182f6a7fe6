package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// Two looks at one server, one soon after the other, are told as two.
func TestTwoLooksAtOneServer(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "", 10, 12, 30000)
	s.observe(14, "redis-1", history.ObserveKey, "orders")
	s.observe(15, "redis-2", history.ObserveKey, "orders")
	s.observe(16, "redis-1", history.ObserveKey, "orders a#1")
	s.acquire(2, "orders", "b#1", "", 20, 22, 30000)
	told := reports.Summarize(judged(run(), s.history())).Story.String()
	require.Contains(t, told, "At 0.014 s redis-1 and redis-2 had no holder of orders. At 0.016 s redis-1 had client a as the holder of orders.")
}
