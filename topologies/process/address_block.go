package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// The ports of a deployment. They are the same in every block, because each
// block has addresses of its own.
const (
	lockPort     = 22000
	serverPort   = 22001
	sentinelPort = 22501
	amongPort    = 23001 // of servers for each other
	electionPort = 23501
)

// The blocks, each the second octet of its addresses 127.S.x.y.
const (
	firstBlock = 10
	lastBlock  = 250
)

// An addressBlock is a range of loopback addresses that no other harness uses. Holding its
// listener holds the block, and the kernel frees it with us.
type addressBlock struct {
	number byte
	lock   net.Listener
}

// errNoBlock says that all blocks are taken.
var errNoBlock = errors.New("no free range of loopback addresses")

// held keeps the listeners of the blocks in use. The garbage collector closes a listener
// that nothing refers to, as that of a deployment whose caller forgot to close it; the
// network of that deployment goes on to listen, and the next one would fail on its addresses.
var held sync.Map //nolint:gochecknoglobals // what refers to a block may be gone

// takeBlock takes a free block from first to last, and starts to look at one that depends on the
// process, so that parallel harnesses seldom ask for the same.
func takeBlock(first, last int) (*addressBlock, error) {
	blocks := last - first + 1
	for i := range blocks {
		number := byte(first + (os.Getpid()+i)%blocks)
		var config net.ListenConfig
		l, err := config.Listen(context.Background(), "tcp", addr(number, 0, 1, lockPort).String())
		switch {
		case err == nil:
			held.Store(number, l)
			return &addressBlock{number: number, lock: l}, nil
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return nil, fmt.Errorf("%w: this system has no 127.0.0.0/8 (the process backend needs Linux): %w", errNoBlock, err)
		}
	}
	return nil, fmt.Errorf("%w: port %d is taken on every address from 127.%d.0.1 to 127.%d.0.1 (do that many runs go on?)",
		errNoBlock, lockPort, first, last)
}

func addr(block, plane, host byte, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, block, plane, host}), port)
}

// The planes, third octet of an address.
const (
	realPlane    = 1 // where servers listen
	virtualPlane = 2 // what they announce, and where the network listens
	zonePlane    = 3 // where clients dial from
)

func (b *addressBlock) real(host byte, port uint16) netip.AddrPort {
	return addr(b.number, realPlane, host, port)
}

func (b *addressBlock) virtual(host byte, port uint16) netip.AddrPort {
	return addr(b.number, virtualPlane, host, port)
}

// name is the address that moves, which belongs to no server.
func (b *addressBlock) name() netip.AddrPort { return b.virtual(200, serverPort) }

func (b *addressBlock) zone(host byte) netip.Addr { return addr(b.number, zonePlane, host, 0).Addr() }

// addresses gives every server of a topology its own.
func (b *addressBlock) addresses(t topologies.Topology) map[string]bootstrap.Address {
	at := map[string]bootstrap.Address{}
	for i, name := range t.Servers() {
		host := byte(i + 1)
		a := bootstrap.Address{Listen: b.real(host, serverPort), Announced: b.virtual(host, serverPort)}
		if t.HasSlots() || t.Consensus() {
			a.Bus, a.AnnouncedBus = amongPort, amongPort
		}
		if t.Store() == topologies.StoreZooKeeper {
			a.Election = electionPort
		}
		at[name] = a
	}
	for i, name := range t.Of(topologies.Sentinel) {
		host := byte(100 + i + 1)
		at[name] = bootstrap.Address{Listen: b.real(host, sentinelPort), Announced: b.virtual(host, sentinelPort)}
	}
	return at
}

func (b *addressBlock) release() error {
	held.Delete(b.number)
	return b.lock.Close()
}
