package locktests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// mutexModel is a mutex in memory, fenced or not. Its time stands still unless pass is
// called.
type mutexModel struct {
	now     int
	owner   string
	grants  map[string]int // by request: when it ends, or ended
	lingers bool           // the lock is there for a moment after the last of them
	handed  string         // the client that was handed the lock, if its holder was
	marks   map[string]bool
	wasHeld map[string]bool // by the mark
	queue   []modelTicket
	token   int64 // of the present holder, if it was seen
	highest int64 // of all that were seen
}

// modelTicket is who waits.
type modelTicket struct {
	client, request, owner string
	lease, life            int
}

func (t modelTicket) String() string {
	return ticket(t.request, t.client, t.owner, t.lease*minute, t.life)
}

const minute, tokenLife = 60_000, 15_000

// held counts the grants that aren't over, and forgets a lock that is gone.
func (m *mutexModel) held() (n int) {
	last := -1
	for _, ends := range m.grants {
		last = max(last, ends)
		if ends > m.now {
			n++
		}
	}
	if last < m.now || last == m.now && !m.lingers {
		m.drop()
	}
	return n
}

func (m *mutexModel) drop() {
	clear(m.grants)
	m.handed, m.lingers = "", false
}

// acquire says whether the request is granted, and how many grants the owner
// has then.
func (m *mutexModel) acquire(t modelTicket, lease int, waits bool) (granted bool, holds int) {
	refuse := func() (bool, int) {
		if waits && !slices.Contains(m.queue, t) {
			m.queue = append(m.queue, t)
		}
		return false, 0
	}
	held := m.held()
	switch {
	case m.marks[t.request]:
		return false, 0
	case held > 0 && m.owner != t.owner:
		return refuse()
	case held == 0:
		if !waits || m.handed != t.client {
			m.queue = slices.DeleteFunc(m.queue, func(o modelTicket) bool { return o.client == m.handed })
		}
		m.drop()
		if len(m.queue) > 0 && (!waits || m.queue[0] != t) {
			m.handOver()
			return refuse()
		}
	}
	if waits {
		m.queue = slices.DeleteFunc(m.queue, func(o modelTicket) bool { return o == t })
	}
	for request, ends := range m.grants {
		if ends <= m.now {
			delete(m.grants, request)
		}
	}
	m.owner, m.lingers = t.owner, false
	m.grants[t.request] = max(m.grants[t.request], m.now+lease)
	return true, len(m.grants)
}

// release leaves a mark as the mode says: 0 none, and it finds none; 1 always, and takes the ticket
// back; 2 if it was held.
func (m *mutexModel) release(t modelTicket, mode int) bool {
	held := m.held()
	ends, there := m.grants[t.request]
	if mode != 0 && !there && m.marks[t.request] {
		return m.wasHeld[t.request]
	}
	is := there && ends > m.now
	if mode == 1 {
		m.queue = slices.DeleteFunc(m.queue, func(o modelTicket) bool { return o == t })
	}
	if mode != 0 {
		m.marks[t.request], m.wasHeld[t.request] = is && mode == 2 || mode == 1, is
	}
	delete(m.grants, t.request)
	switch {
	case !there:
	case is && held > 1 || !is && held > 0:
		m.lingers = false
	default:
		m.drop()
		m.handOver()
	}
	return is
}

// handOver grants a free lock to the first ticket.
func (m *mutexModel) handOver() {
	if len(m.queue) == 0 {
		return
	}
	t := m.queue[0]
	m.queue = m.queue[1:]
	m.owner, m.handed, m.lingers, m.token = t.owner, t.client, true, 0
	m.grants[t.request] = m.now + t.lease
}

// passMutex lets a number of ms pass for a lock.
var passMutex = redis.NewScript(`
local fields = redis.call('TYPE', KEYS[1]).ok == 'hash' and redis.call('HGETALL', KEYS[1]) or {}
for i = 1, #fields, 2 do
  if fields[i] ~= 'owner' and fields[i] ~= 'token' and fields[i] ~= 'inbox' then redis.call('HINCRBY', KEYS[1], fields[i], -ARGV[1]) end
end
local ttl = redis.call('PTTL', KEYS[1])
if ttl >= 0 then redis.call('PEXPIRE', KEYS[1], ttl - ARGV[1]) end
return 1`)

