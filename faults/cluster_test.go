package faults_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

func TestAMovingSlotKeepsTheContract(t *testing.T) {
	runtest.NeedStore(t, topologies.StoreRedis)
	// So that nobody fails over only because the machine is busy.
	topology, err := topologies.New(topologies.Cluster, topologies.Options{NodeTimeout: time.Second})
	require.NoError(t, err)
	d, err := runtest.Backend{}.Start(t.Context(), topology)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	rdb := topologies.Clients(d.ClientOptions("zone-a"))[0]
	defer rdb.Close()
	var servers []topologies.Server
	for _, name := range topology.Of(topologies.Redis) {
		servers = append(servers, d.Server(name))
	}
	const key, value = "orders", "kept"
	require.NoError(t, rdb.Set(t.Context(), key, value, 0).Err())
	ask := func(ctx context.Context) (askings int) {
		for _, s := range servers {
			if err := s.Observer().WithTimeout(time.Minute).Exists(ctx, key).Err(); err != nil && strings.HasPrefix(err.Error(), "ASK ") {
				askings++
			}
		}
		return askings
	}
	broken := func(ctx context.Context) error {
		if n := ask(ctx); n != 1 {
			return errors.New("no server sends on who asks for the key")
		}
		if got, err := rdb.Get(ctx, key).Result(); err != nil || got != value {
			return errors.Join(err, errors.New("a client that follows finds "+got))
		}
		return nil
	}
	whole := func(ctx context.Context) error {
		if n := ask(ctx); n != 0 {
			return errors.New("the move is not finished")
		}
		got, err := rdb.Get(ctx, key).Result()
		if err == nil && got != value {
			err = errors.New("it has " + got)
		}
		return errors.Join(err, d.AwaitReady(ctx))
	}
	faultstest.Run(t, built(t, d, "migrate-slot", "", "key", key), broken, whole)

	_, err = faults.MigrateSlot(servers[:1], key).Inject(t.Context())
	require.ErrorContains(t, err, "no master to move from")
}
