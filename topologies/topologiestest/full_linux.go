package topologiestest

import (
	"net"
	"syscall"
	"time"
)

// full listens with a queue that is full: the system drops what else arrives.
func (s suite) full() net.Listener {
	s.t.Helper()
	l, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); controlErr != nil || err != nil {
		s.t.Fatal(controlErr, err)
	}
	dialer := net.Dialer{Timeout: 200 * time.Millisecond}
	for range 16 {
		c, err := dialer.DialContext(s.t.Context(), "tcp4", l.Addr().String())
		if err != nil {
			return l
		}
		s.t.Cleanup(func() { _ = c.Close() })
	}
	s.t.Fatal("a listener whose queue is to be full takes every connection")
	return nil
}
