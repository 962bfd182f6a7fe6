// Package world is a simulated deployment of Redis servers, and the network between
// them and their clients, for use in a bubble of testing/synctest. It knows nothing of
// locks: clients of go-redis are given [Zone.Dialer], and everything else of theirs is
// unchanged.
//
// All of a world happens on one goroutine, one event after the other, and no two events
// at the same instant: with the same seed and the same faults the same happens again,
// as far as the clients do the same.
//
// Connections are opened, and the first commands on them answered, in no time, and so
// are questions to a Sentinel: go-redis waits for those with a mutex locked, for which
// time does not pass in a bubble. So a dial can't be slow and can't be lost. It is
// refused while the server is down or the link is cut.
package world
