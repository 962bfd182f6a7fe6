package proxynet

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// connected is a connection of this process and its two ends, the dialler's first.
// A socket of family six dials an IPv4 address by its mapped form, as a JVM does.
func connected(tb testing.TB, six bool, host string) (fd int, from, to netip.AddrPort) {
	tb.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(tb, err)
	tb.Cleanup(func() { l.Close() })
	to = l.Addr().(*net.TCPAddr).AddrPort()
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(to.Port()), Addr: as4(to)})
	if six {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(tb, unix.Connect(fd, at))
	c, err := l.Accept()
	require.NoError(tb, err)
	tb.Cleanup(func() { c.Close() })
	return fd, c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
}

func as4(at netip.AddrPort) (four [4]byte) {
	if a := at.Addr().Unmap(); a.Is4() {
		four = a.As4()
	}
	return four
}

// inode is the one that the process itself sees.
func inode(t *testing.T, fd int) string {
	t.Helper()
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	require.NoError(t, err)
	return link[len("socket:[") : len(link)-1]
}

// The kernel names the dialler's socket, not the one that was accepted,
// whatever family it is of; a connection that there isn't has none.
func TestSocketInode(t *testing.T) {
	for name, c := range map[string]struct {
		six  bool
		host string
	}{
		"four": {false, "127.0.0.1"}, "mapped": {true, "127.0.0.1"}, "six": {true, "::1"},
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := net.Listen("tcp", net.JoinHostPort(c.host, "0")); err != nil {
				t.Skipf("this machine does not have %s: %v", c.host, err)
			} else {
				l.Close()
			}
			fd, from, to := connected(t, c.six, c.host)
			want := inode(t, fd)
			got, err := socketInode(from, to)
			require.NoError(t, err)
			require.Equal(t, want, got)
			_, err = socketInode(netip.AddrPortFrom(from.Addr(), 1), to)
			require.Error(t, err, "there is no such connection")
		})
	}
}
