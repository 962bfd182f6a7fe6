package topologies

import (
	"context"
	"errors"
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

// once has a client of a cluster send a request again only if no server can have carried
// it out: it follows the slots, and returns an error of the network to the caller, as
// MaxRetries -1 has it with clients of one server. A cluster client of go-redis ignores
// that option, and repeats a release whose reply was lost: "not held" is then the answer
// to the second copy.
func once(o *redis.ClusterOptions) *redis.ClusterClient {
	o.NewClient = func(node *redis.Options) *redis.Client {
		c := redis.NewClient(node)
		c.AddHook(ofNode{})
		return c
	}
	c := redis.NewClusterClient(o)
	c.AddHook(ofCluster{})
	return c
}

// ofCluster and ofNode are the hooks of the two layers: what the node's hides from the
// cluster client, so that it does not repeat the request, the other one shows again.
type (
	ofCluster struct{}
	ofNode    struct{}
)

// routed marks the context of a request that the cluster client routes.
type routed struct{}

// final is an error after which the server may have carried a request out. It has no
// Unwrap, since go-redis would find what it repeats.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }

// shown is an error as the caller gets it.
func shown(err error) error {
	if f, ok := errors.AsType[final](err); ok {
		return f.err
	}
	return err
}

// hidden is an error as the cluster client gets it.
func hidden(ctx context.Context, err error) error {
	var answer redis.Error
	var dial *net.OpError
	switch {
	case err == nil, ctx.Value(routed{}) == nil, errors.As(err, &answer):
		return err
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrClosed):
		return err // it was not sent
	default:
		return final{err}
	}
}

// An unrepeated command, and a pipeline with one, go-redis sends once.
type unrepeated struct{ redis.Cmder }

// NoRetry is for go-redis.
func (unrepeated) NoRetry() bool { return true }

// DialHook does nothing.
func (ofCluster) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook shows the error that the node's hook hid.
func (ofCluster) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := shown(next(context.WithValue(ctx, routed{}, true), cmd))
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook has a pipeline sent once.
func (ofCluster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		single := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			single[i] = unrepeated{cmd}
		}
		return next(ctx, single)
	}
}

// DialHook does nothing.
func (ofNode) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook hides an error after which go-redis would repeat the request.
func (ofNode) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return hidden(ctx, next(ctx, cmd)) }
}

// ProcessPipelineHook does so for a request that was redirected.
func (ofNode) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return hidden(ctx, next(ctx, cmds)) }
}
