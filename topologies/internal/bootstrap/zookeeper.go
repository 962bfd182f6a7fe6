package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

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

// Close does nothing: no connection outlasts a question.
func (ZooKeeper) Close() {}

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
func (z ZooKeeper) Configure(t topologies.Topology, name string, at map[string]Address) (Config, error) {
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
		a, ok := at[member]
		if !ok {
			return Config{}, fmt.Errorf("server %s has no address", member)
		}
		if member == name {
			id = i + 1
		}
		fmt.Fprintf(&conf, "server.%d=%s:%d:%d\n", i+1, a.Announced.Addr(), a.AnnouncedBus, a.Election)
	}
	return Config{
		Args:  []string{"./" + zkConf},
		Files: map[string]string{zkConf: conf.String(), "data/myid": strconv.Itoa(id) + "\n"},
	}, nil
}

// Alive asks whether it is in good health, which it says whether it has found a leader or
// not.
func (z ZooKeeper) Alive(ctx context.Context, at Address) error {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	_, err := z.ask(ctx, at, "ruok")
	return err
}

// Greeting asks the same. The ports of members have no request that does no harm, so that
// the clients' port replies on their links as well. It ends the connection after that.
func (ZooKeeper) Greeting(topologies.LinkKind) probe.Greet {
	return probe.Greet{Request: []byte("ruok"), OfClients: true, Ends: true}
}

// Patience is for a follower that is sooner at its new leader than that one listens: it
// takes a connection that is opened and reset for a reason to elect again, while the
// leader waits for it.
func (ZooKeeper) Patience() time.Duration { return zkTick }

// State asks for the member's mode. A follower does not say whom it follows.
func (z ZooKeeper) State(ctx context.Context, at Address) (MemberState, error) {
	s := MemberState{ID: at.Announced.String()}
	reply, err := z.ask(ctx, at, "srvr")
	if err != nil {
		return s, err
	}
	if strings.Contains(reply, "not currently serving") {
		return s, nil // it looks for a leader
	}
	mode := regexp.MustCompile(`(?m)^Mode: (\w+)`).FindStringSubmatch(reply)
	if mode == nil {
		return s, fmt.Errorf("no mode in %q", reply)
	}
	switch mode[1] {
	case topologies.Follower:
		s.Leader = Unnamed
	case topologies.Leader:
		zxid := regexp.MustCompile(`(?m)^Zxid: 0x([0-9a-f]+)`).FindStringSubmatch(reply)
		if zxid == nil {
			return s, fmt.Errorf("no zxid in %q", reply)
		}
		last, err := strconv.ParseUint(zxid[1], 16, 64)
		if err != nil {
			return s, err
		}
		s.Leader, s.Term = s.ID, last>>32
	default:
		return s, fmt.Errorf("its mode is %q", mode[1])
	}
	return s, nil
}

// ask sends a word of four letters, past every link.
func (ZooKeeper) ask(ctx context.Context, at Address, word string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.Listen.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := limit(ctx, c); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(io.LimitReader(c, maxReply))
	switch {
	case err != nil:
		return "", err
	case len(reply) == 0:
		return "", fmt.Errorf("it answers nothing: %w", io.EOF)
	}
	return string(reply), nil
}

func limit(ctx context.Context, c net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		return c.SetDeadline(deadline)
	}
	return nil
}

// Serves opens a session as a client does, makes a node that ends with the session, and
// ends it.
func (ZooKeeper) Serves(ctx context.Context, dial Dialer, announced string) error {
	c, err := dial(ctx, "tcp", announced)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := zkOpen(ctx, c, zkSession{timeout: ClientTimeout}); err != nil {
		return err
	}
	if err = zkMake(c, "/"+proofKey+"-", "", zkEphemeral|zkSequential); err == nil {
		_, err = zkAsk(c, zkClose)
	}
	return err
}

// Empty deletes all nodes but those of ZooKeeper itself.
func (ZooKeeper) Empty(ctx context.Context, at Address) error {
	return zkWith(ctx, at, func(c net.Conn, _ zkSession) error {
		return zkClear(c, "", func(path string) bool { return path != "/zookeeper" }, 0)
	})
}

