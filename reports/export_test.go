package reports

import "io"

// WriteTimeline writes the file timeline.svg of a run directory.
func WriteTimeline(w io.Writer, in Input) error { return newDigest(in).writeTimeline(w) }

// WriteShare writes share.svg.
func WriteShare(w io.Writer, in Input) error { return newDigest(in).writeShare(w) }

// WriteLatency writes latency.svg.
func WriteLatency(w io.Writer, in Input) error {
	d := newDigest(in)
	return d.plotWriter("latency", d.latencyFigure)(w)
}
