//go:build linux

package process_test

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
)

// A client gets its connection also when the first SYNs are lost, which the system sends again after a
// second: its options bound its dials, and nothing else does.
func TestADialMayTakeAsLongAsItsClientSays(t *testing.T) {
	t.Parallel()
	const stuck = 1200 * time.Millisecond
	dial := start(t, topologies.Single).ClientOptions("zone-a").Dialer
	for range 5 { // where the machine is so busy that a dial begins late, no SYN of it is lost
		l := full(t)
		accepted := make(chan struct{})
		time.AfterFunc(stuck, func() {
			defer close(accepted)
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_ = c.Close()
			}
		})
		began := time.Now()
		c, err := dial(within(t), "tcp", l.Addr().String())
		took := time.Since(began)
		require.NoError(t, err, "after %v", took)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
		<-accepted
		if took >= stuck {
			return
		}
	}
	t.Error("no dial lost a SYN")
}

// full listens with a queue that is full: the system drops what else arrives.
func full(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	raw, err := l.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }))
	require.NoError(t, err)
	for range 16 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		c, err := new(net.Dialer).DialContext(ctx, "tcp4", l.Addr().String())
		cancel()
		if err != nil {
			return l
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("a listener whose queue is to be full takes every connection")
	return nil
}
