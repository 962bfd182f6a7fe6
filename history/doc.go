// Package history is the record in the middle: what was observed in a run, in
// the order in which it was observed, one flat event a line.
//
// A workload writes a history through a [Recorder], faults annotate it, the
// checker judges it and the reports draw it; they share nothing else. Whatever
// writes these lines can be judged, in any language.
//
// The package imports the standard library and one for JSON, and logs nothing.
package history
