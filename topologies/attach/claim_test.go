//go:build linux

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

// claims are the claims that the servers of an installation know of.
func claims(t *testing.T, i *installation) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range i.topology.Of(topologies.Redis) {
		if i.running[name] == nil {
			continue
		}
		c := i.client(name)
		defer c.Close()
		keys, err := c.Keys(within(t), "lockchaos:claim*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			found[name] = key
		}
	}
	return found
}

func anotherRunDrivesIt(t *testing.T, i *installation) {
	t.Helper()
	name := i.topology.Name
	d := attached(t, i, i.backend())
	require.NotEmpty(t, claims(t, i))
	b := i.backend()
	b.Yes = false
	for _, b := range []attach.Backend{i.backend(), b} {
		refused(t, b, name, "another run drives this deployment: process ")
		refused(t, b, name, "its claim ends by itself within 15s")
	}
	require.NotEmpty(t, claims(t, i), "the refused one took nothing away")
	require.NoError(t, d.Close())
	require.Empty(t, claims(t, i))
	attached(t, i, i.backend())
}

func ofTwoRunsThatBeginAtOnceOneDrives(t *testing.T, i *installation) {
	t.Helper()
	other := i.backend()
	slices.Reverse(other.Endpoints) // the order is no one's to choose
	type started struct {
		d   topologies.Deployment
		err error
	}
	results := make(chan started, 2)
	for _, b := range []attach.Backend{i.backend(), other} {
		go func() {
			d, err := b.Start(within(t), topologies.Topology{Name: topologies.Independent})
			results <- started{d, err}
		}()
	}
	one, two := <-results, <-results
	if one.err != nil {
		one, two = two, one
	}
	require.NoError(t, one.err)
	require.ErrorIs(t, two.err, attach.ErrUsage)
	require.ErrorContains(t, two.err, "another run drives this deployment")
	require.NoError(t, one.d.Close())
	require.Empty(t, claims(t, i))
}

func TestAClaimOutlivesAFailoverOfACluster(t *testing.T) {
	t.Parallel()
	i := install(t, topologies.Cluster)
	ctx := within(t)
	d := attached(t, i, i.backend())
	shard := d.Topology().Shards()[0]
	old := topologiestest.MasterOf(ctx, t, d, shard)
	require.NoError(t, d.Arm(ctx))
	i.kill(i.named(d, old))
	master, err := d.AwaitMaster(ctx, shard, old)
	require.NoError(t, err)
	require.NoError(t, d.Disarm(ctx))
	require.Contains(t, claims(t, i), i.named(d, master))
}

// A claim that servers have forgotten is made again, and one that somebody else
// has made meanwhile is seen.
func aClaimIsRepeated(t *testing.T, i *installation) {
	t.Helper()
	ctx := within(t)
	d := attached(t, i, i.backend())
	owner := i.client("redis-1")
	defer owner.Close()
	left := owner.PTTL(ctx, "lockchaos:claim").Val()
	require.Positive(t, left, "that of a dead run ends by itself")
	require.LessOrEqual(t, left, 15*time.Second)
	require.NoError(t, owner.Del(ctx, "lockchaos:claim").Err())
	require.NoError(t, await.Until(ctx, func() error { return owner.Get(ctx, "lockchaos:claim").Err() }))
	require.NoError(t, d.AwaitReady(ctx))

	require.NoError(t, owner.Set(ctx, "lockchaos:claim", "somebody else", time.Minute).Err())
	require.NoError(t, await.Until(ctx, func() error {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if err := d.AwaitReady(short); err == nil || !strings.Contains(err.Error(), "another run drives it now: somebody else") {
			return fmt.Errorf("it is not seen yet: %w", errors.Join(err))
		}
		return nil
	}))
	require.NoError(t, d.Close())
	require.Equal(t, "somebody else", owner.Get(ctx, "lockchaos:claim").Val(), "it is not ours to give up")
	require.NoError(t, owner.Del(ctx, "lockchaos:claim").Err())
}

// refusesWrites has the owner give every Redis server a command; what they refuse then, and won't ever grant, is said at
// once. After that the user chaos is given a right again, if it is not empty.
func refusesWrites(want, again string, command ...any) func(t *testing.T, i *installation) {
	return func(t *testing.T, i *installation) {
		t.Helper()
		every := func(command ...any) {
			for _, name := range i.topology.Of(topologies.Redis) {
				c := i.client(name)
				defer c.Close()
				require.NoError(t, c.Do(within(t), command...).Err())
			}
		}
		every(command...)
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second) // a wait until they are ready goes on for a minute
		defer cancel()
		_, err := i.backend().Start(ctx, topologies.Topology{Name: i.topology.Name})
		require.ErrorIs(t, err, attach.ErrUsage)
		require.ErrorContains(t, err, want)
		require.NoError(t, ctx.Err())
		require.Empty(t, claims(t, i))
		if again != "" {
			every("ACL", "SETUSER", "chaos", again)
		}
	}
}
