package locktests

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// scriptTime is how long the server took for the scripts that it was sent, in us.
func scriptTime(t *testing.T, rdb *redis.Client, send func()) int {
	t.Helper()
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
	send()
	stats := rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"]
	var calls, us int
	_, err := fmt.Sscanf(stats, "calls=%d,usec=%d", &calls, &us)
	require.NoError(t, err, stats)
	return us
}

// What a request costs the server hardly grows with the number of those who hold a read-write
// lock or a semaphore: thirty times as many of them cost less than ten times as much. Where a script looks at all of
// them, they cost thirty times as much.
func TestRequestsOfManyHolders(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	c := open(t, s, lock.Config{})
	m, p := c.RWMutex("orders", plainRW), c.Semaphore("orders")
	require.NoError(t, p.SetPermits(ctx, 1e6))
	const minute = 60_000
	some := func(from, to int) {
		pipe := rdb.Pipeline()
		var took []*redis.Cmd
		for i := from; i < to; i++ {
			request := "holder" + strconv.Itoa(i)
			took = append(
				took,
				script(t, "rw_acquire").Eval(ctx, pipe, []string{"lock:{orders}", "mark"}, "read", request, request, 10*minute+i, 0),
				script(t, "semaphore_acquire").Eval(ctx, pipe,
					[]string{semaphoreKey, semaphoreKey + ":grants", semaphoreKey + ":queue", semaphoreKey + ":alive", "mark"},
					request, 1, 10*minute+i, 0, minute, minute, "channel"),
			)
		}
		_, err := pipe.Exec(ctx)
		require.NoError(t, err)
		for _, one := range took {
			reply, err := one.Int64Slice()
			require.NoError(t, err)
			require.EqualValues(t, 1, reply[0])
		}
	}
	take := func(from, to int) {
		for ; from < to; from += 100 { // all at once are more than a busy server reads before the write of the client times out
			some(from, min(from+100, to))
		}
	}
	o := lock.Options{Owner: "a", Lease: long}
	requests := map[string]func(){
		"read": func() {
			h, err := m.Read().Acquire(ctx, o)
			require.NoError(t, err)
			require.NoError(t, h.Extend(ctx, 2*long))
			require.NoError(t, h.Release(ctx))
		},
		"write": func() { keptOut(t, m.Write(), "w") },
		"inspect": func() {
			_, err := m.State(ctx, "r")
			require.NoError(t, err)
		},
		"permit": func() {
			h, err := p.Lease(ctx, 1, o)
			require.NoError(t, err)
			require.NoError(t, h.Extend(ctx, 2*long))
			require.NoError(t, h.Release(ctx))
		},
	}
	// least is the least of several measurements, so that other work on the machine doesn't count.
	least := func(request func()) int {
		us := 0
		for range 5 {
			one := scriptTime(t, rdb, func() {
				for range 20 {
					request()
				}
			})
			if us == 0 || one < us {
				us = one
			}
		}
		return us
	}
	take(0, 100)
	few := map[string]int{}
	for name, request := range requests {
		few[name] = least(request)
	}
	take(100, 3_000)
	state, err := m.State(ctx, "")
	require.NoError(t, err)
	require.Equal(t, 3_000, state.Readers)
	for name, request := range requests {
		many := least(request)
		t.Logf("%s: %d us with 100 holders, %d us with 3,000", name, few[name], many)
		require.Less(t, many, 10*few[name], "%s: what it costs the server grows with the number of holders", name)
	}
}
