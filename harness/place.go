package harness

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// PlaceIn is where clients of a zone are that keep no log and judge nothing.
func PlaceIn(d topologies.Deployment, zone string) Place {
	o := d.ClientOptions(zone)
	kind := d.Topology().Store()
	if o.MasterName != "" {
		kind = driver.KindSentinel
	}
	p := Place{
		Zone: zone, Topology: d.Topology().Name, Master: o.MasterName, Timeout: o.ReadTimeout, Dial: o.Dialer,
		Adopt:            func(group int) (func(), error) { return d.Adopt(group, zone) },
		Log:              func() (io.WriteCloser, error) { return os.OpenFile(os.DevNull, os.O_WRONLY, 0) },
		MarkInconclusive: func(string) {}, Broken: func(string) {},
	}
	for _, address := range o.Addrs {
		p.Servers = append(p.Servers, driver.Server{Name: d.NodeAt(address), Kind: kind, Addr: address})
	}
	return p
}

// unreached says why the grants of a foreign lock prove nothing: fewer requests reached
// the servers over the links than locks were granted. It is empty where they did, or
// where that can't be told.
func (st *Session) unreached() string {
	if !st.lock.Foreign || st.lock.InProcess != nil || !st.lock.onRedis() {
		return ""
	}
	who := "lock"
	if st.lock.Connects {
		who = "driver"
	}
	met, ok := Requests(st.deployment)
	why := "and %d requests reached the servers over the links: the " + who + " answers from memory, or reaches the servers past the proxies"
	var asked int64
	servers := 0 // that were asked
	for server, requests := range met {
		if since := requests - st.before[server]; since > 0 {
			servers++
			asked += since
		}
	}
	switch granted, moves := st.grants.all.Load(), st.grants.moves.Load(); {
	case !ok:
		return ""
	case granted > 0 && st.deployment.Topology().Apart() && servers <= len(met)/2:
		return fmt.Sprintf("the lock was granted %d times, and requests reached %d of %d servers over the links: the %s promises a lock on a majority of them", granted, servers, len(met), who)
	case !st.lock.Reentrant && !st.lock.HandsOver: // each grant asks a server
		if asked < granted {
			return fmt.Sprintf("the lock was granted %d times, "+why, granted, asked)
		}
	case asked < moves:
		return fmt.Sprintf("the lock went from one zone to another %d times, "+why, moves, asked)
	}
	return ""
}

// grants counts those of a run.
type grants struct {
	all atomic.Int64
	// moves are those in another zone than before, and the first. They ask the servers, whatever a process hands over
	// within itself: each zone has its own.
	moves atomic.Int64

	mu     sync.Mutex
	latest map[string]grant // of each lock
}

// A grant was to a client of a zone, at a time; a hold without a lease lives as long as the session of its client.
type grant struct {
	zone    string
	at      time.Time
	session bool
}

// in is told of each grant to a client of a zone.
func (g *grants) in(zone string) func(workload.Request) {
	return func(r workload.Request) { g.add(zone, strings.Join(r.Locks, " "), r.Lease) }
}

func (g *grants) add(zone, name string, lease time.Duration) {
	g.all.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.latest == nil {
		g.latest = map[string]grant{}
	}
	if g.latest[name].zone != zone {
		g.moves.Add(1)
	}
	g.latest[name] = grant{zone, time.Now(), lease == 0}
}

// heldFor is how long ago the latest grant of a lock was that a client seems to hold: most are given back sooner.
const heldFor = 300 * time.Millisecond

// holder is a zone in which a client seems to hold a lock by its session, and began shortly ago; empty for none.
func (g *grants) holder() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, latest := range g.latest {
		if age := time.Since(latest.at); latest.session && age > heldFor && age < 2*heldFor {
			return latest.zone
		}
	}
	return ""
}

// Requests counts those that got through to each server that keeps locks over the links of clients,
// so far. It is false where links can't be counted.
func Requests(d topologies.Deployment) (to map[string]int64, ok bool) {
	t := d.Topology()
	to = map[string]int64{}
	for _, l := range t.Links {
		if node, _ := t.Node(l.To); l.Kind != topologies.Client || node.Kind != topologies.Redis {
			continue
		}
		wire, counts := d.Proxy(l.Name()).(topologies.Interceptor)
		if !counts {
			return nil, false
		}
		begun, _, refused := wire.Requests()
		to[l.To] += begun - refused
		ok = true
	}
	return to, ok
}

// place is where the clients of a zone are, for a lock that connects by itself.
func (st *Session) place(zone string) *Place {
	p := PlaceIn(st.deployment, zone)
	p.Log = func() (io.WriteCloser, error) {
		return os.OpenFile(history.Dir(st.Dir).Path(history.LogsDir, "driver-"+zone+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	}
	p.Env = st.clocks.Environment(zone)
	if st.Workers != nil {
		o := st.deployment.ClientOptions(zone)
		announced := o.MasterName != "" || o.IsClusterMode
		p.Remote = func() (*driver.Remote, error) {
			return st.Workers.Start(zone, st.deployment.Addresses(), announced, p.Dial)
		}
		p.RoundTrip = func() time.Duration { return st.Workers.RoundTrip(zone) }
	}
	p.MarkInconclusive = st.blameDriver
	p.Broken = func(why string) {
		if st.stopWork != nil && st.stopWork() {
			why += "; the run ended there"
		}
		st.blameDriver(why)
	}
	return &p
}

// blameDriver records what a driver did wrong, the first of it.
func (st *Session) blameDriver(why string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.run.DriverFault = cmp.Or(st.run.DriverFault, why)
}
