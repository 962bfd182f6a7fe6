package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// readyTimeout bounds how long a deployment may take to become ready. A
// cluster needs the most: two seconds, in which it takes no writes, and that
// twice if a master was away. Much more is needed where the machine is busy.
const readyTimeout = time.Minute

// lacking is what a deployment still lacks of being ready.
type lacking struct {
	node string // whose log may tell why; empty for none
	what string // "redis-2 to answer"
	err  error
}

func (l *lacking) Error() string { return l.what + ": " + l.err.Error() }
func (l *lacking) Unwrap() error { return l.err }

// AwaitReady blocks until the members of a consensus store agree on a leader and every
// zone can write by way of each of them; of Redis, until every shard has one master, which all others follow,
// as a write proves that all of them acknowledged; until all sentinels, or all
// nodes of the cluster, know of that, and the name leads to the master; and until
// every zone reaches every server, and writes to every master.
func (d *deployment) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	last, err := d.await(ctx, d.ready)
	switch {
	case err == nil, errors.Is(err, ErrRefused):
		return err
	case last == nil || last.node == "":
		return fmt.Errorf("await readiness: %w", err)
	default:
		return fmt.Errorf("await readiness: %w\n%s", err, TailLog(d.parts.Nodes[last.node].Log()))
	}
}

