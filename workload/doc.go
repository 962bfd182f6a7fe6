// Package workload is the processes that use a lock and record what happened:
// clients in zones that contend for locks, hold them for a while, and change a
// protected resource by a read and a write that nothing but the lock protects.
package workload
