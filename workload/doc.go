// Package workload has the clients that use a lock and record what happened:
// clients in zones that contend for locks, hold them for a while, and change a
// protected resource by a read and a write that nothing but the lock protects.
//
// What they do with the locks is one of [Kinds], or several in turn: hold and
// release, enter again, read and write, take permits or several locks, wait in
// line, give up, crash.
package workload
