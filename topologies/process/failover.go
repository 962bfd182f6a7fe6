package process

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// leader is the sentinel that starts every failover: the last one. With three
// that start at once, one vote in thirty is split and costs four seconds; one
// that starts alone still needs the votes of a majority.
func (d *ReplicatedDeployment) leader() *redis.Client {
	sentinels := d.topology.Of(topologies.Sentinel)
	return d.servers[sentinels[len(sentinels)-1]].observer
}

// Master is the server that a majority of the sentinels takes for the master
// and that takes itself for one.
func (d *ReplicatedDeployment) Master(ctx context.Context) (string, error) {
	sentinels := d.topology.Of(topologies.Sentinel)
	votes := map[string]int{}
	for _, name := range sentinels {
		master, err := d.masterOf(ctx, d.servers[name].observer)
		if err != nil {
			continue // a sentinel that does not answer does not vote
		}
		votes[master]++
		if votes[master] <= len(sentinels)/2 {
			continue
		}
		s, ok := d.servers[master]
		if !ok {
			return "", fmt.Errorf("the sentinels agree on %s, which is no server of ours", master)
		}
		role, err := s.role(ctx)
		if err != nil {
			return "", err
		}
		if role != topologies.Master {
			return "", fmt.Errorf("the sentinels agree on %s, which calls itself a %s", master, role)
		}
		return master, nil
	}
	return "", fmt.Errorf("the sentinels do not agree: %v", votes)
}

// AwaitMaster blocks until a majority agrees on another master than old.
func (d *ReplicatedDeployment) AwaitMaster(ctx context.Context, old string) (string, error) {
	var master string
	err := await(ctx, func() error {
		var err error
		if master, err = d.Master(ctx); err == nil && master == old {
			err = fmt.Errorf("%s is still the master", old)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("await a new master: %w", err)
	}
	return master, nil
}

// Arm makes the leader declare the master down after 300 ms without the
// others' opinion. Electing itself still takes a majority.
func (d *ReplicatedDeployment) Arm(ctx context.Context) error {
	if err := setDownAfter(ctx, d.leader(), armed, "1"); err != nil {
		return fmt.Errorf("arm the sentinels: %w", err)
	}
	return nil
}

// Disarm undoes Arm and Promote. After a failover it must come at once: the
// short limit would soon replace the new master too.
func (d *ReplicatedDeployment) Disarm(ctx context.Context) error {
	if err := setDownAfter(ctx, d.leader(), disarmed, "2"); err != nil {
		return fmt.Errorf("disarm the sentinels: %w", err)
	}
	return d.setHello(ctx, quickHello)
}

// Promote asks the leader for a failover that nothing forces.
func (d *ReplicatedDeployment) Promote(ctx context.Context) error {
	if err := d.setHello(ctx, slowHello); err != nil {
		return err
	}
	if err := d.leader().Do(ctx, "SENTINEL", "FAILOVER", masterName).Err(); err != nil {
		return fmt.Errorf("ask for a failover: %w", err)
	}
	return nil
}
