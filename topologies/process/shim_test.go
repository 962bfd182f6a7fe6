package process_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// startInstrumented boots a topology whose clocks and disks can be interfered
// with, or skips the test where that can't be.
func startInstrumented(t *testing.T, topology topologies.Topology) topologies.Deployment {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	runtest.NeedCompiler(t)
	d, err := process.Backend{}.Instrumented().Start(t.Context(), topology)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.Empty(t, left(d))
	})
	require.Empty(t, d.Unsupported())
	return d
}

// ttl is a look at how long a key has to live, taken within one moment.
func ttl(ctx context.Context, s topologies.Server) (time.Duration, error) {
	return past(s).PTTL(ctx, "k").Result()
}

func TestFaultsOfClocksKeepTheContract(t *testing.T) {
	t.Parallel()
	topology, err := topologies.ByName("single")
	require.NoError(t, err)
	d := startInstrumented(t, topology)
	s := d.Server("redis-1")
	c := d.Clock("redis-1")
	// A key is written for two minutes before each fault; the fault shows in
	// how long it then has to live.
	whole := func(ctx context.Context) error {
		if err := d.AwaitReady(ctx); err != nil {
			return err
		}
		if err := past(s).Set(ctx, "k", 1, 2*time.Minute).Err(); err != nil {
			return err
		}
		if left, err := ttl(ctx, s); err != nil || left > 2*time.Minute {
			return fmt.Errorf("the key has %v to live (%w)", left, err)
		}
		return nil
	}
	within := func(least, most time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			if left, err := ttl(ctx, s); err != nil || left < least || left > most {
				return fmt.Errorf("the key has %v to live, and should have from %v to %v (%w)", left, least, most, err)
			}
			return nil
		}
	}
	frozen := func(ctx context.Context) error {
		before, err := ttl(ctx, s)
		if err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond) // what is tested is that time does not pass
		if after, err := ttl(ctx, s); err != nil || after != before {
			return fmt.Errorf("the key had %v to live, and has %v (%w)", before, after, err)
		}
		return nil
	}
	// The longer it lasts, the more it shows, and at last more than it takes to ask.
	ahead := func(sign int) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			return await.Until(ctx, func() error {
				before := time.Now()
				at, err := past(s).Time(ctx).Result()
				after := time.Now()
				if err == nil && (sign > 0 && !at.After(after) || sign < 0 && !at.Before(before)) {
					err = fmt.Errorf("between %v and %v it says %v", before, after, at)
				}
				return err
			})
		}
	}
	tests := []struct {
		fault  faults.Fault
		broken func(context.Context) error
	}{
		{fault(t, d, "clock-forward", "redis-1", "by", "60000"), within(time.Second, time.Minute)},
		{fault(t, d, "clock-back", "redis-1", "by", "3600000"), within(time.Hour+time.Minute, time.Hour+2*time.Minute)},
		{fault(t, d, "clock-rate", "redis-1", "percent", "50"), ahead(+1)},
		{fault(t, d, "clock-rate", "redis-1", "percent", "-50"), ahead(-1)},
		{fault(t, d, "clock-freeze", "redis-1"), frozen},
	}
	for _, tt := range tests {
		t.Run(tt.fault.Name(), func(t *testing.T) {
			faultstest.Run(t, tt.fault, tt.broken, whole)
		})
	}
	t.Run("a step over the end of a lease", func(t *testing.T) {
		require.NoError(t, whole(t.Context()))
		i, err := fault(t, d, "clock-forward", "redis-1", "by", "180000").Inject(t.Context())
		require.NoError(t, err)
		require.Zero(t, s.Observer().Exists(t.Context(), "k").Val())
		_, err = fault(t, d, "clock-freeze", "redis-1").Inject(t.Context())
		require.ErrorContains(t, err, "off already")
		require.Zero(t, s.Observer().Exists(t.Context(), "k").Val(), "the fault that was refused left the other alone")
		_, err = i.Heal(t.Context())
		require.NoError(t, err)
	})
	t.Run("what can't be meant", func(t *testing.T) {
		for _, step := range []faults.Step{
			{Fault: "clock-forward", Params: map[string]string{"by": "1"}},
			{Fault: "clock-rate", Params: map[string]string{"percent": "0"}},
			{Fault: "clock-rate", Params: map[string]string{"percent": "-100"}},
			{Fault: "clock-rate", Params: map[string]string{"percent": "-200"}},
		} {
			step.Target = "redis-1"
			_, err := faults.New(faults.Site{Deployment: d}, step)
			require.ErrorContains(t, err, step.Fault+": ")
		}
		require.ErrorContains(t, c.Set(0, -1), "backwards")
	})
}

// A sentinel whose clock jumps knows no TIME, and goes into TILT.
func TestTheClockOfASentinel(t *testing.T) {
	t.Parallel()
	topology, err := topologies.ByName("sentinel")
	require.NoError(t, err)
	d := startInstrumented(t, topology)
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
			topology, err := topologies.New("single", topologies.Options{Persistence: tt.persistence})
			require.NoError(t, err)
			d := startInstrumented(t, topology)
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

func TestStallingADiskKeepsTheContract(t *testing.T) {
	t.Parallel()
	topology, err := topologies.New("single", topologies.Options{Persistence: topologies.PersistAlways})
	require.NoError(t, err)
	d := startInstrumented(t, topology)
	s := d.Server("redis-1")
	unanswered := func(ctx context.Context) error {
		if err := s.Observer().Set(ctx, "k", 1, 0).Err(); err == nil {
			return errors.New("a write was answered")
		}
		return nil
	}
	faultstest.Run(t, fault(t, d, "stall-disk", "redis-1"), unanswered, d.AwaitReady)
}

// What was synced is known of more files than there is room for at once: those
// that are gone make room, and leave nothing to those that get their inodes.
func TestAPowerCutAfterManyFilesTakesNothingThatWasSynced(t *testing.T) {
	t.Parallel()
	topology, err := topologies.New("single", topologies.Options{Persistence: topologies.PersistAlways})
	require.NoError(t, err)
	d := startInstrumented(t, topology)
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
	topology, err := topologies.New("single", topologies.Options{Persistence: topologies.PersistAlways})
	require.NoError(t, err)
	d := startInstrumented(t, topology)
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
	binary, err := process.FindBinary(t.Context())
	require.NoError(t, err)
	t.Setenv(process.BinaryVariable, binary.Path)
	t.Setenv("PATH", t.TempDir())
	topology, err := topologies.ByName("single")
	require.NoError(t, err)
	_, err = process.Backend{}.Instrumented().Start(t.Context(), topology)
	require.ErrorIs(t, err, topologies.ErrMissing)
	require.ErrorContains(t, err, "no C compiler")
}
