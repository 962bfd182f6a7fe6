package harness

import (
	"cmp"
	"io"
	"os"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/driver"
	"github.com/lockchaos/lockchaos/topologies"
)

// PlaceIn is where clients of a zone are that keep no log and judge nothing.
func PlaceIn(d topologies.Deployment, zone string) Place {
	o := d.ClientOptions(zone)
	kind := driver.KindRedis
	if o.MasterName != "" {
		kind = driver.KindSentinel
	}
	p := Place{
		Zone: zone, Topology: d.Topology().Name, Master: o.MasterName, Timeout: o.ReadTimeout,
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

// place is where the clients of a zone are, for a lock that connects by itself.
func (st *Session) place(zone string) *Place {
	p := PlaceIn(st.deployment, zone)
	p.Log = func() (io.WriteCloser, error) {
		return os.OpenFile(history.Dir(st.Dir).Path(history.LogsDir, "driver-"+zone+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	}
	p.Doubt = func(why string) { st.run.Failed = cmp.Or(st.run.Failed, why) }
	return &p
}
