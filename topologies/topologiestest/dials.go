package topologiestest

import (
	"context"
	"net"
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
	// Where the machine is so busy that a dial begins late, no SYN of it is lost.
	for range 5 {
		if took := s.dialFull(dialer); s.t.Failed() || took >= stuck {
			return
		}
	}
	s.t.Error("no dial lost a SYN")
}

// dialFull dials a listener that takes no connection for a while.
func (s suite) dialFull(dialer func(ctx context.Context, network, address string) (net.Conn, error)) (took time.Duration) {
	s.t.Helper()
	l := s.full()
	began := time.Now()
	accepted := make(chan struct{})
	time.AfterFunc(stuck, func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener was closed
			}
			_ = c.Close()
		}
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	c, err := dialer(ctx, "tcp", l.Addr().String())
	took = time.Since(began)
	if err != nil {
		s.t.Errorf("a dial that may take %v failed after %v: %v", limit, took, err)
	} else {
		_ = c.Close()
	}
	_ = l.Close()
	<-accepted
	return took
}