// Random requests, copies of old ones, extensions, releases and time, against
// the model: every reply and the grants on the server must be the same, and
// tokens grow.
func TestMutexScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	script := func(name string) *redis.Script {
		// Those without a ticket wait longer for their turn than the test lasts.
		return redis.NewScript(strings.ReplaceAll(lock.Scripts()[name], "noTicket, moment = 1000", "noTicket, moment = 3600000"))
	}
	acquire, extend, release, force := script("acquire"), script("extend"), script("release"), script("force")
	const key = "lock:{orders}"

	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		require.NoError(rt, rdb.FlushAll(ctx).Err())
		m := &mutexModel{grants: map[string]int{}, marks: map[string]bool{}, wasHeld: map[string]bool{}}
		forced := 0
		life := rapid.SampledFrom([]int{0, tokenLife}).Draw(rt, "life of a token")
		pick := func(rt *rapid.T) modelTicket {
			i := rapid.IntRange(0, 5).Draw(rt, "request")
			return modelTicket{client: fmt.Sprintf("c%d", i%4), request: fmt.Sprintf("r%d", i), owner: string(rune('a' + i%3)), lease: 1 + i%3, life: life}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(rt *rapid.T) {
				r := pick(rt)
				lease, ticket := r.lease, ""
				waits := rapid.Bool().Draw(rt, "waits")
				if waits {
					ticket = r.String()
				} else {
					lease = rapid.IntRange(1, 4).Draw(rt, "lease")
				}
				reentered := m.held() > 0
				keys := plainKeys(key, r.request)
				free := rdb.Exists(ctx, keys[0], keys[1], keys[3]).Val() == 0
				granted, holds := m.acquire(r, lease, waits)
				reply := acquire.Run(ctx, rdb, keys, held(r.request, r.owner), lease*minute, ticket, life)
				require.NoError(rt, reply.Err())
				got, err := reply.Int64Slice()
				_, number := reply.Val().(int64)
				require.Equal(rt, free && life == 0, number, "what no client holds, waits for or has marked is granted at once")
				if number {
					got, err = []int64{reply.Val().(int64), 1, 0}, nil
				}
				require.NoError(rt, err)
				require.Equal(rt, granted, got[0] == 1, "%v", got)
				if !granted {
					return
				}
				require.Equal(rt, int64(holds), got[1])
				if life == 0 {
					require.Zero(rt, got[2])
					return
				}
				if reentered && m.token > 0 {
					require.Equal(rt, m.token, got[2], "a re-entry keeps its token")
				} else {
					require.Greater(rt, got[2], m.highest)
				}
				m.token, m.highest = got[2], max(m.highest, got[2])
			},
			"extend": func(rt *rapid.T) {
				request := pick(rt).request
				d := rapid.IntRange(1, 4).Draw(rt, "by")
				m.held()
				ends, there := m.grants[request]
				held := there && ends > m.now
				got, err := extend.Run(ctx, rdb, []string{key}, request, d*minute).Bool()
				if err != redis.Nil { //nolint:errorlint // go-redis returns it bare
					require.NoError(rt, err)
				}
				require.Equal(rt, held, got)
				if held {
					m.grants[request] = max(ends, m.now+d)
					m.lingers = false
				}
			},
			"release": func(rt *rapid.T) {
				r := pick(rt)
				mode := rapid.IntRange(0, 2).Draw(rt, "mode")
				keys, args := plainKeys(key, r.request), []any{held(r.request, r.owner), mode, ""}
				switch mode {
				case 0:
					keys, args = keys[:3], args[:1]
				case 1:
					args[2] = r.String()
				}
				released := m.release(r, mode)
				got, err := release.Run(ctx, rdb, keys, args...).Int()
				require.NoError(rt, err)
				require.Equal(rt, released, got == 1)
			},
			"force": func(rt *rapid.T) {
				forced++
				m.held()
				held := m.held() > 0
				there := len(m.grants) > 0 // or lingers
				for range 2 {              // the second one is a copy
					request := fmt.Sprint("forced", forced)
					got, err := force.Run(ctx, rdb, plainKeys(key, request), "channel").Int()
					require.NoError(rt, err)
					require.Equal(rt, held, got == 1)
				}
				if there {
					m.drop()
					m.handOver()
				}
			},
			"pass": func(rt *rapid.T) {
				d := rapid.IntRange(1, 3).Draw(rt, "time")
				require.NoError(rt, passMutex.Run(ctx, rdb, []string{key}, d*minute).Err())
				m.now += d
			},
			"": func(rt *rapid.T) {
				queue := slices.DeleteFunc(rdb.ZRange(ctx, key+":tickets", 0, -1).Val(), func(t string) bool { return t == "-" })
				require.Len(rt, queue, len(m.queue))
				for i, t := range m.queue {
					require.Equal(rt, t.String(), queue[i])
				}
				on := redistest.Fields(ctx, rt, rdb, key)
				if m.held() == 0 {
					return // what is over may stay until it is looked at
				}
				require.Equal(rt, m.owner, on["owner"])
				at := rdb.Time(ctx).Val().UnixMilli()
				for request, ends := range m.grants {
					if ends <= m.now {
						continue
					}
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
