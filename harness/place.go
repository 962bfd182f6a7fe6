package harness

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/driver"
	"github.com/lockchaos/lockchaos/topologies"
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
		Adopt: func(group int) (func(), error) { return d.Adopt(group, zone) },
		Log:   func() (io.WriteCloser, error) { return discard{io.Discard}, nil },
		Doubt: func(string) {},
	}
	for _, address := range o.Addrs {
		p.Servers = append(p.Servers, driver.Server{Name: d.NodeAt(address), Kind: kind, Addr: address})
	}
	return p
}

// discard is a log that is not kept.
type discard struct{ io.Writer }

// Close does nothing.
func (discard) Close() error { return nil }

// unreached says why the grants of a lock that connects by itself prove nothing: fewer
// requests reached the servers over the links than locks were granted. It is empty where
// they did, or where that can't be told.
func (st *Session) unreached() string {
	if !st.lock.Connects || st.lock.Reentrant { // a re-entry may ask no server
		return ""
	}
	requests, ok := st.requests()
	if granted := st.grants.Load(); ok && requests-st.before < granted {
		return fmt.Sprintf("the lock was granted %d times, and %d requests reached the servers over the links: the driver answers from memory, or reaches the servers past the proxies", granted, requests-st.before)
	}
	return ""
}

// requests counts those over the links of clients to servers that keep locks, so far. It
// is false where links can't be counted.
func (st *Session) requests() (n int64, ok bool) {
	t := st.deployment.Topology()
	for _, l := range t.Links {
		if to, _ := t.Node(l.To); l.Kind != topologies.Client || to.Kind != topologies.Redis {
			continue
		}
		wire, counts := st.deployment.Proxy(l.Name()).(topologies.Interceptor)
		if !counts {
			return 0, false
		}
		begun, _ := wire.Requests()
		n, ok = n+begun, true
	}
	return n, ok
}

// place is where the clients of a zone are, for a lock that connects by itself.
func (st *Session) place(zone string) *Place {
	p := PlaceIn(st.deployment, zone)
	p.Log = func() (io.WriteCloser, error) {
		return os.OpenFile(history.Dir(st.Dir).Path(history.LogsDir, "driver-"+zone+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	}
	p.Doubt = func(why string) { st.run.Failed = cmp.Or(st.run.Failed, why) }
	return &p
}
