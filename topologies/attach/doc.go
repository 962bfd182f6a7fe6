// Package attach is the backend for a deployment that another program
// runs: it starts nothing, finds out from the servers what there is, and gives
// back what it changed.
//
// What can be done to such a deployment depends on what its user hands over.
// The address of a toxiproxy gives links, the name of a compose project gives
// processes, and nothing destructive happens without [Backend.Yes]. Members of a
// consensus store are reached by proxies of our own, which only our clients use.
package attach
