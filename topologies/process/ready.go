package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// proofKey is written and waited for to prove that replication works.
const proofKey = "lockchaos:ready"

// AwaitReady blocks until one server is the master, every other one follows
// it, a write was acknowledged by all of them, every sentinel knows of all
// that, and every zone reaches every server.
func (d *Deployment) AwaitReady(ctx context.Context) error {
	if err := await(ctx, func() error { return d.ready(ctx) }); err != nil {
		return fmt.Errorf("await readiness: %w", err)
	}
	return nil
}

func (d *Deployment) ready(ctx context.Context) error {
	master, err := d.onlyMaster(ctx)
	if err != nil {
		return err
	}
	replicas := len(d.topology.Of(topologies.Redis)) - 1
	if err := proveReplication(ctx, d.servers[master].observer, replicas); err != nil {
		return fmt.Errorf("%s: %w", master, err)
	}
	sentinels := len(d.topology.Of(topologies.Sentinel))
	err = d.eachSentinel(func(_ string, c *redis.Client) error {
		m, err := c.Do(ctx, "SENTINEL", "MASTER", masterName).Result()
		if err != nil {
			return err
		}
		seen := fields(m)
		if at := d.NodeAt(net.JoinHostPort(seen["ip"], seen["port"])); at != master {
			return fmt.Errorf("it takes %s for the master, and not %s", at, master)
		}
		if seen["flags"] != "master" || seen["num-slaves"] != strconv.Itoa(replicas) ||
			seen["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
			return fmt.Errorf("it sees flags %s, %s replicas, %s other sentinels",
				seen["flags"], seen["num-slaves"], seen["num-other-sentinels"])
		}
		return d.replicasGood(ctx, c)
	})
	if err != nil {
		return err
	}
	for _, l := range d.topology.Links {
		if l.Kind != topologies.Client {
			continue
		}
		if _, err := d.fabric.Wire(l.Name()).Probe(ctx); err != nil {
			return err
		}
	}
	return nil
}

// replicasGood checks that a sentinel sees every replica up and attached.
func (*Deployment) replicasGood(ctx context.Context, c *redis.Client) error {
	replicas, err := c.Do(ctx, "SENTINEL", "REPLICAS", masterName).Slice()
	if err != nil {
		return err
	}
	for _, r := range replicas {
		seen := fields(r)
		if seen["flags"] != "slave" || seen["master-link-status"] != "ok" {
			return fmt.Errorf("it sees replica %s with flags %s and its link %s",
				seen["name"], seen["flags"], seen["master-link-status"])
		}
	}
	return nil
}

// onlyMaster is the one server that takes itself for the master, while all
// others say that they are attached to it.
func (d *Deployment) onlyMaster(ctx context.Context) (string, error) {
	master := ""
	for _, name := range d.topology.Of(topologies.Redis) {
		role, err := d.servers[name].role(ctx)
		if err != nil {
			return "", err
		}
		switch {
		case role != topologies.Master:
		case master != "":
			return "", fmt.Errorf("both %s and %s take themselves for the master", master, name)
		default:
			master = name
		}
	}
	if master == "" {
		return "", errors.New("no server takes itself for the master")
	}
	return master, nil
}

// role is what a Redis server says it is: master or replica.
func (s *server) role(ctx context.Context) (string, error) {
	r, err := s.observer.Do(ctx, "ROLE").Slice()
	if err != nil {
		return "", fmt.Errorf("ask %s for its role: %w", s.name, err)
	}
	if len(r) > 0 && r[0] == "master" {
		return topologies.Master, nil
	}
	return topologies.Replica, nil
}

// proveReplication writes a key and waits, on the same connection, until all
// replicas acknowledged it. That a replica calls itself online proves nothing.
func proveReplication(ctx context.Context, c *redis.Client, replicas int) error {
	if replicas == 0 {
		return nil
	}
	conn := c.Conn()
	defer conn.Close()
	if err := conn.Set(ctx, proofKey, time.Now().UnixNano(), time.Minute).Err(); err != nil {
		return fmt.Errorf("prove replication: %w", err)
	}
	acks, err := conn.Do(ctx, "WAIT", replicas, "50").Int()
	if err != nil {
		return fmt.Errorf("prove replication: %w", err)
	}
	if acks < replicas {
		return fmt.Errorf("prove replication: %d of %d replicas acknowledged a write", acks, replicas)
	}
	return nil
}

// fields reads the flat list, or the map, in which Redis returns named values.
func fields(reply any) map[string]string {
	m := map[string]string{}
	switch r := reply.(type) {
	case []any:
		for pair := range slices.Chunk(r, 2) {
			if len(pair) == 2 {
				m[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
			}
		}
	case map[any]any:
		for k, v := range r {
			m[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	}
	return m
}

// watchEvery is how often a server is asked what it takes itself for.
const watchEvery = 10 * time.Millisecond

// Watch asks every server for its role, and every sentinel for the master,
// over and over, and reports changes. A server that does not answer is passed
// over until it does.
func (d *Deployment) Watch(ctx context.Context, report func(topologies.Observation)) {
	var all sync.WaitGroup
	for name, s := range d.servers {
		n, _ := d.topology.Node(name)
		what, ask := "role", s.role
		if n.Kind == topologies.Sentinel {
			what, ask = "master", func(ctx context.Context) (string, error) { return d.masterOf(ctx, s.observer) }
		}
		all.Go(func() {
			last := ""
			ticker := time.NewTicker(watchEvery)
			defer ticker.Stop()
			for ctx.Err() == nil {
				if value, err := ask(ctx); err == nil && value != last {
					last = value
					report(topologies.Observation{Node: name, What: what, Value: value})
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}

// masterOf is the server that a sentinel takes for the master.
func (d *Deployment) masterOf(ctx context.Context, sentinel *redis.Client) (string, error) {
	at, err := sentinel.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName).StringSlice()
	if err != nil {
		return "", fmt.Errorf("ask for the master: %w", err)
	}
	return d.NodeAt(strings.Join(at, ":")), nil
}
