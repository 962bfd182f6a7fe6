package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// ZooKeeper is ZooKeeper from 3.8 on. It is asked by its words of four letters, at its
// clients' port.
type ZooKeeper struct {
	// Everywhere has members listen for each other at every address of their machine. That is
	// for a machine that does not have the address that a member announces, and where nothing
	// else can reach it.
	Everywhere bool
}

var _ Consensus = ZooKeeper{}

// HandOver fails: ZooKeeper has no such request.
func (ZooKeeper) HandOver(context.Context, Address, string) error { return errors.ErrUnsupported }

// A tick is ZooKeeper's unit of time. A member that was silent for so many ticks is given
// up, and the leader with it; a session is two ticks at the least.
const (
	zkTick  = 200 * time.Millisecond
	zkSync  = 5
	zkInit  = 20
	zkConf  = "zoo.cfg"
	zkWords = "ruok,srvr"
)

// Configure starts a member. All members have the same list of them, with the addresses
// that they announce: a member passes its own entry on to others, who dial it.
func (z ZooKeeper) Configure(t topologies.Topology, name string, at map[string]Address) Config {
	var conf strings.Builder
	fmt.Fprintf(&conf, `tickTime=%d
initLimit=%d
syncLimit=%d
dataDir=./data
clientPort=%d
clientPortAddress=%s
maxSessionTimeout=60000
maxClientCnxns=0
standaloneEnabled=false
reconfigEnabled=false
admin.enableServer=false
4lw.commands.whitelist=%s
quorumListenOnAllIPs=%t
`, zkTick.Milliseconds(), zkInit, zkSync, at[name].Listen.Port(), at[name].Listen.Addr(), zkWords, z.Everywhere)
	id := 0
	for i, member := range t.Servers() {
		a := at[member]
		if member == name {
			id = i + 1
		}
		fmt.Fprintf(&conf, "server.%d=%s:%d:%d\n", i+1, a.Announced.Addr(), a.AnnouncedBus, a.Election)
	}
	return Config{
		Args:  []string{"./" + zkConf},
		Files: map[string]string{zkConf: conf.String(), "data/myid": strconv.Itoa(id) + "\n"},
	}
}

// Alive asks whether it is in good health, which it says whether it has found a leader or
// not.
func (ZooKeeper) Alive(ctx context.Context, at Address) error {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	_, err := exchange(ctx, at.Listen.String(), "ruok")
	return err
}

// Greeting asks the same. The ports of members have no request that does no harm, so that
// the clients' port replies on their links as well. It ends the connection after that.
// Patience is for a follower that is sooner at its new leader than that one listens: it
// takes a connection that is opened and reset for a reason to elect again, while the
// leader waits for it.
func (ZooKeeper) Greeting(kind topologies.LinkKind) probe.Greet {
	g := probe.Greet{Request: []byte("ruok"), OfClients: true, Ends: true}
	if kind == topologies.Peer {
		g.Patience = zkTick
	}
	return g
}

// State asks for the member's mode. A follower does not say whom it follows.
func (ZooKeeper) State(ctx context.Context, at Address) (MemberState, error) {
	s := MemberState{ID: at.Announced.String()}
	reply, err := exchange(ctx, at.Listen.String(), "srvr")
	switch said := Info(reply); {
	case err != nil, strings.Contains(reply, zkServesNot): // it looks for a leader
	case said["Mode"] == topologies.Follower:
		s.Leader = Unnamed
	case said["Mode"] == topologies.Leader:
		var last uint64
		last, err = strconv.ParseUint(said["Zxid"], 0, 64)
		s.Leader, s.Term = s.ID, last>>32
	default:
		err = fmt.Errorf("no mode of a member in %q", reply)
	}
	return s, err
}

// zkServesNot is said by a member that has no leader.
const zkServesNot = "not currently serving"

// Serves makes a node that ends with its session.
func (ZooKeeper) Serves(ctx context.Context, dial Dialer, announced string) error {
	here := func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, announced) }
	return zkWith(ctx, here, announced, func(c *zk.Conn) error {
		_, err := c.Create("/"+proofKey+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		return err
	})
}