// zkWith opens a session with a member for a moment, past every link. The member has
// heard of all that was written before.
func zkWith(ctx context.Context, at Address, do func(c net.Conn, s zkSession) error) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.Listen.String())
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := zkOpen(ctx, c, zkSession{timeout: ClientTimeout})
	if err != nil {
		return err
	}
	if _, err = zkAsk(c, zkSyncUp, "/"); err != nil {
		err = fmt.Errorf("wait for the last writes: %w", err)
	} else {
		err = do(c, s)
	}
	if _, closed := zkAsk(c, zkClose); err == nil {
		err = closed
	}
	return err
}

// zkClear deletes what is under a node, the root if it is empty, of what is picked and was
// made after a transaction. A node stays that has others in it which stay.
func zkClear(c net.Conn, node string, pick func(path string) bool, since int64) error {
	list, err := zkAsk(c, zkChildren, cmp.Or(node, "/"), unwatched)
	if err != nil {
		return fmt.Errorf("look under %q: %w", node, err)
	}
	for list = list[min(len(list), 4):]; len(list) > 0; { // their number, and each
		var child string
		child, list = zkString(list)
		path := node + "/" + child
		if !pick(path) {
			continue
		}
		made, err := zkMade(c, path)
		if err == nil {
			err = zkClear(c, path, pick, since)
		}
		if err == nil && made > since {
			_, err = zkAsk(c, zkDelete, path, anyVersion)
		}
		if err != nil && !errors.Is(err, errNoNode) && !errors.Is(err, errNotEmpty) {
			return fmt.Errorf("delete %s: %w", path, err)
		}
	}
	return nil
}

// zkMade is the transaction that made a node.
func zkMade(c net.Conn, path string) (int64, error) {
	reply, err := zkAsk(c, zkExists, path, unwatched)
	if err != nil {
		return 0, err
	}
	if len(reply) < 8 {
		return 0, io.ErrUnexpectedEOF
	}
	return int64(binary.BigEndian.Uint64(reply)), nil //nolint:gosec // it is one
}

// zkGet is what is in a node.
func zkGet(c net.Conn, path string) (string, error) {
	reply, err := zkAsk(c, zkData, path, unwatched)
	data, _ := zkString(reply)
	return data, err
}

// zkMake makes a node that every client may do everything with.
func zkMake(c net.Conn, path, data string, flags int32) error {
	const oneEntry, all = int32(1), int32(31)
	_, err := zkAsk(c, zkCreate, path, data, oneEntry, all, "world", "anyone", flags)
	return err
}

// A zkSession is one with its secret, by which any connection goes on with it.
type zkSession struct {
	timeout  time.Duration
	id       int64 // 0 for a new one
	password [16]byte
}

// zkOpen opens a session on a connection, or goes on with one. Its timeout is 0 if it has
// ended.
func zkOpen(ctx context.Context, c net.Conn, s zkSession) (zkSession, error) {
	if err := limit(ctx, c); err != nil {
		return s, err
	}
	const anyProtocol, nothingSeen, notReadOnly = int32(0), int64(0), false
	reply, err := zkCall(c, anyProtocol, nothingSeen, int32(s.timeout.Milliseconds()), s.id, string(s.password[:]), notReadOnly) //nolint:gosec // it is short
	if err != nil {
		return s, fmt.Errorf("open a session: %w", err)
	}
	const version, timeout, id, length = 4, 4, 8, 4
	if len(reply) < version+timeout+id+length+len(s.password) {
		return s, errors.New("open a session: it does not answer as ZooKeeper does")
	}
	s.timeout = time.Duration(binary.BigEndian.Uint32(reply[version:])) * time.Millisecond
	s.id = int64(binary.BigEndian.Uint64(reply[version+timeout:])) //nolint:gosec // it is one
	copy(s.password[:], reply[version+timeout+id+length:])
	return s, nil
}

