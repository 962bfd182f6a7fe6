package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// An elector is how the servers of a topology agree on who its masters are, and replace them.
type elector interface {
	// who are those that vote, in words.
	who() string
	// votes counts whom the voters take for the master of a shard, and how
	// many of them make a majority.
	votes(ctx context.Context, shard string) (votes map[string]int, majority int)
	// agree fails unless every voter sees these masters, by shard, and all of
	// their replicas well.
	agree(ctx context.Context, masters map[string]string) error
	arm(ctx context.Context) error
	disarm(ctx context.Context) error
	promote(ctx context.Context, shard string) error
	// changed tells of a new master.
	changed(master string)
}

// steady is what electors have in common that have one speed.
type steady struct{}

func (steady) arm(context.Context) error    { return nil }
func (steady) disarm(context.Context) error { return nil }
func (steady) changed(string)               {}

// check refuses what is no shard whose master can change.
func (d *deployment) check(shard string) error {
	if shards := d.topology.Shards(); !slices.Contains(shards, shard) {
		return names.Unknown("shard", shard, shards)
	}
	return nil
}

// Master is the server that a majority takes for a shard's master and that
// takes itself for one.
func (d *deployment) Master(ctx context.Context, shard string) (string, error) {
	if err := d.check(shard); err != nil {
		return "", err
	}
	votes, majority := d.elector.votes(ctx, shard)
	for candidate, n := range votes {
		if n < majority {
			continue
		}
		if !slices.Contains(d.topology.Members(shard), candidate) {
			return "", fmt.Errorf("%s agree on %s, which is no server of shard %s", d.elector.who(), candidate, shard)
		}
		role, err := d.role(ctx, candidate)
		if err != nil {
			return "", err
		}
		if role != topologies.Master && role != topologies.Leader {
			return "", fmt.Errorf("%s agree on %s, which calls itself a %s", d.elector.who(), candidate, role)
		}
		return candidate, nil
	}
	return "", fmt.Errorf("%s do not agree: %v", d.elector.who(), votes)
}

// AwaitMaster blocks until a majority agrees on another master than old, and the
// name leads there.
func (d *deployment) AwaitMaster(ctx context.Context, shard, old string) (string, error) {
	if err := d.check(shard); err != nil {
		return "", err
	}
	var master string
	err := await.Until(ctx, func() error {
		var err error
		if master, err = d.Master(ctx, shard); err == nil && master == old {
			err = fmt.Errorf("%s is still the master", old)
		}
		if err == nil {
			err = d.name.leadsTo(master)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("await a new master: %w", err)
	}
	d.elector.changed(master)
	return master, nil
}

// Arm makes the servers quick to replace a master that is down.
func (d *deployment) Arm(ctx context.Context) error { return d.elector.arm(ctx) }

// Disarm undoes Arm and Promote. After a failover it must come at once: the
// short limit would soon replace the new master too.
func (d *deployment) Disarm(ctx context.Context) error { return d.elector.disarm(ctx) }

// Promote asks for a failover that nothing forces.
func (d *deployment) Promote(ctx context.Context, shard string) error {
	err := d.check(shard)
	for _, needed := range []topologies.Capability{topologies.Failovers, topologies.HandOvers} {
		if why, without := d.parts.Without[needed]; without && err == nil {
			err = errors.New(why)
		}
	}
	if err == nil {
		err = d.elector.promote(ctx, shard)
	}
	if err != nil {
		return fmt.Errorf("ask for a failover: %w", err)
	}
	return nil
}

// patience is how long a server is told again what it did not answer.
const patience = 5 * time.Second

// patiently does again what timed out: on a busy machine, a server may take
// longer to answer than it takes to call it silent. Done twice, it must come to
// the same as once. A refusal that begins with a word of passing is
// tried again too: a server may take a slow one for dead.
func patiently(ctx context.Context, do func() error, passing ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return await.While(ctx, func(err error) bool {
		return timedOut(err) || slices.ContainsFunc(passing, func(p string) bool { return strings.HasPrefix(err.Error(), p) })
	}, do)
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// ask asks for a failover, patiently. If the answer was lost, one that says that
// it is under way, or over, is the answer.
func ask(ctx context.Context, do func() error, underWay string, passing ...string) error {
	lost := false
	return patiently(ctx, func() error {
		err := do()
		switch {
		case err == nil, lost && strings.HasPrefix(err.Error(), underWay):
			return nil
		case timedOut(err):
			lost = true
		}
		return err
	}, passing...)
}
