// Package simulation runs workloads of real lock clients in virtual time on simulated
// Redis servers (package world): many runs a second, and the same again for the same
// [Case]. What is recorded is an ordinary history, judged by the ordinary checker.
//
// A [Case] is all that decides a run, as plain data. [Draw] draws one from a seed,
// [Run] runs it, [Shrink] makes one that shows a violation small, and [Replays] tells
// whether it is the same each time.
//
// What a simulation finds is a lead, which a run on real servers confirms. What it does
// not find proves nothing: see docs/simulation.md.
package simulation
