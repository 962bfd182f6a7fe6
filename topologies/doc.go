// Package topologies says which nodes a deployment of Redis has, how they
// are wired, and what can be done to them while it runs.
//
// A [Topology] is data: nodes and links. A [Backend] turns it into a
// [Deployment], in which every link between two nodes passes a proxy of its
// own, so that each can be cut, held or slowed alone, in each direction. The
// backends are packages below this one.
package topologies