// Meet asks for the member's mode, and reads the list of members in a session, whose number
// begins with that of the member.
func (z ZooKeeper) Meet(ctx context.Context, at Address) (Introduction, error) {
	var i Introduction
	reply, err := z.ask(ctx, at, "srvr")
	if err != nil {
		return i, err
	}
	version := regexp.MustCompile(`(?m)^Zookeeper version: (\d+\.\d+\.\d+)`).FindStringSubmatch(reply)
	mode := regexp.MustCompile(`(?m)^Mode: (\S+)`).FindStringSubmatch(reply)
	switch {
	case strings.Contains(reply, "not in the whitelist"):
		return i, errors.New("it does not answer srvr, which its 4lw.commands.whitelist must allow")
	case strings.Contains(reply, "not currently serving"):
		i.Leaderless = "it serves no requests now"
		return i, nil
	case version == nil || mode == nil:
		return i, errors.New("it is no ZooKeeper member")
	case mode[1] != topologies.Leader && mode[1] != topologies.Follower:
		return i, fmt.Errorf("its mode is %s, where the topology has a leader and followers", mode[1])
	}
	i.Version = version[1]
	if err := NewEnough(topologies.StoreZooKeeper, at.Listen.String(), i.Version); err != nil {
		return i, err
	}
	err = zkWith(ctx, at, func(c net.Conn, s zkSession) error {
		i.Member = strconv.FormatUint(uint64(s.id)>>56, 10) //nolint:gosec // it is bits
		list, err := zkGet(c, "/zookeeper/config")
		for line := range strings.Lines(list) {
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
	session zkSession
	conn    net.Conn // in use; nil for none
	made    int64
}

// Claim makes a node that ends with a session of its own, unless there is one.
func (z ZooKeeper) Claim(ctx context.Context, at Address, owner string, lease time.Duration) (_ Claim, who string, err error) {
	claim := &zkClaim{session: zkSession{timeout: lease}}
	err = claim.with(ctx, at, func(c net.Conn) error {
		err := zkMake(c, "/"+ClaimKey, owner, zkEphemeral)
		if errors.Is(err, errNodeExists) {
			who, err = zkGet(c, "/"+ClaimKey)
			return err
		}
		if err == nil {
			claim.made, err = zkMade(c, "/"+ClaimKey)
		}
		return err
	})
	if err != nil || who != "" {
		_ = claim.Release(ctx, at) // else it ends by itself
	}
	return claim, who, err
}

// with asks in the session, over the connection in use, or else over another.
func (z *zkClaim) with(ctx context.Context, at Address, do func(c net.Conn) error) error {
	if z.conn != nil {
		err := limit(ctx, z.conn)
		if err == nil {
			err = do(z.conn)
		}
		var code zkError
		if err == nil || errors.As(err, &code) {
			return err
		}
		z.close()
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.Listen.String())
	if err != nil {
		return err
	}
	z.conn = c
	s, err := zkOpen(ctx, c, z.session)
	if err == nil && s.timeout == 0 {
		err = ErrClaimLost
	}
	if err != nil {
		z.close()
		return err
	}
	z.session.id, z.session.password = s.id, s.password
	return do(c)
}

func (z *zkClaim) close() {
	if z.conn != nil {
		_ = z.conn.Close()
		z.conn = nil
	}
}

// Owner reads the node.
func (*zkClaim) Owner(ctx context.Context, at Address) (who string, err error) {
	err = zkWith(ctx, at, func(c net.Conn, _ zkSession) error {
		var err error
		if who, err = zkGet(c, "/"+ClaimKey); errors.Is(err, errNoNode) {
			return nil
		}
		return err
	})
	return who, err
}

// Renew has the session begin again.
func (z *zkClaim) Renew(ctx context.Context, at Address) error {
	return z.with(ctx, at, func(c net.Conn) error {
		_, err := zkAsk(c, zkPing)
		return err
	})
}

// Sweep deletes the nodes that are newer than the claim.
func (z *zkClaim) Sweep(ctx context.Context, at Address) error {
	ours := func(path string) bool {
		return path == LocksPrefix || strings.HasPrefix(path, LocksPrefix+"/") || strings.HasPrefix(path, "/"+proofKey)
	}
	return zkWith(ctx, at, func(c net.Conn, _ zkSession) error { return zkClear(c, "", ours, z.made) })
}

// Release ends the session, and the node with it.
func (z *zkClaim) Release(ctx context.Context, at Address) error {
	defer z.close()
	if z.session.id == 0 {
		return nil // it was never opened
	}
	err := z.with(ctx, at, func(c net.Conn) error {
		_, err := zkAsk(c, zkClose)
		return err
	})
	if errors.Is(err, ErrClaimLost) {
		return nil
	}
	return err
}

// A zkError is the code of a reply to a request that was not carried out.
type zkError int32

// The codes that matter here.
const (
	errNoNode       zkError = -101
	errNoAuth       zkError = -102
	errNodeExists   zkError = -110
	errNotEmpty     zkError = -111
	errAuthFailed   zkError = -115
	errWantsSASL    zkError = -124
	errQuotaReached zkError = -125
)

func (e zkError) Error() string {
	switch e {
	case errNoAuth:
		return "it does not permit every client what is needed, and lockchaos has no user for ZooKeeper"
	case errAuthFailed, errWantsSASL:
		return "it wants a user and a password, which lockchaos has none of for ZooKeeper"
	case errQuotaReached:
		return "its quota does not allow another node"
	case errNoNode, errNodeExists, errNotEmpty:
	}
	return fmt.Sprintf("it answers error %d", int32(e))
}

// What is asked in a session, as zookeeper.jute has it, and flags of a node that is made.
const (
	zkCreate   int32 = 1
	zkDelete   int32 = 2
	zkExists   int32 = 3
	zkData     int32 = 4
	zkChildren int32 = 8
	zkSyncUp   int32 = 9
	zkPing     int32 = 11
	zkClose    int32 = -11

	unwatched               = false
	anyVersion        int32 = -1
	zkEphemeral       int32 = 1
	zkSequential      int32 = 2
	xidOfAll, xidPing int32 = 1, -2
)

// zkAsk sends a request of a session, and returns what follows the header of the reply.
func zkAsk(c net.Conn, what int32, fields ...any) ([]byte, error) {
	xid := xidOfAll
	if what == zkPing {
		xid = xidPing
	}
	reply, err := zkCall(c, append([]any{xid, what}, fields...)...)
	if err != nil {
		return nil, err
	}
	const header = 4 + 8 + 4 // xid, zxid, error
	if len(reply) < header {
		return nil, fmt.Errorf("a reply of %d bytes", len(reply))
	}
	if code := int32(binary.BigEndian.Uint32(reply[12:])); code != 0 { //nolint:gosec // it is one
		return nil, zkError(code)
	}
	return reply[header:], nil
}

// zkCall sends a request of numbers, truths and texts, and reads the reply, each with its length before it.
func zkCall(c net.Conn, fields ...any) ([]byte, error) {
	var request bytes.Buffer
	for _, f := range fields {
		if text, ok := f.(string); ok {
			_ = binary.Write(&request, binary.BigEndian, int32(len(text))) //nolint:gosec // it is short
			f = []byte(text)
		}
		if err := binary.Write(&request, binary.BigEndian, f); err != nil {
			return nil, err
		}
	}
	length := binary.BigEndian.AppendUint32(nil, uint32(request.Len())) //nolint:gosec // it is short
	if _, err := c.Write(append(length, request.Bytes()...)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(c, length); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length)
	if n > maxReply {
		return nil, fmt.Errorf("a reply of %d bytes", n)
	}
	reply := make([]byte, n)
	_, err := io.ReadFull(c, reply)
	return reply, err
}

// zkString reads a text of a reply, and returns what follows it; none if there is no more.
func zkString(b []byte) (s string, rest []byte) {
	if len(b) < 4 {
		return "", nil
	}
	n := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // -1 for no data
	if b = b[4:]; n < 0 || n > int64(len(b)) {
		return "", nil
	}
	return string(b[:n]), b[n:]
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
