package process_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// startInstrumented starts servers whose clocks and disks can be interfered
// with, or skips the test where that can't be.
func startInstrumented(t *testing.T, name, persistence string) topologies.Deployment {
	t.Helper()
	runtest.NeedCompiler(t)
	d := runtest.Start(t, runtest.Servers().(topologies.Instrumenter).Instrumented(), name, topologies.Options{Persistence: persistence})
	require.Empty(t, d.Unsupported())
	return d
}

func TestAClockIsOffOnce(t *testing.T) {
	t.Parallel()
	d := startInstrumented(t, topologies.Single, "")
	s, ctx := d.Server("redis-1"), within(t)
	require.NoError(t, past(s).Set(ctx, "k", 1, 2*time.Minute).Err())
	i, err := fault(t, d, "clock-forward", "redis-1", "by", "180000").Inject(ctx)
	require.NoError(t, err)
	require.Zero(t, past(s).Exists(ctx, "k").Val(), "its lease is over")
	_, err = fault(t, d, "clock-freeze", "redis-1").Inject(ctx)
	require.ErrorContains(t, err, "off already")
	require.Zero(t, past(s).Exists(ctx, "k").Val(), "the fault that was refused left the other alone")
	_, err = i.Heal(ctx)
	require.NoError(t, err)
	for _, step := range []faults.Step{
		{Fault: "clock-forward", Params: map[string]string{"by": "1"}},
		{Fault: "clock-rate", Params: map[string]string{"percent": "0"}},
		{Fault: "clock-rate", Params: map[string]string{"percent": "-100"}},
		{Fault: "clock-rate", Params: map[string]string{"percent": "-200"}},
	} {
		step.Target = "redis-1"
		_, err := faults.Environment{Topology: d.Topology(), Script: true}.Resolve(step)
		require.ErrorContains(t, err, step.Fault+": ")
	}
	require.ErrorContains(t, d.Instruments("redis-1").Set(0, -1), "backwards")
}

// A sentinel whose clock jumps knows no TIME, and goes into TILT.
func TestTheClockOfASentinel(t *testing.T) {
	t.Parallel()
	d := startInstrumented(t, topologies.Sentinels, "")
	s := d.Server("sentinel-1")
	tilt := func(want string) {
		t.Helper()
		ctx := within(t)
		require.NoError(t, await.Until(ctx, func() error {
			info, err := past(s).InfoMap(ctx, "sentinel").Result()
			if now := info["Sentinel"]["sentinel_tilt"]; err == nil && now != want {
				err = fmt.Errorf("its tilt is %s", now)
			}
			return err
		}))
	}
	period := func(ms int) { require.NoError(t, past(s).Do(within(t), "SENTINEL", "DEBUG", "TILT-PERIOD", ms).Err()) }
	tilt("0")
	period(60_000) // long enough to be seen
	i, err := fault(t, d, "clock-forward", "sentinel-1", "by", "3600000").Inject(within(t))
	require.NoError(t, err)
	tilt("1")
	_, err = i.Heal(within(t))
	require.NoError(t, err)
	period(500)
	tilt("0")
	require.NoError(t, d.AwaitReady(within(t)))
}

func TestAPowerCutTakesWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		persistence string
		stalls      bool // its disk can stall
		answers     bool // it answers writes while it does
		keeps       bool // it keeps what it answered
	}{
		{topologies.PersistNo, false, true, false},
		{topologies.PersistEverySec, true, true, false},
		{topologies.PersistAlways, true, false, true},
	} {
		t.Run(tt.persistence, func(t *testing.T) {
			t.Parallel()
			d := startInstrumented(t, topologies.Single, tt.persistence)
			ctx := within(t)
			s := d.Server("redis-1")
			set := func(key string) error { return past(s).Set(ctx, key, 1, 0).Err() }
			has := func(key string) bool {
				n, err := past(s).Exists(ctx, key).Result()
				require.NoError(t, err)
				return n == 1
			}
			process := func() string {
				info, err := past(s).InfoMap(ctx, "server").Result()
				require.NoError(t, err)
				return info["Server"]["process_id"]
			}
			cut := func() string {
				i, err := fault(t, d, "power-cut", "redis-1").Inject(ctx)
				require.NoError(t, err)
				require.Nil(t, i.Heal)
				return i.Effect
			}
			require.NoError(t, set("first"))
			if tt.keeps {
				require.Contains(t, cut(), "lost power, and 0 bytes")
				require.True(t, has("first"), "what was answered was synced")
			}
			i, err := fault(t, d, "stall-disk", "redis-1").Inject(ctx)
			if !tt.stalls {
				require.ErrorContains(t, err, "it syncs nothing")
				require.NotContains(t, cut(), "and 0 bytes")
				require.False(t, has("first"))
				return
			}
			require.NoError(t, err)
			if tt.answers {
				require.NoError(t, set("second"))
			} else {
				require.Error(t, s.Observer().Set(ctx, "second", 1, 0).Err())
			}
			cut()
			require.False(t, has("second"), "it was never synced")
			_, err = i.Heal(ctx)
			require.NoError(t, err)
			require.NoError(t, set("third"))
			require.NoError(t, d.AwaitReady(ctx))
			before := process()
			_, err = fault(t, d, "shutdown", "redis-1").Inject(ctx)
			require.NoError(t, err)
			require.NotEqual(t, before, process())
			require.True(t, has("third"), "it ended in order")
			cut()
			require.True(t, has("third"), "what it had at its end was synced")
		})
	}
}

// What was synced is known of more files than there is room for at once: those
// that are gone make room, and leave nothing to those that get their inodes.
func TestAPowerCutAfterManyFilesTakesNothingThatWasSynced(t *testing.T) {
	t.Parallel()
	d := startInstrumented(t, topologies.Single, topologies.PersistAlways)
	ctx := within(t)
	s := d.Server("redis-1")
	for i := range 150 { // each rewrite has a base, an increment and a manifest
		require.NoError(t, past(s).Set(ctx, fmt.Sprint("key-", i), i, 0).Err())
		require.NoError(t, await.Until(ctx, func() error { return s.Observer().BgRewriteAOF(ctx).Err() }))
		require.NoError(t, await.Until(ctx, func() error {
			info, err := s.Observer().InfoMap(ctx, "persistence").Result()
			if err == nil && info["Persistence"]["aof_rewrite_in_progress"] != "0" {
				err = errors.New("it rewrites its file")
			}
			return err
		}))
	}
	require.NoError(t, past(s).Set(ctx, "last", 1, 0).Err())
	i, err := fault(t, d, "power-cut", "redis-1").Inject(ctx)
	require.NoError(t, err)
	require.Contains(t, i.Effect, "and 0 bytes that were not synced; it answers again with 151 keys")
}

// A sync that waited is not awaited once its server is gone.
func TestADiskThatStallsIsMendedAfterItsServerWasKilled(t *testing.T) {
	t.Parallel()
	d := startInstrumented(t, topologies.Single, topologies.PersistAlways)
	s := d.Server("redis-1")
	i, err := fault(t, d, "stall-disk", "redis-1").Inject(within(t))
	require.NoError(t, err)
	require.NoError(t, s.Kill(within(t)))
	effect, err := i.Heal(within(t))
	require.NoError(t, err)
	require.Contains(t, effect, "waits for its disk no longer")
	require.NoError(t, s.Restart(within(t)))
	require.NoError(t, past(s).Set(within(t), "k", 1, 0).Err(), "its disk is as it was")
	require.NoError(t, d.AwaitReady(within(t)))
}

func TestWithoutACompilerNothingStarts(t *testing.T) {
	runtest.NeedStore(t, topologies.StoreRedis)
	binary, err := process.Find(t.Context(), topologies.StoreRedis)
	require.NoError(t, err)
	t.Setenv(process.BinaryVariable, binary.Path)
	t.Setenv("PATH", t.TempDir())
	topology, err := topologies.ByName("single")
	require.NoError(t, err)
	_, err = process.Backend{}.Instrumented().Start(t.Context(), topology)
	require.ErrorIs(t, err, topologies.ErrMissing)
	require.ErrorContains(t, err, "no C compiler")
}