// Empty deletes all nodes but those of ZooKeeper itself.
func (ZooKeeper) Empty(ctx context.Context, at Address) error {
	return zkDirect(ctx, at, func(c *zk.Conn) error {
		return zkClear(c, "", func(path string) bool { return path != "/zookeeper" }, 0)
	})
}

// zkOpen begins a session with one of the members, which it keeps alive until it is closed. When the
// context ends, its connections do, and all that is asked fails. The callback is told when its state changes.
func zkOpen(ctx context.Context, dial Dialer, timeout time.Duration, changed zk.EventCallback, members ...string) (*zk.Conn, error) {
	c, _, err := zk.Connect(members, timeout, zk.WithLogger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)), zk.WithLogInfo(false), zk.WithEventCallback(changed),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			dialling, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			c, err := dial(dialling, network, address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = c.Close() })
			}
			return c, err
		}))
	return c, err
}

// zkWith has a session with a member for a moment.
func zkWith(ctx context.Context, dial Dialer, at string, do func(c *zk.Conn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var refused atomic.Pointer[error] // the latest
	c, err := zkOpen(ctx, func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		refused.Store(&err)
		return c, err
	}, ClientTimeout, func(zk.Event) {}, at)
	if err != nil {
		return err
	}
	err = do(c)
	if why := refused.Load(); why != nil && errors.Is(err, zk.ErrNoServer) {
		err = errors.Join(context.Cause(ctx), *why, err)
	}
	c.Close()
	return zkRefused(err)
}

// zkDirect is zkWith past every link, once the member has heard of all that was written before.
func zkDirect(ctx context.Context, at Address, do func(c *zk.Conn) error) error {
	return zkWith(ctx, direct, at.Listen.String(), func(c *zk.Conn) error {
		if _, err := c.Sync("/"); err != nil {
			return fmt.Errorf("wait for the last writes: %w", err)
		}
		return do(c)
	})
}

// zkRefused says what the refusal of a server that is not ours means.
func zkRefused(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return errors.New("it does not permit every client what is needed, and lockchaos has no user for ZooKeeper")
	case errors.Is(err, zk.ErrAuthFailed), err != nil && strings.Contains(err.Error(), zkWantsSASL):
		return errors.New("it wants a user and a password, which lockchaos has none of for ZooKeeper")
	default:
		return err
	}
}

// zkWantsSASL is how the client calls the code of a session that ends because it wants SASL.
const zkWantsSASL = "unknown error: -124"

// zkClear deletes what is under a node, the root if it is empty, of what is picked and was
// made after a transaction. A node stays that has others in it which stay.
func zkClear(c *zk.Conn, node string, pick func(path string) bool, since int64) error {
	children, _, err := c.Children(cmp.Or(node, "/"))
	if err != nil {
		return fmt.Errorf("look under %q: %w", node, err)
	}
	for _, child := range children {
		path := node + "/" + child
		if !pick(path) {
			continue
		}
		_, made, err := c.Exists(path)
		if err == nil {
			err = zkClear(c, path, pick, since)
		}
		if err == nil && made.Czxid > since {
			err = c.Delete(path, -1)
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNotEmpty) {
			return fmt.Errorf("delete %s: %w", path, err)
		}
	}
	return nil
}

// Meet asks for the member's mode, and reads the list of members in a session, whose number
// begins with that of the member.
func (ZooKeeper) Meet(ctx context.Context, at Address) (Introduction, error) {
	var i Introduction
	reply, err := exchange(ctx, at.Listen.String(), "srvr")
	if err != nil {
		return i, err
	}
	said := Info(reply)
	i.Version = regexp.MustCompile(`^\d+\.\d+\.\d+`).FindString(said["Zookeeper version"])
	switch mode := said["Mode"]; {
	case strings.Contains(reply, "not in the whitelist"):
		return i, errors.New("it does not answer srvr, which its 4lw.commands.whitelist must allow")
	case strings.Contains(reply, zkServesNot):
		i.Leaderless = "it serves no requests now"
		return i, nil
	case i.Version == "" || mode == "":
		return i, errors.New("it is no ZooKeeper member")
	case mode != topologies.Leader && mode != topologies.Follower:
		return i, fmt.Errorf("its mode is %s, where the topology has a leader and followers", mode)
	}
	if err := NewEnough(topologies.StoreZooKeeper, at.Listen.String(), i.Version); err != nil {
		return i, err
	}
	err = zkDirect(ctx, at, func(c *zk.Conn) error {
		list, _, err := c.Get("/zookeeper/config")
		i.Member = strconv.FormatUint(uint64(c.SessionID())>>56, 10) //nolint:gosec // it is bits
		for line := range strings.Lines(string(list)) {
			if strings.HasPrefix(line, "server.") && !strings.Contains(line, ":observer") {
				i.Members++
			}
		}
		return err
	})
	return i, err
}

