package reports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/plotter"

	"github.com/lockchaos/lockchaos/history"
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
	d := m.holdDurations()
	require.Equal(t, plotter.XYs{{X: 0.120, Y: 0.100}}, d.most, "from its grant to the request that released it")
	require.ElementsMatch(t, plotter.XYs{{X: 0.300, Y: 0.270}, {X: 0.240, Y: 0.200}}, d.short, "by its lease, and lost")
	require.Equal(t, plotter.XYs{{X: 0.130, Y: 0.080}}, d.open)
	require.Equal(t, scale{window{0, time.Second}, 0.080 / 1.5, 0.8}, m.span(d.most, d.short, d.open))
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
	svg, err := m.durationPlot("Holds", d, m.span(d.most)).SVG("holds")
	require.NoError(t, err)
	for _, words := range append(d.words[:], "Holds", "seconds") {
		require.Contains(t, svg, ">"+words+"<")
	}
}

// Where nothing ended there is nothing to plot, and no row of figures.
func TestNoHolds(t *testing.T) {
	m := newModel(Input{})
	d := m.holdDurations()
	require.Empty(t, d.most)
	require.Empty(t, d.short)
	_, ok := m.holdLatency()
	require.False(t, ok)
	_, err := m.durationPlot("Holds", d, m.span(d.most)).SVG("holds")
	require.NoError(t, err)
}

// Many dots become a cloud, and lines of percentiles are interrupted where a part of the time has too few.
func TestManyRequestsArePlotted(t *testing.T) {
	s := &history.History{}
	for i := range 3000 {
		at := time.Duration(i) * time.Millisecond
		if i >= 1500 {
			at += 10 * time.Second
		}
		e := history.Event{Process: 1, Type: history.Invoke, Op: history.Acquire, Lock: "a", Owner: "o", Time: at, Index: int64(2 * i)}
		s.Events = append(s.Events, e)
		e.Type, e.Time, e.Index = history.OK, at+time.Duration(1+i%7)*100*time.Microsecond, int64(2*i+1)
		s.Events = append(s.Events, e)
	}
	m := newModel(Input{History: s})
	d := m.requestDurations()
	line, gap := m.quantiles(d.most, 500, 20)
	apart := 0
	for i := range line[1:] {
		apart += b2i(line[i+1].X-line[i].X > gap)
	}
	require.Equal(t, 1, apart)
	all, err := m.plots()
	require.NoError(t, err)
	require.Contains(t, all[0].svg, "data:image/")
	require.Less(t, len(all[0].svg), 60_000, "of 3,000 requests")
	again, err := m.plots()
	require.NoError(t, err)
	require.Equal(t, all, again)
}
