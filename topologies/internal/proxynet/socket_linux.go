package proxynet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// askedSocket is the request of sock_diag(7) for one socket: inet_diag_req_v2 of
// linux/inet_diag.h, ports and addresses in network order.
type askedSocket struct {
	family, protocol, _, _ uint8 // extensions, padding
	states                 uint32
	from, to               [2]byte
	fromAddr, toAddr       [16]byte
	_                      uint32 // device
	cookie                 [2]uint32
}

// Places in the answer: inet_diag_msg after its header.
const (
	typeAt     = 4 // in the header of a message, nlmsghdr
	inodeAt    = 68
	answerSize = 72
)

// socketInode asks the kernel for the socket of this machine that is connected from
// one address to another. It looks that one up, where the tables of /proc list every
// socket of the machine: 12 µs a connection and not 11 ms.
func socketInode(from, to netip.AddrPort) (string, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return "", os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is left to send
	ask := askedSocket{
		family: unix.AF_INET, protocol: unix.IPPROTO_TCP, states: ^uint32(0),
		cookie: [2]uint32{^uint32(0), ^uint32(0)}, // any
	}
	src, dst := from.Addr().Unmap(), to.Addr().Unmap()
	if src.Is4() != dst.Is4() {
		return "", fmt.Errorf("%v and %v are of two families", from, to)
	}
	if src.Is6() {
		ask.family = unix.AF_INET6
	}
	copy(ask.fromAddr[:], src.AsSlice())
	copy(ask.toAddr[:], dst.AsSlice())
	binary.BigEndian.PutUint16(ask.from[:], from.Port())
	binary.BigEndian.PutUint16(ask.to[:], to.Port())

	header := unix.NlMsghdr{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: unix.NLM_F_REQUEST}
	header.Len = uint32(binary.Size(header) + binary.Size(ask))
	var message []byte
	for _, part := range []any{header, ask} {
		if message, err = binary.Append(message, binary.NativeEndian, part); err != nil {
			return "", fmt.Errorf("the question to the kernel: %w", err)
		}
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return "", os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return "", os.NewSyscallError("recvfrom", err)
	}
	if n < unix.SizeofNlMsghdr {
		return "", errors.New("the kernel's answer is cut short")
	}
	kind := binary.NativeEndian.Uint16(answer[typeAt:])
	if kind != unix.SOCK_DIAG_BY_FAMILY || n < unix.SizeofNlMsghdr+answerSize {
		return "", fmt.Errorf("no socket of this machine is connected from %v to %v", from, to)
	}
	inode := binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr+inodeAt:])
	if inode == 0 { // closed already
		return "", fmt.Errorf("no process has the socket from %v to %v any more", from, to)
	}
	return strconv.FormatUint(uint64(inode), 10), nil
}

// groupOf is the process group of a process; 0 for one that has ended.
func groupOf(pid int) int {
	group, err := unix.Getpgid(pid)
	if err != nil {
		return 0
	}
	return group
}
