//go:build !linux

package topologiestest

import "net"

// full skips the test: only of Linux is it known that a queue that is full loses SYNs.
func (s suite) full() net.Listener {
	s.t.Helper()
	s.t.Skip("a listener that loses SYNs is made on Linux only")
	return nil
}
