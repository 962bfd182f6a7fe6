package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
)

// Operated is what a planned failover needs of a deployment whose servers replace
// no master by themselves.
type Operated interface {
	Master(ctx context.Context, shard string) (string, error)
	AwaitMaster(ctx context.Context, shard, old string) (string, error)
	NodeAt(address string) string
}

// A Server is one of the servers of a shard. Its Observer is a connection past
// every fault of the network.
type Server interface {
	Name() string
	Observer() *redis.Client
}

// The ways in which an operator moves the role of a master. Neither loses a write
// that was answered: the old master takes none from the moment on at which the new
// one must have them all.
const (
	// ByFailover is the command FAILOVER, of Redis 6.2 and later.
	ByFailover = "failover"
	// ByReplicaOf is by hand: writes to the master are paused, a replica that has
	// all of them becomes the master by REPLICAOF NO ONE, and the old one its
	// replica. Then the paused writes are refused.
	ByReplicaOf = "replicaof"
)

// A Plan says how a planned failover is done.
type Plan struct {
	// By is [ByFailover] or [ByReplicaOf].
	By string
	// ClosePubSub closes the connections of subscribers of the old master, once the
	// role and the name have moved. Redis leaves them open: a client that subscribed
	// goes on hearing what is published, for that is replicated, and is not told that
	// it hears a replica.
	ClosePubSub bool
}

type planned struct {
	d       Operated
	shard   string
	servers []Server
	plan    Plan
}

// Planned makes a replica the master, as an operator does for maintenance: one that
// has every write of the old master, which becomes its replica, as the others do.
// What changed is written into the servers' configuration, so that a restart keeps
// it. The servers are those of the shard. It has no duration.
func Planned(d Operated, shard string, servers []Server, p Plan) faults.Fault {
	return &planned{d: d, shard: shard, servers: servers, plan: p}
}

// Name returns "planned-failover".
func (*planned) Name() string { return "planned-failover" }

// Inject fails if the master does not change before the context ends. Once begun, it
// is seen through.
func (f *planned) Inject(ctx context.Context) (faults.Injection, error) {
	old, err := now(ctx, f.d, f.shard)
	if err != nil {
		return faults.Injection{}, err
	}
	through, cancel, err := faults.Through(ctx)
	if err != nil {
		return faults.Injection{}, err
	}
	defer cancel()
	target, err := f.best(through, old)
	if err != nil {
		return faults.Injection{}, err
	}
	if f.plan.By == ByReplicaOf {
		err = f.swap(through, old, target)
	} else {
		err = f.handOver(through, old, target)
	}
	if err != nil {
		return faults.Injection{}, fmt.Errorf("make %s the master: %w", target.name, err)
	}
	if err := f.settle(through, target); err != nil {
		return faults.Injection{}, err
	}
	if _, err := f.d.AwaitMaster(through, f.shard, old); err != nil {
		return faults.Injection{}, err
	}
	subscribers, err := f.subscribers(through, old)
	if err != nil {
		return faults.Injection{}, err
	}
	return faults.Injection{Effect: fmt.Sprintf("%s took over from %s, %s", target.name, old, subscribers)}, nil
}

// A replica is one that a master knows.
type replica struct {
	name   string
	host   string
	port   string
	offset int64
}

// rdb is the connection to a server past every fault, for requests that may take a
// while on a busy machine.
func (f *planned) rdb(name string) *redis.Client {
	i := slices.IndexFunc(f.servers, func(s Server) bool { return s.Name() == name })
	return f.servers[i].Observer().WithTimeout(faults.Patience)
}

