// Package harness is one run: it starts a topology, opens a lock, drives a workload or a
// script, injects faults, records, judges and writes.
//
// A [RandomRun] drives a workload while a seeded schedule of faults passes, and
// [Replay] makes one of a record. A [Session] is what every run has: servers, a
// recorder, a lock under test and the faults that are active; packages scenarios and
// mutants drive sessions by their scripts. A run leaves a directory with run.json,
// history.jsonl and the servers' logs, for the checker and the reports.
package harness
