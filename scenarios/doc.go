// Package scenarios makes a topology, a lock, a workload and faults into one
// run, and keeps the catalogue of known ways in which locks break.
//
// A random run drives a workload while a seeded schedule of faults passes. A
// [Scenario] is a script: named clients and faults take turns, each step
// waiting for the one before to have taken effect. Both leave a run directory
// with run.json, history.jsonl and the servers' logs, for the checker and the
// reports.
package scenarios
