package topologiestest

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
)

// stuck is longer than the second after which the system sends a lost SYN again.
const stuck = 1200 * time.Millisecond

// dials checks that a dial may take as long as the options of its client say: it gets its
// connection also when the first SYNs are lost.
func (s suite) dials() {
	s.t.Helper()
	if t := s.d.Topology(); t.Name != topologies.Single || t.Options.ByName() {
		s.t.Skip("looked at with topology single")
	}
	zone := s.d.Topology().Of(topologies.Zone)[0]
	dialer := s.d.ClientOptions(zone).Dialer
	if dialer == nil {
		s.t.Skip("clients dial by themselves")
	}
	l := s.full()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		time.Sleep(stuck) // the time for which SYNs are lost: it is what is tested
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener was closed
			}
			_ = c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	began := time.Now()
	c, err := dialer(ctx, "tcp", l.Addr().String())
	took := time.Since(began)
	if err != nil {
		s.t.Errorf("a dial that may take %v failed after %v: %v", limit, took, err)
	} else {
		_ = c.Close()
		if took < stuck {
			s.t.Errorf("no SYN was lost: a dial took %v", took)
		}
	}
	_ = l.Close()
	<-accepted
}

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