// await looks at the servers until nothing is lacking, or they refuse what is needed, and says what it waits for. It
// returns what was lacking last.
func (d *deployment) await(ctx context.Context, look func(context.Context) error) (last *lacking, err error) {
	err = await.While(ctx, func(err error) bool { return !d.refuses(err) }, func() error {
		err := look(ctx)
		if l := (*lacking)(nil); errors.As(err, &l) && !await.Over(ctx) {
			if last == nil || l.what != last.what {
				d.parts.Log.InfoContext(ctx, "waiting", "for", l.what, "because", l.err)
			}
			last = l
		}
		return err
	})
	if d.refuses(err) {
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return last, err
}

// agreed are the masters of all shards, as every server says that has a vote. It only asks.
func (d *deployment) agreed(ctx context.Context) (masters map[string]string, err error) {
	masters = map[string]string{}
	for _, shard := range d.masters() {
		if masters[shard], err = d.onlyMaster(ctx, shard); err != nil {
			return nil, err
		}
	}
	return masters, d.elector.agree(ctx, masters)
}

// settleTimeout bounds how long servers that are not ours may take to agree, where they do not: one
// sentinel may just have lost sight of another.
const settleTimeout = 5 * time.Second

// settle waits until they do, for a while.
func (d *deployment) settle(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	last, err := d.await(limited, func(ctx context.Context) error {
		_, err := d.agreed(ctx)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, ErrRefused):
		return err
	case last != nil:
		return fmt.Errorf("%w: %w", ErrUnsettled, last)
	default:
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
}

// ErrRefused says that an attached server answers, and refuses what is
// needed for a reason that does not pass by itself: rights, a password, memory,
// a disk. ErrUnsettled says that attached servers do not agree.
var (
	ErrRefused   = errors.New("the servers refuse what is needed")
	ErrUnsettled = errors.New("the deployment is not whole")
)

// refuses reports whether an error is such a refusal.
func (d *deployment) refuses(err error) bool {
	return d.parts.Foreign && slices.ContainsFunc([]string{"NOPERM", "NOAUTH", "WRONGPASS", "OOM", "MISCONF"}, func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
}

func (d *deployment) ready(ctx context.Context) error {
	if err := d.CheckClaim(); err != nil {
		return &lacking{"", "the deployment to be ours", err}
	}
	masters, err := d.agreed(ctx)
	if err != nil {
		return err
	}
	for shard, master := range masters {
		if err := d.proveReplication(ctx, shard, master); err != nil {
			return &lacking{master, "the replicas of " + master, err}
		}
	}
	if d.name != nil {
		if err := d.name.leadsTo(masters[d.topology.Shards()[0]]); err != nil {
			return &lacking{"", "the name to move", err}
		}
	}
	served := d.served
	if d.members != nil {
		served = d.members.serves
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, zone := range d.topology.Of(topologies.Zone) {
		group.Go(func() error { return served(ctx, zone) })
	}
	return group.Wait()
}

// onlyMaster is the one server of a shard that takes itself for the master.
func (d *deployment) onlyMaster(ctx context.Context, shard string) (string, error) {
	var masters []string
	members := d.topology.Members(shard)
	for _, name := range members {
		role, err := d.role(ctx, name)
		if err != nil {
			return "", &lacking{name, name + " to answer", err}
		}
		if role == topologies.Master {
			masters = append(masters, name)
		}
	}
	if len(masters) != 1 {
		err := fmt.Errorf("%d take themselves for it: %v", len(masters), masters)
		return "", &lacking{"", "one master among " + strings.Join(members, ", "), err}
	}
	return masters[0], nil
}

// role is what a server says it is: master or replica; leader or follower of a consensus
// store.
func (d *deployment) role(ctx context.Context, name string) (string, error) {
	if d.members != nil {
		s, err := d.members.state(ctx, name)
		return s.Role(), err
	}
	role, _, err := topologies.RoleOf(ctx, d.observer(name))
	if err != nil {
		return "", fmt.Errorf("ask %s for its role: %w", name, err)
	}
	return role, nil
}

// proofKey is written to see whether writes go through.
const proofKey = probe.Key

// proofOf is a proof key that a shard's master serves.
func (d *deployment) proofOf(shard string) string { return cmp.Or(d.proofs[shard], proofKey) }

// prove writes a proof key, and leaves nothing of it.
func prove(ctx context.Context, c redis.Cmdable, key string) error {
	if err := c.Set(ctx, key, time.Now().UnixNano(), time.Minute).Err(); err != nil {
		return err
	}
	return c.Del(ctx, key).Err()
}

// acknowledgeTimeout bounds how long one write waits for its replicas. It does not slow
// a deployment that is ready; a short one would never be met on a machine so busy that an
// acknowledgement takes longer.
const acknowledgeTimeout = time.Second

// proveReplication writes a key and waits, on the same connection, until all
// replicas acknowledged it. That a replica calls itself online proves nothing.
func (d *deployment) proveReplication(ctx context.Context, shard, master string) error {
	replicas := len(d.topology.Members(shard)) - 1
	if replicas == 0 {
		return nil
	}
	conn := d.observer(master).Conn()
	defer conn.Close()
	if err := prove(ctx, conn, d.proofOf(shard)); err != nil {
		return fmt.Errorf("prove replication: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, acknowledgeTimeout+observerTimeout)
	defer cancel()
	acks, err := conn.Wait(limited, replicas, acknowledgeTimeout).Result()
	if err != nil {
		return fmt.Errorf("prove replication: %w", err)
	}
	if int(acks) < replicas {
		return fmt.Errorf("prove replication: %d of %d acknowledged a write", acks, replicas)
	}
	return nil
}

// firstDialTimeout bounds a dial that finds out whether a deployment is ready. No fault is
// to be noticed yet, and the system sends a lost SYN again after a second, and after three.
const firstDialTimeout = 5 * time.Second

// served checks that clients of a zone reach every server that they have a
// link to, and that what they write arrives at every master.
func (d *deployment) served(ctx context.Context, zone string) error {
	o := d.ClientOptions(zone)
	o.DialTimeout = firstDialTimeout
	for _, l := range d.topology.Links {
		if l.From != zone {
			continue
		}
		if err := d.reaches(ctx, *o, l.To); err != nil {
			return &lacking{l.To, zone + " to reach " + l.To, err}
		}
	}
	clients := topologies.Clients(o)
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	for i, master := range d.masters() {
		// Servers that know nothing of each other have a client each; for all
		// others, one client finds the way.
		if err := prove(ctx, clients[i%len(clients)], d.proofOf(master)); err != nil {
			return &lacking{"", zone + " to write to the master of " + master, err}
		}
	}
	return nil
}

// reaches sends a PING to one server with the options of a zone's clients.
func (d *deployment) reaches(ctx context.Context, o redis.UniversalOptions, name string) error {
	o.Addrs = []string{d.parts.Nodes[name].Announced}
	if n, _ := d.topology.Node(name); n.Kind == topologies.Sentinel {
		o.Username, o.Password = o.SentinelUsername, o.SentinelPassword
	}
	c := redis.NewClient(o.Simple())
	defer c.Close()
	return c.Ping(ctx).Err()
}
