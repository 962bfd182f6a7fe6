// Package reports tells what happened in a run: as a terminal summary, as
// Markdown, as JSON, as JUnit XML, as plots and as one HTML file that opens from
// disk. It also lists runs ([WriteIndex]) and says in what two differ
// ([Compare]).
//
// Every report is a pure function of an [Input]: the same run record, history
// and verdicts give the same bytes. The package starts nothing, asks no server
// and logs nothing; [WriteDir], [ReadDir],
// [ReadRuns], [UpdateIndex] and [NewHandler] are its only contact with a disk.
package reports
