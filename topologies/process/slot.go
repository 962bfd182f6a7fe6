package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// The ports of a deployment. They are the same in every slot, because each
// slot has addresses of its own.
const (
	lockPort     = 22000
	redisPort    = 22001
	busPort      = 23001
	sentinelPort = 22501
	etcdPort     = 22379
	etcdPeerPort = 22380

	zooKeeperPort         = 22181
	zooKeeperPeerPort     = 22888
	zooKeeperElectionPort = 23888
)

// The slots, each the second octet of its addresses 127.S.x.y.
const (
	firstSlot = 10
	lastSlot  = 250
)

// A slot is a range of loopback addresses that no other harness uses. Holding its
// listener holds the slot, and the kernel frees it with us.
type slot struct {
	number byte
	lock   net.Listener
}

// errNoSlot says that all slots are taken.
var errNoSlot = errors.New("no free range of loopback addresses")

// takeSlot takes a free slot, and starts to look at one that depends on the
// process, so that parallel harnesses seldom ask for the same.
func takeSlot() (*slot, error) { return takeSlotFrom(firstSlot, lastSlot) }

// takeSlotFrom takes one from first to last.
func takeSlotFrom(first, last int) (*slot, error) {
	slots := last - first + 1
	for i := range slots {
		number := byte(first + (os.Getpid()+i)%slots)
		var config net.ListenConfig
		l, err := config.Listen(context.Background(), "tcp", addr(number, 0, 1, lockPort).String())
		switch {
		case err == nil:
			return &slot{number: number, lock: l}, nil
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return nil, fmt.Errorf("%w: this system has no 127.0.0.0/8 (the process backend needs Linux): %w", errNoSlot, err)
		}
	}
	return nil, fmt.Errorf("%w: port %d is taken on every address from 127.%d.0.1 to 127.%d.0.1 (do that many runs go on?)",
		errNoSlot, lockPort, first, last)
}

func addr(slot, plane, host byte, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, slot, plane, host}), port)
}

// The planes, third octet of an address.
const (
	realPlane    = 1 // where servers listen
	virtualPlane = 2 // what they announce, and where the network listens
	zonePlane    = 3 // where clients dial from
)

func (s *slot) real(host byte, port uint16) netip.AddrPort {
	return addr(s.number, realPlane, host, port)
}

func (s *slot) virtual(host byte, port uint16) netip.AddrPort {
	return addr(s.number, virtualPlane, host, port)
}

// name is the address that moves, which belongs to no server.
func (s *slot) name() netip.AddrPort { return s.virtual(200, redisPort) }

func (s *slot) zone(host byte) netip.Addr { return addr(s.number, zonePlane, host, 0).Addr() }

// addresses gives every server of a topology its own.
func (s *slot) addresses(t topologies.Topology) map[string]bootstrap.Address {
	at := map[string]bootstrap.Address{}
	for i, name := range t.Of(topologies.Redis) {
		host := byte(i + 1)
		a := bootstrap.Address{Listen: s.real(host, redisPort), Announced: s.virtual(host, redisPort)}
		if t.Name == topologies.Cluster {
			a.Bus, a.AnnouncedBus = busPort, busPort
		}
		at[name] = a
	}
	for i, name := range t.Of(topologies.Sentinel) {
		host := byte(100 + i + 1)
		at[name] = bootstrap.Address{Listen: s.real(host, sentinelPort), Announced: s.virtual(host, sentinelPort)}
	}
	for i, name := range t.Of(topologies.Etcd) {
		host := byte(i + 1)
		at[name] = bootstrap.Address{
			Listen: s.real(host, etcdPort), Announced: s.virtual(host, etcdPort), Bus: etcdPeerPort, AnnouncedBus: etcdPeerPort,
		}
	}
	for i, name := range t.Of(topologies.ZooKeeper) {
		host := byte(i + 1)
		at[name] = bootstrap.Address{
			Listen: s.real(host, zooKeeperPort), Announced: s.virtual(host, zooKeeperPort),
			Bus: zooKeeperPeerPort, AnnouncedBus: zooKeeperPeerPort, Election: zooKeeperElectionPort,
		}
	}
	return at
}

func (s *slot) release() error { return s.lock.Close() }
