package reports

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// heldOnce is a history in which holds end in every way.
func heldOnce() Input {
	h := &history.History{}
	add := func(ms int, e history.Event) {
		e.Time, e.Index = time.Duration(ms)*time.Millisecond, int64(len(h.Events))
		h.Events = append(h.Events, e)
	}
	request := func(p, from, to int, op history.Op, owner string, end history.Type, expires int) {
		e := history.Event{Process: p, Type: history.Invoke, Op: op, Lock: owner, Owner: owner}
		add(from, e)
		e.Type, e.Expires = end, time.Duration(expires)*time.Millisecond
		add(to, e)
	}
	request(1, 10, 20, history.Acquire, "released", history.OK, 900)
	request(2, 21, 30, history.Acquire, "expired", history.OK, 300)
	request(3, 31, 40, history.Acquire, "lost", history.OK, 900)
	request(4, 41, 50, history.Acquire, "unknown", history.OK, 900)
	request(5, 51, 60, history.Acquire, "time left", history.OK, 90000)
	request(6, 61, 70, history.Acquire, "open", history.OK, 0)
	request(1, 120, 121, history.Release, "released", history.OK, 0)
	request(4, 130, 135, history.Release, "unknown", history.Info, 0)
	add(240, history.Event{Process: 3, Type: history.OK, Op: history.Lost, Lock: "lost", Owner: "lost"})
	request(8, 941, 945, history.Acquire, "cut", history.OK, 900)
	last := history.Event{Process: 7, Type: history.Invoke, Op: history.Acquire, Lock: "last", Owner: "last"}
	add(950, last)
	request(8, 960, 961, history.Release, "cut", history.OK, 0) // as the clients stop
	last.Type = history.Fail
	add(1000, last)
	return Input{History: h}
}

func TestHoldDurations(t *testing.T) {
	m := newModel(heldOnce())
	s, dd := m.holdDurations()
	require.Equal(t, []chart.Point{{X: 0.120, Y: 0.100}}, dd.Most, "from its grant to the request that released it")
	require.ElementsMatch(t, []chart.Point{{X: 0.300, Y: 0.270}, {X: 0.240, Y: 0.200}}, dd.Slashes, "by its lease, and lost")
	require.Equal(t, []chart.Point{{X: 0.130, Y: 0.080}}, dd.Rings)
	require.Equal(t, scale{window{0, time.Second}, 0.080, 0.270}, s)
	l, ok := m.holdLatency()
	require.True(t, ok)
	require.Equal(t, Latency{
		Count: 1, Mean: 100 * time.Millisecond, Min: 100 * time.Millisecond,
		Max: 100 * time.Millisecond,
	}, l)
	in := heldOnce()
	in.Run.Scenario = "a script, which stops no client"
	l, _ = newModel(in).holdLatency()
	require.Equal(t, 2, l.Count)

	var svg bytes.Buffer
	require.NoError(t, m.plotWriter("holds", m.holdsFigure)(&svg))
	for _, words := range []string{">released<", ">ended by its lease, or lost<", ">end unknown<"} {
		require.Equal(t, 1, strings.Count(svg.String(), words), words)
	}
}

// Where nothing ended there is nothing to plot, and no row of figures.
func TestNoHolds(t *testing.T) {
	m := newModel(Input{})
	s, dd := m.holdDurations()
	require.Empty(t, dd.Most)
	require.Empty(t, dd.Slashes)
	require.Positive(t, s.high)
	_, ok := m.holdLatency()
	require.False(t, ok)
	require.NoError(t, m.plotWriter("holds", m.holdsFigure)(&bytes.Buffer{}))
}
