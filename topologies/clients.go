package topologies

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// OnceOptions are what the options of all clients have in common, which wait so long for a connection or a
// reply: they answer for what was asked once, because a retry that the caller does not see makes the outcome
// of a request unknowable. [Clients] has a client of a cluster do the same.
func OnceOptions(timeout time.Duration) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              timeout,
		ReadTimeout:              timeout,
		WriteTimeout:             timeout,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// RoleOf is what a server of Redis says that it is, [Master] or [Replica], and the address of the master that it
// follows.
func RoleOf(ctx context.Context, rdb redis.UniversalClient) (role, follows string, err error) {
	said, err := rdb.Do(ctx, "ROLE").Slice()
	switch {
	case err != nil:
		return "", "", err
	case len(said) > 2 && said[0] == "slave":
		return Replica, net.JoinHostPort(fmt.Sprint(said[1]), fmt.Sprint(said[2])), nil
	case len(said) > 0 && said[0] == "master":
		return Master, "", nil
	default:
		return "", "", fmt.Errorf("it has no role: %v", said)
	}
}

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
