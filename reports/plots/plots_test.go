package plots

import (
	"encoding/xml"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// Of many requests the longest of each part are drawn, lines of percentiles are interrupted where a part of the time has too few, and what
// distributions are compared by is legible.
func TestPlots(t *testing.T) {
	h := &history.History{}
	for i := range 3000 {
		at := time.Duration(i) * time.Millisecond
		if i >= 1500 {
			at += 10 * time.Second
		}
		e := history.Event{Process: 1, Type: history.Invoke, Op: history.Acquire, Lock: "a", Owner: "o", Time: at, Index: int64(2 * i)}
		h.Events = append(h.Events, e)
		e.Type, e.Time, e.Index = history.OK, at+time.Duration(1+i%7)*100*time.Microsecond, int64(2*i+1)
		h.Events = append(h.Events, e)
	}
	r := facts.Of(history.Run{}, h, checker.Report{}, true)
	line, gap := quantiles(r, r.Requests().Most, 500, 20)
	apart := 0
	for i := range line[1:] {
		if line[i+1].X-line[i].X > gap {
			apart++
		}
	}
	require.Equal(t, 1, apart)
	svg, err := latency(r, "Latency", r.Requests(), [3]string{}).svg(1000, 260, "latency")
	require.NoError(t, err)
	require.Less(t, len(svg), 60_000, "of 3,000 requests")
	_, err = latency(r, "Holds", facts.Durations{}, [3]string{}).svg(1000, 260, "nothing")
	require.NoError(t, err)

	empty, err := Curves("nothing", []Curve{{Name: "none"}})
	require.NoError(t, err)
	require.Empty(t, empty)
	svg, err = Curves(`wait & "hold"`, []Curve{
		{Name: "floor", Base: true, Points: []CurvePoint{{Share: 0, Micros: 40}, {Share: 0.5, Micros: 50}, {Share: 0.99, Micros: 200}}},
		{Name: "mutex", Hue: 1, Points: []CurvePoint{{Share: 0, Micros: 60}, {Share: 0.5, Micros: 90}, {Share: 0.999, Micros: 4000}, {Share: 1, Micros: 9000}}},
	})
	require.NoError(t, err)
	for _, want := range []string{"floor", "mutex", "99.9 %", "µs", ">100<", ">1000<", "stroke-dasharray", "#D98200"} {
		require.Contains(t, svg, want)
	}
	require.NotContains(t, svg, "99.99 %", "a share of 1 has no place on the axis")
	require.NoError(t, xml.Unmarshal([]byte(svg), new(struct{})))
}
