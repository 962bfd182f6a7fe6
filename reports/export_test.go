package reports

import "io"

// WriteTimeline writes the file timeline.svg of a run directory.
func WriteTimeline(w io.Writer, in Input) error { return newModel(in).writeTimeline(w) }

// WriteShare writes share.svg.
func WriteShare(w io.Writer, in Input) error { return newModel(in).writeShare(w) }

// WriteLatency writes latency.svg.
func WriteLatency(w io.Writer, in Input) error {
	m := newModel(in)
	return m.plotWriter("latency", m.latencyFigure)(w)
}