// best is the replica of the master that has most of its writes.
func (f *planned) best(ctx context.Context, master string) (replica, error) {
	var all []replica
	role, err := f.rdb(master).Do(ctx, "ROLE").Slice()
	if err != nil {
		return replica{}, fmt.Errorf("ask %s for its replicas: %w", master, err)
	}
	if len(role) > 2 {
		attached, _ := role[2].([]any)
		for _, one := range attached {
			if r, ok := f.replica(one); ok {
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		return replica{}, fmt.Errorf("%s has no replica that could take over", master)
	}
	return slices.MaxFunc(all, func(a, b replica) int { return int(a.offset - b.offset) }), nil
}

// replica reads one of the entries of a master's ROLE: host, port, offset.
func (f *planned) replica(entry any) (r replica, ok bool) {
	fields, _ := entry.([]any)
	if len(fields) < 3 {
		return r, false
	}
	r.host, r.port = fmt.Sprint(fields[0]), fmt.Sprint(fields[1])
	r.name = f.d.NodeAt(net.JoinHostPort(r.host, r.port))
	var err error
	r.offset, err = strconv.ParseInt(fmt.Sprint(fields[2]), 10, 64)
	known := slices.ContainsFunc(f.servers, func(s Server) bool { return s.Name() == r.name })
	return r, err == nil && known
}

// takeover bounds how long the two servers may take. Milliseconds are usual.
const takeover = 10 * time.Second

// handOver has the master do it.
func (f *planned) handOver(ctx context.Context, old string, target replica) error {
	rdb := f.rdb(old)
	if err := rdb.Do(ctx, "FAILOVER", "TO", target.host, target.port, "TIMEOUT", takeover.Milliseconds()).Err(); err != nil {
		return err
	}
	var final error
	err := await.Until(ctx, func() error {
		info, err := f.info(ctx, old)
		if err != nil {
			return err
		}
		switch over := info["master_failover_state"] == "no-failover"; {
		case over && info["role"] == "slave":
			return nil
		case over:
			final = fmt.Errorf("%s gave it up: %s did not have all writes within %v", old, target.name, takeover)
			return nil
		default:
			return fmt.Errorf("%s is in %s", old, info["master_failover_state"])
		}
	})
	if err != nil {
		undo, cancel := faults.Undo(ctx)
		defer cancel()
		err = errors.Join(err, rdb.Do(undo, "FAILOVER", "ABORT").Err())
	}
	return errors.Join(final, err)
}

// swap does it by hand.
func (f *planned) swap(ctx context.Context, old string, target replica) (err error) {
	rdb := f.rdb(old)
	paused := time.Now()
	if err := rdb.Do(ctx, "CLIENT", "PAUSE", takeover.Milliseconds(), "WRITE").Err(); err != nil {
		return err
	}
	defer func() {
		undo, cancel := faults.Undo(ctx)
		defer cancel()
		err = errors.Join(err, rdb.Do(undo, "CLIENT", "UNPAUSE").Err())
	}()
	limited, cancel := context.WithDeadlineCause(ctx, paused.Add(takeover/2), errors.New("it does not have all writes"))
	defer cancel()
	info, err := f.info(limited, old)
	if err != nil {
		return err
	}
	want, err := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	if err != nil {
		return fmt.Errorf("read the offset of %s: %w", old, err)
	}
	err = await.Until(limited, func() error {
		info, err := f.info(limited, target.name)
		if err != nil {
			return err
		}
		if has, err := strconv.ParseInt(info["slave_repl_offset"], 10, 64); err != nil || has < want {
			return fmt.Errorf("it is at %s of %d", info["slave_repl_offset"], want)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if info, err = f.info(ctx, target.name); err != nil {
		return err
	}
	next := f.rdb(target.name)
	err = next.Do(ctx, "REPLICAOF", "NO", "ONE").Err()
	if err == nil {
		err = rdb.Do(ctx, "REPLICAOF", target.host, target.port).Err()
	}
	if took := time.Since(paused); err == nil && took >= takeover {
		err = fmt.Errorf("it took %v, and %s took writes again after %v", took, old, takeover)
	}
	if err != nil {
		undo, cancel := faults.Undo(ctx)
		defer cancel()
		err = errors.Join(err, rdb.Do(undo, "REPLICAOF", "NO", "ONE").Err(),
			next.Do(undo, "REPLICAOF", info["master_host"], info["master_port"]).Err())
	}
	return err
}

// settle has all others follow the new master, and every server write down who
// follows whom.
func (f *planned) settle(ctx context.Context, target replica) error {
	for _, s := range f.servers {
		rdb := f.rdb(s.Name())
		err := await.Until(ctx, func() error { // repeated, both come to the same
			if s.Name() != target.name {
				if err := rdb.Do(ctx, "REPLICAOF", target.host, target.port).Err(); err != nil {
					return err
				}
			}
			return rdb.ConfigRewrite(ctx).Err()
		})
		if err != nil {
			return fmt.Errorf("have %s follow %s: %w", s.Name(), target.name, err)
		}
	}
	return nil
}

// subscribers says what became of the connections of subscribers.
func (f *planned) subscribers(ctx context.Context, old string) (string, error) {
	rdb := f.rdb(old)
	if f.plan.ClosePubSub {
		n, err := rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Int()
		return fmt.Sprintf("%d connections of subscribers closed", n), err
	}
	list, err := rdb.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	return fmt.Sprintf("%d connections of subscribers left open", strings.Count(list, "\n")), err
}

// info is what a server says of its replication.
func (f *planned) info(ctx context.Context, server string) (map[string]string, error) {
	text, err := f.rdb(server).Info(ctx, "replication").Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}
