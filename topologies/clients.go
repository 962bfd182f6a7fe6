package topologies

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// slotsEvery is how often a client of a cluster asks who serves which slots.
// By default it is once a minute: a network error does not make it ask, so that
// it would go on asking a dead master for that long (redis/go-redis issue
// 3979).
const slotsEvery = 100 * time.Millisecond

// Clients makes the clients that [Deployment.ClientOptions] describe: one that
// follows the master or the slots, and for servers that know nothing of each
// other, one for each, in order. With MaxRetries -1 none of them repeats a request that a
// server may have carried out. The caller closes them.
func Clients(o *redis.UniversalOptions) []redis.UniversalClient {
	switch {
	case o.MasterName != "":
		return []redis.UniversalClient{redis.NewFailoverClient(o.Failover())}
	case o.IsClusterMode:
		cluster := o.Cluster()
		cluster.ClusterStateReloadInterval = slotsEvery
		if o.MaxRetries < 0 {
			return []redis.UniversalClient{once(cluster)}
		}
		return []redis.UniversalClient{redis.NewClusterClient(cluster)}
	default:
		var clients []redis.UniversalClient
		for _, addr := range o.Addrs {
			one := *o
			one.Addrs = []string{addr}
			clients = append(clients, redis.NewClient(one.Simple()))
		}
		return clients
	}
}
