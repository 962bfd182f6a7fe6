package reports

import "io"

// WriteLatency writes latency.svg.
func WriteLatency(w io.Writer, in Input) error {
	m := newModel(in)
	return m.plotWriter("latency", m.latencyFigure)(w)
}
