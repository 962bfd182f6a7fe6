// Package scenarios has the language of scripts, and the catalogue of known ways in which
// locks break.
//
// A [Scenario] is a script in YAML: named clients and faults take turns, each step
// waiting for the one before to have taken effect. It is played in a session of
// package harness, and leaves a run directory as every run does.
package scenarios
