package locktests

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

const (
	fairLock      = "lock:{orders}"
	fairPlaces    = fairLock + ":places"
	fairDeadlines = fairLock + ":deadlines"
	fairChannel   = fairLock + ":released"
)

// places are the requests in the queue.
func places(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	all, err := rdb.ZRange(t.Context(), fairPlaces, 0, -1).Result()
	require.NoError(t, err)
	return all
}

// Redisson #3004: a waiter that waits for longer than its time in the queue
// loses its place, and is put at the end.
func TestFairMutexKeepsThePlaceOfAWaiterThatIsAlive(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	const heartbeat = 2 * time.Second
	c := open(t, s, lock.Config{Heartbeat: heartbeat})
	h := acquire(t, c.Fair(), "a", long)
	old := granting(t.Context(), t, c.Fair(), lock.Options{Lease: long, Wait: lock.Forever})
	redistest.Await(t, "a place", func() bool { return len(places(t, rdb)) == 1 })
	request := places(t, rdb)[0]
	place := rdb.ZScore(t.Context(), fairPlaces, request).Val()
	deadline := func() float64 { return rdb.ZScore(t.Context(), fairDeadlines, request).Val() }
	first := deadline()
	redistest.Await(t, "two heartbeats to pass", func() bool {
		return deadline() > first+2*float64(heartbeat.Milliseconds())
	})
	newer := granting(t.Context(), t, c.Fair(), lock.Options{Lease: long, Wait: lock.Forever})
	redistest.Await(t, "another place", func() bool { return len(places(t, rdb)) == 2 })
	require.InDelta(t, place, rdb.ZScore(t.Context(), fairPlaces, request).Val(), 0)
	require.NoError(t, h.Release(t.Context()))
	for _, next := range []<-chan *lock.Hold{old, newer} { // the other one waits
		h := <-next
		require.NotNil(t, h)
		require.NoError(t, h.Release(t.Context()))
	}
}

