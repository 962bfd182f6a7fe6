package topologies

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

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
