package harness

import (
	"cmp"
	"io"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/driver"
)

// place is where the clients of a zone are, for a lock that connects by itself.
func (st *Session) place(zone string, o *redis.UniversalOptions) *Place {
	kind := driver.KindRedis
	if o.MasterName != "" {
		kind = driver.KindSentinel
	}
	p := &Place{
		Zone: zone, Topology: st.deployment.Topology().Name, Master: o.MasterName, Timeout: o.ReadTimeout,
		Adopt: func(group int) (func(), error) { return st.deployment.Adopt(group, zone) },
		Log: func() (io.WriteCloser, error) {
			return os.OpenFile(history.Dir(st.Dir).Path(history.LogsDir, "driver-"+zone+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		},
		Doubt: func(why string) { st.run.Failed = cmp.Or(st.run.Failed, why) },
	}
	for _, address := range o.Addrs {
		p.Servers = append(p.Servers, driver.Server{Name: st.deployment.NodeAt(address), Kind: kind, Addr: address})
	}
	return p
}
