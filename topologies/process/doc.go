// Package process runs a topology as local redis-server processes on loopback
// addresses. It needs no privileges, and nothing that it starts outlives the
// process that started it, not even after SIGKILL.
package process