// Redisson #2278: a fair lock with many waiters stalls. Those that died, of which each costs another
// minute there, are passed by together, when their time is up.
func TestFairMutexServesManyInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	var clients []*lock.Client
	for range 4 {
		clients = append(clients, open(t, s, lock.Config{Heartbeat: long})) // no client is passed by
	}
	h := acquire(t, clients[0].Fair(), "a", long)
	const n, dead = 200, 10
	var mu sync.Mutex
	var served []string
	var waiters sync.WaitGroup
	for i := range n {
		waiters.Go(func() {
			h, err := clients[i%len(clients)].FairMutex("orders").Acquire(t.Context(), within(lock.Forever, lock.Options{}))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			served = append(served, h.Lease().Request)
			mu.Unlock()
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Await(t, "all to have a place", func() bool { return len(places(t, rdb)) == n })
	want := places(t, rdb)
	waiting, err := clients[0].FairMutex("orders").Waiters(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, waiting)
	end := float64(rdb.Time(t.Context()).Val().Add(2 * time.Second).UnixMilli())
	for i := range dead { // before all others
		died := fmt.Sprintf("dead %d", i)
		require.NoError(t, rdb.ZAdd(t.Context(), fairPlaces, redis.Z{Member: died, Score: float64(i)}).Err())
		require.NoError(t, rdb.ZAdd(t.Context(), fairDeadlines, redis.Z{Member: died, Score: end}).Err())
	}
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
	begin := time.Now()
	require.NoError(t, h.Release(t.Context()))
	waiters.Wait()
	require.Equal(t, want, served)
	require.Less(t, time.Since(begin), 15*time.Second, "ten that died cost more than one")
	require.Less(t, scriptsRun(t, rdb), 10*n, "a hot loop asks thousands of times")
	require.Empty(t, keysLeft(t, rdb))
}

// fairModel is a fair lock as a few lines of Go: what the scripts must do, in
// virtual time.
type fairModel struct {
	now       int
	owner     string
	grants    map[string]int // when they end
	places    map[string]int64
	deadlines map[string]int
	queueEnds int // when the server drops the queue
	marks     map[string]bool
	answers   map[string]int64 // to releases, in the marks
	told      []string
}

func (m *fairModel) free() bool { return len(m.grants) == 0 }

func (m *fairModel) pass(d int) {
	m.now += d
	maps.DeleteFunc(m.grants, func(_ string, end int) bool { return end <= m.now })
	if m.queueEnds <= m.now {
		clear(m.places)
		clear(m.deadlines)
	}
}

func (m *fairModel) leave(request string) {
	delete(m.places, request)
	delete(m.deadlines, request)
}

func (m *fairModel) first() string {
	for request, end := range m.deadlines {
		if end <= m.now {
			m.leave(request)
		}
	}
	for {
		order := slices.SortedFunc(maps.Keys(m.places), func(a, b string) int { return cmp.Compare(m.places[a], m.places[b]) })
		if len(order) == 0 {
			return ""
		}
		if _, ok := m.deadlines[order[0]]; ok {
			return order[0]
		}
		delete(m.places, order[0])
	}
}

func (m *fairModel) tell(request string) {
	if request != "" {
		m.told = append(m.told, "="+request)
	}
}

// ask returns what the reply must be, with times in units. The place of a new
// waiter is 1: the server's choice.
func (m *fairModel) ask(request, owner string, lease, heartbeat int, waits bool, place int64) []int64 {
	if m.marks[request] {
		return []int64{0, 0, 0}
	}
	p, queued := m.places[request]
	if queued {
		place = p
	}
	lost := int64(0)
	if _, granted := m.grants[request]; place > 0 && !queued && !granted {
		lost = 1
	}
	head := m.first()
	turn := head == "" || place > 0 && place <= m.places[head]
	if !m.free() && m.owner == owner || m.free() && turn {
		m.leave(request)
		m.owner = owner
		m.grants[request] = max(m.grants[request], m.now+lease)
		if lease < heartbeat {
			m.tell(m.first())
		}
		return []int64{1, int64(len(m.grants)), 0, lost}
	}
	after := 0
	if m.free() {
		m.tell(head)
		after = m.deadlines[head] - m.now
	} else if turn {
		after = slices.Max(slices.Collect(maps.Values(m.grants))) - m.now
	}
	if waits {
		if place == 0 {
			place = 1
		}
		m.places[request] = place
		m.deadlines[request] = m.now + heartbeat
		m.queueEnds = slices.Max(slices.Collect(maps.Values(m.deadlines)))
	}
	return []int64{0, int64(after), place, lost}
}

func (m *fairModel) release(request string, withdraw bool) int64 {
	if m.marks[request] {
		return m.answers[request]
	}
	_, held := m.grants[request]
	if !held && !withdraw {
		return 0
	}
	formerly := m.first()
	m.marks[request], m.answers[request] = true, 0
	delete(m.grants, request)
	m.leave(request)
	if head := m.first(); m.free() || head != formerly {
		m.tell(head)
	}
	if held {
		m.answers[request] = 1
	}
	return m.answers[request]
}

func (m *fairModel) force() int64 {
	held := int64(0)
	if !m.free() {
		held = 1
	}
	clear(m.grants)
	m.tell(m.first())
	return held
}

// unit is one of the model's in ms: so long that real time doesn't count.
const unit = 1_000_000

// passScript lets a number of ms pass for the lock and its queue.
var passScript = redis.NewScript(`
local d = tonumber(ARGV[1])
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] ~= 'owner' then redis.call('HINCRBY', KEYS[1], fields[i], -d) end
end
for _, request in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do redis.call('ZINCRBY', KEYS[3], -d, request) end
for _, key in ipairs(KEYS) do
  local ttl = redis.call('PTTL', key)
  if ttl >= 0 then redis.call('PEXPIRE', key, ttl - d) end
end
return 1`)

// endlessScript lists the keys without an end.
var endlessScript = redis.NewScript(`
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then all[#all + 1] = key end
end
return all`)

// Random requests, repetitions, releases, losses and time, against the model:
// every reply, every message and the whole state must be the same.
func TestFairScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	sub := rdb.Subscribe(t.Context(), fairChannel)
	defer func() { require.NoError(t, sub.Close()) }()
	keys := []string{fairLock, fairPlaces, fairDeadlines}
	mark := func(request string) string { return fairLock + ":released:" + request }
	acquire, release, force := script(t, "fair_acquire"), script(t, "fair_release"), script(t, "fair_force")
	extend, waiters := script(t, "extend"), script(t, "fair_waiters")
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		require.NoError(rt, rdb.FlushAll(ctx).Err())
		published(ctx, rt, sub)
		m := &fairModel{grants: map[string]int{}, places: map[string]int64{}, deadlines: map[string]int{}, marks: map[string]bool{}, answers: map[string]int64{}}
		known := map[string]int64{} // the places that clients know of
		requests := 6
		pick := func(rt *rapid.T) (request, owner string) {
			i := rapid.IntRange(0, requests-1).Draw(rt, "request")
			return fmt.Sprintf("r%d", i), string(rune('a' + i%3))
		}
		number := func(rt *rapid.T, cmd *redis.Cmd) int64 {
			n, err := cmd.Int64()
			require.NoError(rt, err)
			return n
		}
		short := rapid.IntRange(1, 4)
		ask := func(rt *rapid.T) {
			request, owner := pick(rt)
			lease, heartbeat := short.Draw(rt, "lease"), short.Draw(rt, "heartbeat")
			waits := rapid.IntRange(0, 3).Draw(rt, "waits") > 0
			place := known[request]
			if rapid.IntRange(0, 4).Draw(rt, "an old copy") == 0 {
				place = 0
			}
			newest := int64(0)
			got, err := acquire.Run(ctx, rdb, append(slices.Clone(keys), mark(request)),
				owner, request, lease*unit, heartbeat*unit, intOf(waits), place, fairChannel).Int64Slice()
			require.NoError(rt, err)
			want := m.ask(request, owner, lease, heartbeat, waits, place)
			for r, p := range m.places {
				if r != request {
					newest = max(newest, p)
				}
			}
			if want[0] == 0 {
				if want[2] == 1 { // a new waiter is behind all others
					require.Greater(rt, got[2], max(newest, unit))
					want[2] = got[2]
					m.places[request] = got[2]
				}
				if waits && !m.marks[request] {
					known[request] = got[2]
				}
				require.LessOrEqual(rt, got[1], want[1]*unit)
				require.Greater(rt, got[1], want[1]*unit-unit/2)
				got[1] = want[1]
			}
			require.Equal(rt, want, got)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(rt, "times") {
					ask(rt)
				}
			},
			"release": func(rt *rapid.T) {
				request, _ := pick(rt)
				withdraw := rapid.IntRange(0, 1).Draw(rt, "withdraw")
				got := number(rt, release.Run(ctx, rdb, append(slices.Clone(keys), mark(request)), request, 1000*unit, fairChannel, withdraw))
				require.Equal(rt, m.release(request, withdraw == 1), got)
				if m.marks[request] && requests < 20 {
					requests++ // another client comes
				}
			},
			"extend": func(rt *rapid.T) {
				request, _ := pick(rt)
				d := short.Draw(rt, "lease")
				got := number(rt, extend.Run(ctx, rdb, keys[:1], request, d*unit))
				_, held := m.grants[request]
				require.Equal(rt, held, got == 1)
				if held {
					m.grants[request] = max(m.grants[request], m.now+d)
				}
			},
			"pass": func(rt *rapid.T) {
				d := rapid.IntRange(1, 3).Draw(rt, "time")
				require.NoError(rt, passScript.Run(ctx, rdb, keys, d*unit).Err())
				m.pass(d)
			},
			"force": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "skip") > 0 {
					rt.Skip("it is rare")
				}
				require.Equal(rt, m.force(), number(rt, force.Run(ctx, rdb, keys, fairChannel)))
			},
			"lose": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "skip") > 0 {
					rt.Skip("it is rare")
				}
				if rapid.Bool().Draw(rt, "places") {
					clear(m.places)
					require.NoError(rt, rdb.Del(ctx, fairPlaces).Err())
				} else {
					clear(m.deadlines)
					require.NoError(rt, rdb.Del(ctx, fairDeadlines).Err())
				}
			},
			"": func(rt *rapid.T) {
				require.Equal(rt, m.told, published(ctx, rt, sub))
				m.told = nil

				pipe := rdb.Pipeline() // one round trip for all that is looked at
				clock, fields := pipe.Time(ctx), pipe.HGetAll(ctx, fairLock)
				queue, ends := pipe.ZRangeWithScores(ctx, fairPlaces, 0, -1), pipe.ZRangeWithScores(ctx, fairDeadlines, 0, -1)
				counted, endless := waiters.Eval(ctx, pipe, keys[2:]), endlessScript.Eval(ctx, pipe, nil)
				_, err := pipe.Exec(ctx)
				require.NoError(rt, err)
				now := clock.Val().UnixMilli()
				grants, places, deadlines := map[string]int{}, map[string]int64{}, map[string]int{}
				units := func(end int64) int { return m.now + int((end-now+unit/2)/unit) }
				for field, value := range fields.Val() {
					if field == "owner" {
						continue
					}
					end, err := strconv.ParseInt(value, 10, 64)
					require.NoError(rt, err)
					if end > now {
						grants[field] = units(end)
						require.Equal(rt, m.owner, fields.Val()["owner"])
					}
				}
				for _, z := range queue.Val() {
					places[fmt.Sprint(z.Member)] = int64(z.Score)
				}
				alive := int64(0)
				for _, z := range ends.Val() {
					if deadlines[fmt.Sprint(z.Member)] = m.now; int64(z.Score) > now {
						deadlines[fmt.Sprint(z.Member)] = units(int64(z.Score))
						alive++
					}
				}
				require.Equal(rt, m.grants, grants)
				require.Equal(rt, m.places, places)
				for request, end := range m.deadlines {
					m.deadlines[request] = max(end, m.now) // how long it was dead doesn't matter
				}
				require.Equal(rt, m.deadlines, deadlines)
				require.Equal(rt, alive, number(rt, counted))
				require.Empty(rt, endless.Val(), "they stay for ever")
			},
		})
	})
}
