// Package reports tells what happened in a run: as a terminal summary, as
// JSON, as JUnit XML, as plots and as one HTML file that opens from disk.
//
// Every report is a pure function of an [Input]: the same run record, history
// and verdicts give the same bytes. The package starts nothing, asks nobody
// and logs nothing; [WriteDir] and [ReadDir] are its only contact with a disk.
package reports
