package world

import (
	"crypto/sha1" //nolint:gosec // names of nodes look like one
	"encoding/hex"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// NodeTimeout is the cluster-node-timeout of a cluster.
const NodeTimeout = 200 * time.Millisecond

// Times of Redis 7.0's cluster.c.
const (
	clusterCron     = 100 * time.Millisecond // between two rounds of a node
	writableDelay   = 2 * time.Second        // a master that has started serves nothing for so long
	leastRejoin     = 500 * time.Millisecond // nor does one that was in the minority
	electionDelay   = 500 * time.Millisecond // before a replica asks for votes, and up to as long again
	electionTimeout = 2 * time.Second        // for which votes are counted; twice that until it asks again
	never           = -time.Hour
)

// A cluster is what the servers of a Redis Cluster do beside serving clients. While
// nothing has gone wrong, nodes that exchange what they know learn nothing new, so that
// they do so only from a fault until all of them are of one mind again.
type cluster struct {
	w       *World
	members []*member
	shards  int
	focus   int // the shard whose master TheMaster is
	stirred bool
	until   time.Duration // of the rounds at least
}

// A member is one node, and what it knows of the others, in their order.
type member struct {
	c     *cluster
	node  *Node
	index int
	id    string
	life  int // how often it was started

	owners []claim // by shard
	of     []int   // which node each replicates; itself for a master
	others []other

	serves   bool
	started  time.Duration
	minority time.Duration // when it was last in one

	epoch, voted int64 // the current epoch, and that of its last vote
	votedAt      []time.Duration

	electAt  time.Duration
	asked    bool
	election int64
	votes    int
}

// A claim is that a node is the master of a shard, since an epoch.
type claim struct {
	owner int
	epoch int64
}

// An other is what a member knows of another one.
type other struct {
	heard    time.Duration
	patience time.Duration // after which it is suspected
	suspect  bool
	failed   bool
	failedAt time.Duration
	reports  []time.Duration // when each master said that it suspects this one
}

// A gossip is what members tell each other.
type gossip struct {
	from     int
	epoch    int64
	of       int // whom the sender replicates
	claims   map[int]claim
	suspects []bool
	failed   int // a node that a majority suspects; -1: none
	asks     bool
	votes    int64 // for the election of that epoch
}

// Cluster makes the servers of the world the nodes of a Redis Cluster: the first are
// masters of an equal share of the slots each, and the others their replicas, in the same
// order. [TheMaster] is the master of a shard, counted from 0. It must come after
// AddServer, and before [World.Start].
func (w *World) Cluster(masters, shard int) {
	c := &cluster{w: w, shards: masters}
	for i, n := range w.nodes {
		id := sha1.Sum([]byte(n.name)) //nolint:gosec // it is no secret
		m := &member{c: c, node: n, index: i, id: hex.EncodeToString(id[:]), epoch: int64(masters), votedAt: make([]time.Duration, masters)}
		c.members = append(c.members, m)
		for s := range masters {
			m.owners = append(m.owners, claim{s, int64(s + 1)})
		}
		for j := range w.nodes {
			m.of = append(m.of, j%masters)
		}
		if i >= masters {
			n.Replicates(w.nodes[i%masters])
		}
		n.cluster = m
		n.server.SetCluster(&simredis.Cluster{
			Slot: m.slot, Shards: m.describeAll, Down: func() bool { return !m.serves },
		}, m.publish)
	}
	for _, m := range c.members {
		m.boot(never)
		m.serves = true
	}
	w.cluster = c
	c.focus = shard
	w.master = w.nodes[c.focus].name
}

// ShardOf is the shard that has a slot, of a cluster of so many masters.
func ShardOf(slot, masters int) int { return ((slot+1)*masters - 1) / traffic.Slots }

// boot has a member know what its file of nodes says, and nothing of who is well.
func (m *member) boot(now time.Duration) {
	m.life++
	m.serves, m.started, m.minority, m.electAt, m.asked = false, now, never, never, false
	m.others = nil
	for range m.c.w.nodes {
		m.others = append(m.others, other{heard: now, failedAt: never, reports: slices.Repeat([]time.Duration{never}, len(m.c.w.nodes))})
	}
	for s := range m.votedAt {
		m.votedAt[s] = never
	}
	for j := range m.others {
		m.others[j].patience = m.patience(j)
	}
}

// patience is after what silence another node is suspected: the node timeout runs from a
// ping, which is sent when half of it has passed at the latest.
func (m *member) patience(j int) time.Duration {
	return NodeTimeout + time.Duration(m.c.w.link(m.c.bus(m.index, j)).rng.Int64N(int64(NodeTimeout/2)))
}

// bus is the name of the link by which a node reaches the bus port of another.
func (c *cluster) bus(from, to int) string {
	return c.members[from].node.name + ">" + c.members[to].node.name + busSuffix
}

const busSuffix = "/bus"

// stir has the members exchange what they know from now on.
func (c *cluster) stir() {
	now := c.w.now()
	c.until = now + 2*NodeTimeout
	if c.stirred {
		return
	}
	c.stirred = true
	for i, m := range c.members {
		for j := range m.others { // all was well until now
			m.others[j].heard, m.others[j].patience = now, m.patience(j)
		}
		c.w.after(time.Duration(i+1)*clusterCron/time.Duration(len(c.members)+1), m.round)
	}
}

// calm reports whether nothing would change by exchanging more.
func (c *cluster) calm() bool {
	if c.w.now() < c.until || slices.ContainsFunc(c.w.active, func(a *active) bool { return a.amongNodes() }) {
		return false
	}
	for _, m := range c.members {
		if m.node.down || m.node.isolated || m.node.syncing || !m.serves || !slices.Equal(m.owners, c.members[0].owners) || !slices.Equal(m.of, c.members[0].of) {
			return false
		}
		for j := range m.others {
			if m.others[j].suspect || m.others[j].failed {
				return false
			}
		}
	}
	return true
}

// round is what a member does each tenth of a second.
func (m *member) round() {
	if m.index == 0 && m.c.calm() {
		m.c.stirred = false
	}
	if !m.c.stirred {
		return
	}
	m.c.w.after(clusterCron, m.round)
	if m.node.down || m.c.w.is(Pause, m.node.name) {
		return
	}
	now := m.c.w.now()
	m.tell(m.gossip())
	for j := range m.others {
		o := &m.others[j]
		if j != m.index && !o.suspect && now-o.heard > o.patience {
			o.suspect = true
			m.judge(j)
		}
	}
	m.elect()
	m.assess()
}

// master reports whether a member serves a shard, as this one knows it.
func (m *member) master(j int) bool {
	return slices.ContainsFunc(m.owners, func(c claim) bool { return c.owner == j })
}

// gossip is what the member has to tell: its own shards, and whom it suspects.
func (m *member) gossip() gossip {
	g := gossip{from: m.index, epoch: m.epoch, of: m.of[m.index], claims: map[int]claim{}, failed: -1}
	for s, c := range m.owners {
		if c.owner == m.index {
			g.claims[s] = c
		}
	}
	for j := range m.others {
		g.suspects = append(g.suspects, m.others[j].suspect || m.others[j].failed)
	}
	return g
}

// tell sends something to all others.
func (m *member) tell(g gossip) {
	for j := range m.others {
		if j != m.index {
			m.send(j, func(to *member) { to.hear(g) })
		}
	}
}

// send has another member do something, unless the bus between them is broken.
func (m *member) send(j int, do func(to *member)) {
	to := m.c.members[j]
	life, from := to.life, m.life
	name := m.c.bus(m.index, j)
	p := m.node.buses[name]
	if p == nil {
		p = &pipe{w: m.c.w, link: name, stream: Upstream, from: m.node.name, to: to.node.name}
		if m.node.buses == nil {
			m.node.buses = map[string]*pipe{}
		}
		m.node.buses[name] = p
	}
	broken := func() bool { return m.node.isolated || to.node.isolated || to.node.down || m.c.w.is(Cut, name) }
	if broken() {
		return
	}
	p.send(0, func() {
		if !broken() && to.life == life && m.life == from {
			do(to)
		}
	})
}

// hear takes in what another member tells.
func (m *member) hear(g gossip) {
	now := m.c.w.now()
	o := &m.others[g.from]
	o.heard, o.suspect = now, false
	if o.failed && (!m.master(g.from) || now-o.failedAt > 2*NodeTimeout) {
		o.failed = false
	}
	m.epoch = max(m.epoch, g.epoch)
	m.of[g.from] = g.of
	switch {
	case g.asks:
		m.vote(g)
	case g.votes > 0:
		m.count(g)
	case g.failed >= 0:
		m.fail(g.failed)
	}
	m.learn(g)
	if m.master(g.from) {
		for j, suspected := range g.suspects {
			switch {
			case j == m.index || j == g.from:
			case suspected:
				m.others[j].reports[g.from] = now
				m.judge(j)
			default:
				m.others[j].reports[g.from] = never
			}
		}
	}
	m.assess()
}

// learn takes over the claims that are newer than what it knows, and tells the sender of
// those that are older.
func (m *member) learn(g gossip) {
	for s, theirs := range g.claims {
		known := m.owners[s]
		switch {
		case theirs.epoch > known.epoch:
			m.owners[s] = theirs
			if mine := m.of[m.index]; known.owner == mine && theirs.owner != m.index && !m.master(mine) {
				m.of[m.index] = theirs.owner
				m.node.follow(m.c.members[theirs.owner].node)
			}
		case theirs.epoch < known.epoch && theirs.owner == g.from:
			newer := gossip{from: m.index, epoch: m.epoch, of: m.of[m.index], claims: map[int]claim{s: known}, failed: -1}
			m.send(g.from, func(to *member) { to.hear(newer) })
		}
	}
}

// judge takes a node for failed that it suspects together with a majority of the masters,
// and tells all others.
func (m *member) judge(j int) {
	o := &m.others[j]
	if !o.suspect || o.failed {
		return
	}
	count := 0
	for by, at := range o.reports {
		if by != m.index && m.master(by) && m.c.w.now()-at <= 2*NodeTimeout {
			count++
		}
	}
	if m.master(m.index) {
		count++
	}
	if count <= m.c.shards/2 {
		return
	}
	m.fail(j)
	g := m.gossip()
	g.failed = j
	m.tell(g)
}

// fail takes a node for failed.
func (m *member) fail(j int) {
	if o := &m.others[j]; j != m.index && !o.failed {
		o.failed, o.failedAt = true, m.c.w.now()
	}
}

// assess decides whether the node serves keys.
func (m *member) assess() {
	now := m.c.w.now()
	leads := m.node.master == nil
	if leads && !m.serves && now-m.started < writableDelay {
		return
	}
	reachable := 0
	for j := range m.others {
		if m.master(j) && !m.others[j].suspect && !m.others[j].failed {
			reachable++
		}
	}
	serves := reachable > m.c.shards/2
	if !serves {
		m.minority = now
	} else if leads && !m.serves && now-m.minority < max(NodeTimeout, leastRejoin) {
		return
	}
	m.serves = serves
}

// elect has a replica of a failed master ask for votes.
func (m *member) elect() {
	now, mine := m.c.w.now(), m.of[m.index]
	if m.node.master == nil || !m.master(mine) || !m.others[mine].failed {
		return
	}
	age := now - m.electAt
	switch {
	case age > 2*electionTimeout:
		m.electAt = now + electionDelay + time.Duration(m.c.w.link(m.node.name+"/election").rng.Int64N(int64(electionDelay)))
		m.asked, m.votes = false, 0
	case age >= 0 && age <= electionTimeout && !m.asked:
		m.epoch++
		m.asked, m.election = true, m.epoch
		g := m.gossip()
		g.asks = true
		for s, c := range m.owners {
			if c.owner == mine {
				g.claims[s] = c
			}
		}
		m.tell(g)
	}
}

// vote votes for a replica of a failed master, once in an epoch.
func (m *member) vote(g gossip) {
	now := m.c.w.now()
	if !m.master(m.index) || g.epoch < m.epoch || m.voted == m.epoch || !m.others[g.of].failed || len(g.claims) == 0 {
		return
	}
	for s, c := range g.claims {
		if m.owners[s].epoch > c.epoch || now-m.votedAt[s] < 2*NodeTimeout {
			return
		}
	}
	for s := range g.claims {
		m.votedAt[s] = now
	}
	m.voted = m.epoch
	answer := m.gossip()
	answer.votes = g.epoch
	m.send(g.from, func(to *member) { to.hear(answer) })
}

// count counts a vote, and makes the replica the master once it has a majority.
func (m *member) count(g gossip) {
	mine := m.of[m.index]
	if m.node.master == nil || g.votes != m.election || !m.asked || !m.master(g.from) || !m.master(mine) {
		return
	}
	m.votes++
	if m.votes <= m.c.shards/2 {
		return
	}
	old := m.node.master
	old.replicas = slices.DeleteFunc(old.replicas, func(r *replica) bool { return r.node == m.node })
	m.node.lead()
	m.of[m.index] = m.index
	for s := range m.owners {
		if m.owners[s].owner != mine {
			continue
		}
		m.owners[s] = claim{m.index, m.election}
		if s == m.c.focus {
			m.c.w.master = m.node.name
		}
	}
	m.c.w.tell(Notice{Server: m.node.name, Role: "master"})
	m.tell(m.gossip())
}

// slot says where the member takes a slot to be.
func (m *member) slot(n int) simredis.Slot {
	owner := m.owners[ShardOf(n, m.c.shards)].owner
	return simredis.Slot{Owner: m.c.members[owner].node.address, Mine: owner == m.of[m.index]}
}

// describe is a node as this one knows it.
func (m *member) describe(j int) simredis.Node {
	o := m.c.members[j]
	host, port := hostPort(o.node.address)
	return simredis.Node{ID: o.id, Host: host, Port: port, Failed: m.others[j].failed}
}

// describeAll are the shards, and the masters without any.
func (m *member) describeAll() []simredis.Shard {
	var all []simredis.Shard
	for j := range m.others {
		if m.of[j] != j {
			continue
		}
		shard := simredis.Shard{Master: m.describe(j)}
		for s, c := range m.owners {
			if c.owner == j {
				first, last := traffic.SlotRange(s, m.c.shards)
				shard.Slots = append(shard.Slots, [2]int{first, last})
			}
		}
		for r := range m.others {
			if r != j && m.of[r] == j {
				shard.Replicas = append(shard.Replicas, m.describe(r))
			}
		}
		all = append(all, shard)
	}
	return all
}

// publish takes a message of a client to the other nodes.
func (m *member) publish(channel, message string) {
	for j := range m.others {
		if j != m.index {
			m.send(j, func(to *member) { to.node.server.Deliver(channel, message) })
		}
	}
}
