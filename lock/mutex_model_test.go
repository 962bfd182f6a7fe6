package lock_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock/internal/redistest"
)

// mutexModel is a fenced mutex in memory. Its time stands still unless pass is
// called.
type mutexModel struct {
	now     int
	owner   string
	grants  map[string]int // by request: when it ends
	marks   map[string]bool
	token   int64 // of the present holder
	highest int64 // of all that were given
}

// expire forgets the grants that are over.
func (m *mutexModel) expire() {
	for request, ends := range m.grants {
		if ends <= m.now {
			delete(m.grants, request)
		}
	}
}

// acquire says whether the request is granted, and how many grants the owner
// has then.
func (m *mutexModel) acquire(request, owner string, lease int) (granted bool, holds int) {
	m.expire()
	if len(m.grants) > 0 && m.owner != owner || m.marks[request] {
		return false, 0
	}
	m.owner = owner
	m.grants[request] = max(m.grants[request], m.now+lease)
	return true, len(m.grants)
}

// passMutex lets a number of ms pass for a lock.
var passMutex = redis.NewScript(`
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] ~= 'owner' and fields[i] ~= 'token' then redis.call('HINCRBY', KEYS[1], fields[i], -ARGV[1]) end
end
local ttl = redis.call('PTTL', KEYS[1])
if ttl >= 0 then redis.call('PEXPIRE', KEYS[1], ttl - ARGV[1]) end
return 1`)

// Random requests, copies of old ones, extensions, releases and time, against
// the model: every reply and the grants on the server must be the same, and
// tokens grow.
func TestMutexScriptsDoWhatTheModelDoes(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	script := func(name string) *redis.Script {
		source, err := os.ReadFile("scripts/" + name + ".lua")
		require.NoError(t, err)
		return redis.NewScript(string(source))
	}
	acquire, extend, release, force := script("acquire"), script("extend"), script("release"), script("force")
	const key, minute, life = "lock:{orders}", 60_000, 15_000
	mark := func(request string) string { return key + ":released:" + request }

	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		require.NoError(rt, rdb.FlushAll(ctx).Err())
		m := &mutexModel{grants: map[string]int{}, marks: map[string]bool{}}
		forced := 0
		pick := func(rt *rapid.T) (request, owner string) {
			i := rapid.IntRange(0, 5).Draw(rt, "request")
			return fmt.Sprintf("r%d", i), string(rune('a' + i%2))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(rt *rapid.T) {
				request, owner := pick(rt)
				lease := rapid.IntRange(1, 4).Draw(rt, "lease")
				m.expire()
				reentered := len(m.grants) > 0
				granted, holds := m.acquire(request, owner, lease)
				got, err := acquire.Run(ctx, rdb, []string{key, mark(request), key + ":token"}, owner, request, lease*minute, life).Int64Slice()
				require.NoError(rt, err)
				require.Equal(rt, granted, got[0] == 1, "%v", got)
				if !granted {
					return
				}
				require.Equal(rt, int64(holds), got[1])
				if reentered {
					require.Equal(rt, m.token, got[2], "a re-entry keeps its token")
				} else {
					require.Greater(rt, got[2], m.highest)
				}
				m.token, m.highest = got[2], max(m.highest, got[2])
			},
			"extend": func(rt *rapid.T) {
				request, _ := pick(rt)
				d := rapid.IntRange(1, 4).Draw(rt, "by")
				m.expire()
				_, held := m.grants[request]
				got, err := extend.Run(ctx, rdb, []string{key}, request, d*minute).Bool()
				if err != redis.Nil { //nolint:errorlint // go-redis returns it bare
					require.NoError(rt, err)
				}
				require.Equal(rt, held, got)
				if held {
					m.grants[request] = max(m.grants[request], m.now+d)
				}
			},
			"release": func(rt *rapid.T) {
				request, _ := pick(rt)
				withdraw := rapid.IntRange(0, 1).Draw(rt, "withdraw")
				m.expire()
				_, held := m.grants[request]
				got, err := release.Run(ctx, rdb, []string{key, mark(request)}, request, life, key+":released", withdraw).Int()
				require.NoError(rt, err)
				require.Equal(rt, held || m.marks[request], got == 1)
				delete(m.grants, request)
				m.marks[request] = m.marks[request] || held || withdraw == 1
			},
			"force": func(rt *rapid.T) {
				forced++
				m.expire()
				held := len(m.grants) > 0
				for range 2 { // the second one is a copy
					got, err := force.Run(ctx, rdb, []string{key, mark(fmt.Sprint("forced", forced))}, key+":released", life).Int()
					require.NoError(rt, err)
					require.Equal(rt, held, got == 1)
				}
				clear(m.grants)
			},
			"pass": func(rt *rapid.T) {
				d := rapid.IntRange(1, 3).Draw(rt, "time")
				require.NoError(rt, passMutex.Run(ctx, rdb, []string{key}, d*minute).Err())
				m.now += d
			},
			"": func(rt *rapid.T) {
				m.expire()
				on, err := rdb.HGetAll(ctx, key).Result()
				require.NoError(rt, err)
				delete(on, "token")
				if len(m.grants) == 0 {
					return // what is over may stay until it is looked at
				}
				require.Equal(rt, m.owner, on["owner"])
				at := rdb.Time(ctx).Val().UnixMilli()
				for request, ends := range m.grants {
					var got int64
					_, err := fmt.Sscan(on[request], &got)
					require.NoError(rt, err, request)
					// Real time passes too, but never half a minute.
					require.InDelta(rt, int64(ends-m.now)*minute, got-at, minute/2)
				}
				ends := slices.Max(slices.Collect(maps.Values(m.grants)))
				require.InDelta(rt, (ends-m.now)*minute, rdb.PTTL(ctx, key).Val().Milliseconds(), minute/2)
			},
		})
	})
}