// zkClaim is a node that ends with its session.
type zkClaim struct {
	session *zk.Conn
	drop    context.CancelFunc // its connections
	lost    atomic.Bool
	made    int64
}

// Claim makes a node that ends with a session of its own, unless there is one.
func (ZooKeeper) Claim(ctx context.Context, at []Address, owner string, lease time.Duration) (_ Claim, who string, err error) {
	z := &zkClaim{}
	lives, drop := context.WithCancel(context.WithoutCancel(ctx))
	z.drop = drop
	members := names.Of(at, func(a Address) string { return a.Listen.String() })
	z.session, err = zkOpen(lives, direct, lease, func(e zk.Event) {
		if e.State == zk.StateExpired {
			z.lost.Store(true)
		}
	}, members...)
	if err != nil {
		drop()
		return nil, "", err
	}
	err = z.within(ctx, func() error {
		_, err := z.session.Create("/"+ClaimKey, []byte(owner), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
		has, made, err := z.session.Get("/" + ClaimKey)
		if err != nil {
			return err
		}
		if z.made = made.Czxid; string(has) != owner {
			who = string(has)
		}
		return nil
	})
	if err != nil || who != "" {
		_ = z.Release(ctx) // else it ends by itself
	}
	return z, who, zkRefused(err)
}

// within asks in the session, which is dropped when the context ends before that.
func (z *zkClaim) within(ctx context.Context, do func() error) error {
	defer context.AfterFunc(ctx, z.drop)()
	return do()
}

// Owner reads the node.
func (*zkClaim) Owner(ctx context.Context, at Address) (who string, err error) {
	err = zkDirect(ctx, at, func(c *zk.Conn) error {
		owner, _, err := c.Get("/" + ClaimKey)
		if who = string(owner); errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
	return who, err
}

// Renew leaves it to the session, which the client keeps alive, and learns when it has ended.
func (z *zkClaim) Renew(context.Context) error {
	if z.lost.Load() {
		return ErrClaimLost
	}
	return nil
}

// Sweep deletes the nodes that are newer than the claim.
func (z *zkClaim) Sweep(ctx context.Context) error {
	return z.within(ctx, func() error {
		_, err := z.session.Sync("/")
		if err = cmp.Or(z.Renew(ctx), err); err != nil {
			return err
		}
		return zkClear(z.session, "", func(path string) bool {
			return path == LocksPrefix || strings.HasPrefix(path, LocksPrefix+"/") || strings.HasPrefix(path, "/"+proofKey)
		}, z.made)
	})
}

// Release ends the session, and the node with it.
func (z *zkClaim) Release(ctx context.Context) error {
	defer z.drop()
	return z.within(ctx, func() error {
		z.session.Close()
		return nil
	})
}

// ZooKeeperProgram are the arguments of java that start a member from the jar: with little
// memory, and no file outside of its folder. Logs are written where a library for that
// lies beside the jar.
func ZooKeeperProgram(jar string, beside ...string) []string {
	return []string{
		"-Xms16m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
		"-Djava.net.preferIPv4Stack=true", "-Djava.io.tmpdir=.", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.cnxTimeout=500", "-Dzookeeper.fastleader.maxNotificationInterval=1000",
		"-cp", strings.Join(append([]string{jar}, beside...), ":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain",
	}
}

// ZooKeeperVersionClass is the program in the jar that prints its version.
const ZooKeeperVersionClass = "org.apache.zookeeper.version.VersionInfoMain"
