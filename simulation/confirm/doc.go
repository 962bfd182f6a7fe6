// Package confirm writes the scenario that plays on real servers what a simulated run
// showed.
//
// A simulated run is a history: which client asked for what, when it was answered, and
// which fault began or ended in between. A scenario has the same steps in the same order;
// what overlaps in the history goes on in the background. Time is not the same: leases
// that the violation does not wait for are made long, so that a slow machine does not end
// them.
package confirm
