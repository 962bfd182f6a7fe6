// Package container runs a topology in containers of the local Docker engine:
// one node each, on a network of the deployment's own. Every link between them
// passes the in-process network of proxies, which listens on the network's gateway, an
// address of this host: that takes Linux and an engine on the same machine.
//
// Nothing that it starts outlives the harness: a reaper removes what a killed
// one left, and [Clean] whatever a reaper could not.
package container
