package locktests

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
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

// fairly is the fair mutexes of a client.
func fairly(c *lock.Client) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		return c.FairMutex(name).Acquire(ctx, o)
	})
}

// A queue is those who wait for the fair mutex "orders" of a server.
type queue struct {
	rdb     *redis.Client
	waiters sync.WaitGroup

	mu     sync.Mutex
	served []string // who were granted the lock, in order
	errs   map[string]error
}

func newQueue(t *testing.T, s *redistest.Server) *queue {
	t.Helper()
	q := &queue{rdb: s.Client(t, nil), errs: map[string]error{}}
	t.Cleanup(q.waiters.Wait)
	return q
}

// waits asks in the background, returns when it has a place, and gives the lock
// back as soon as it was granted.
func (q *queue) waits(t *testing.T, c *lock.Client, who string, o lock.Options) (cancel func()) {
	t.Helper()
	return q.enter(t, c, who, o, func(h *lock.Hold) error { return h.Release(context.WithoutCancel(t.Context())) })
}

func (q *queue) enter(t *testing.T, c *lock.Client, who string, o lock.Options, end func(*lock.Hold) error) (cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	before := q.places(t)
	q.waiters.Go(func() {
		h, err := c.FairMutex("orders").Acquire(ctx, o)
		if err == nil {
			q.mu.Lock()
			q.served = append(q.served, who)
			q.mu.Unlock()
			err = end(h)
		}
		q.mu.Lock()
		q.errs[who] = err
		q.mu.Unlock()
	})
	redistest.Await(t, who+" to have a place", func() bool {
		return slices.ContainsFunc(q.places(t), func(request string) bool { return !slices.Contains(before, request) })
	})
	return cancel
}

// waitsLong waits until it is served.
func (q *queue) waitsLong(t *testing.T, c *lock.Client, who ...string) {
	t.Helper()
	for _, w := range who {
		q.waits(t, c, w, lock.Options{Lease: long, Wait: lock.Forever})
	}
}

// dies takes a place and isn't heard of again. It counts as alive until silent
// is called.
func (q *queue) dies(t *testing.T, who string) {
	t.Helper()
	q.ask(t, fairAsk{request: who, owner: who, lease: long, heartbeat: long, waits: true})
}

// silent lets those who died lose their places together, after that time.
func (q *queue) silent(t *testing.T, after time.Duration, who ...string) {
	t.Helper()
	end := q.rdb.Time(t.Context()).Val().Add(after)
	for _, w := range who {
		require.NoError(t, q.rdb.ZAdd(t.Context(), fairDeadlines, redis.Z{Member: w, Score: float64(end.UnixMilli())}).Err())
	}
}

func (q *queue) places(t *testing.T) []string {
	t.Helper()
	places, err := q.rdb.ZRange(t.Context(), fairPlaces, 0, -1).Result()
	require.NoError(t, err)
	return places
}

// order returns who were served, when no client waits any more.
func (q *queue) order(t *testing.T) []string {
	t.Helper()
	q.waiters.Wait()
	redistest.Await(t, "everything to be gone", func() bool { return len(keysLeft(t, q.rdb)) == 0 })
	return q.served
}

const (
	fairLock      = "lock:{orders}"
	fairPlaces    = fairLock + ":places"
	fairDeadlines = fairLock + ":deadlines"
	fairChannel   = fairLock + ":released"
)

// fairScript is one of the scripts as the server knows it.
func fairScript(t *testing.T, name string) *redis.Script {
	t.Helper()
	source := lock.Scripts()["fair_"+name]
	require.NotEmpty(t, source)
	return redis.NewScript(source)
}

// fairAsk is a request as a client sends it.
type fairAsk struct {
	request, owner   string
	lease, heartbeat time.Duration
	waits            bool
	place            int64
}

func (q *queue) ask(t *testing.T, a fairAsk) []int64 {
	t.Helper()
	waits := 0
	if a.waits {
		waits = 1
	}
	reply, err := fairScript(t, "acquire").Run(t.Context(), q.rdb,
		[]string{fairLock, fairPlaces, fairDeadlines, fairLock + ":released:" + a.request},
		a.owner, a.request, a.lease.Milliseconds(), a.heartbeat.Milliseconds(), waits, a.place, fairChannel,
	).Int64Slice()
	require.NoError(t, err)
	return reply
}

// Redisson #3004: a waiter that waits for longer than its time in the queue
// loses its place, and is put at the end.
func TestFairMutexKeepsThePlaceOfAWaiterThatIsAlive(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := newQueue(t, s)
	const heartbeat = 2 * time.Second
	c := open(t, s, lock.Config{Heartbeat: heartbeat})
	h := acquire(t, fairly(c), "a", long)
	q.waitsLong(t, c, "old")
	old := q.places(t)[0]
	place := q.rdb.ZScore(t.Context(), fairPlaces, old).Val()
	deadline := func() float64 { return q.rdb.ZScore(t.Context(), fairDeadlines, old).Val() }
	first := deadline()
	redistest.Await(t, "two heartbeats to pass", func() bool {
		return deadline() > first+2*float64(heartbeat.Milliseconds())
	})
	q.waitsLong(t, c, "new")
	require.InDelta(t, place, q.rdb.ZScore(t.Context(), fairPlaces, old).Val(), 0)
	require.NoError(t, h.Release(t.Context()))
	require.Equal(t, []string{"old", "new"}, q.order(t))
}

// In Redisson a waiter that died costs the others minutes, and each further one
// as much again. Here they cost one heartbeat together.
func TestFairMutexPassesByWaitersThatDied(t *testing.T) {
	t.Parallel()
	const heartbeat = 2 * time.Second
	s := redistest.Start(t)
	q := newQueue(t, s)
	c := open(t, s, lock.Config{Heartbeat: heartbeat})
	h := acquire(t, fairly(c), "a", long)
	var dead []string
	bury := func(n int) {
		for range n {
			dead = append(dead, fmt.Sprintf("dead %d", len(dead)))
			q.dies(t, dead[len(dead)-1])
		}
	}
	bury(4)
	q.waitsLong(t, c, "0", "1")
	bury(4)
	q.waitsLong(t, c, "2")
	bury(2)
	q.silent(t, heartbeat, dead...)
	require.NoError(t, q.rdb.ConfigResetStat(t.Context()).Err())
	begin := time.Now()
	require.NoError(t, h.Release(t.Context()))
	require.Equal(t, []string{"0", "1", "2"}, q.order(t))
	require.Less(t, time.Since(begin), 4*heartbeat, "ten that died cost more than one")
	require.Less(t, scriptsRun(t, q.rdb), 150, "a hot loop asks a thousand times")
}

// Redisson #2278: a fair lock with many waiters stalls.
func TestFairMutexServesManyInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := newQueue(t, s)
	var clients []*lock.Client
	for range 4 {
		clients = append(clients, open(t, s, lock.Config{Heartbeat: long})) // no client is passed by
	}
	h := acquire(t, fairly(clients[0]), "a", long)
	const n = 200
	for i := range n {
		q.waiters.Go(func() {
			h, err := clients[i%len(clients)].FairMutex("orders").Acquire(t.Context(), within(lock.Forever, lock.Options{}))
			if err == nil {
				q.mu.Lock()
				q.served = append(q.served, h.Lease().Request)
				q.mu.Unlock()
				err = h.Release(t.Context())
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			q.errs[strconv.Itoa(i)] = err
		})
	}
	redistest.Await(t, "all to have a place", func() bool { return len(q.places(t)) == n })
	want := q.places(t)
	waiters, err := clients[0].FairMutex("orders").Waiters(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, waiters)
	require.NoError(t, h.Release(t.Context()))
	require.Equal(t, want, q.order(t))
	for _, err := range q.errs {
		require.NoError(t, err)
	}
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
		return 1
	}
	_, held := m.grants[request]
	if !held && !withdraw {
		return 0
	}
	formerly := m.first()
	m.marks[request] = true
	delete(m.grants, request)
	m.leave(request)
	if head := m.first(); m.free() || head != formerly {
		m.tell(head)
	}
	if held {
		return 1
	}
	return 0
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

// Random requests, repetitions, releases, losses and time, against the model:
// every reply, every message and the whole state must be the same.
func TestFairScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	sub := rdb.Subscribe(t.Context(), fairChannel)
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	keys := []string{fairLock, fairPlaces, fairDeadlines}
	mark := func(request string) string { return fairLock + ":released:" + request }
	acquire, release, force := fairScript(t, "acquire"), fairScript(t, "release"), fairScript(t, "force")
	source, err := os.ReadFile("../lock/scripts/extend.lua")
	require.NoError(t, err)
	extend := redis.NewScript(string(source))
	source, err = os.ReadFile("../lock/scripts/fair_waiters.lua")
	require.NoError(t, err)
	waiters := redis.NewScript(string(source))

	messages := func(t require.TestingT) (told []string) {
		require.NoError(t, rdb.Publish(context.Background(), fairChannel, "end").Err())
		for {
			msg, err := sub.ReceiveMessage(context.Background())
			require.NoError(t, err)
			if msg.Payload == "end" {
				return told
			}
			told = append(told, msg.Payload)
		}
	}

	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		require.NoError(rt, rdb.FlushAll(ctx).Err())
		messages(rt)
		m := &fairModel{grants: map[string]int{}, places: map[string]int64{}, deadlines: map[string]int{}, marks: map[string]bool{}}
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
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				request, owner := pick(rt)
				lease, heartbeat := short.Draw(rt, "lease"), short.Draw(rt, "heartbeat")
				waits := rapid.IntRange(0, 3).Draw(rt, "waits") > 0
				place := known[request]
				if rapid.IntRange(0, 4).Draw(rt, "an old copy") == 0 {
					place = 0
				}
				newest := int64(0)
				flag := 0
				if waits {
					flag = 1
				}
				got, err := acquire.Run(ctx, rdb, append(slices.Clone(keys), mark(request)),
					owner, request, lease*unit, heartbeat*unit, flag, place, fairChannel).Int64Slice()
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
				require.Equal(rt, m.told, messages(rt))
				m.told = nil

				now := rdb.Time(ctx).Val().UnixMilli()
				grants, places, deadlines := map[string]int{}, map[string]int64{}, map[string]int{}
				units := func(end int64) int { return m.now + int((end-now+unit/2)/unit) }
				for field, value := range rdb.HGetAll(ctx, fairLock).Val() {
					if field == "owner" {
						continue
					}
					end, err := strconv.ParseInt(value, 10, 64)
					require.NoError(rt, err)
					if end > now {
						grants[field] = units(end)
						require.Equal(rt, m.owner, rdb.HGet(ctx, fairLock, "owner").Val())
					}
				}
				for _, z := range rdb.ZRangeWithScores(ctx, fairPlaces, 0, -1).Val() {
					places[fmt.Sprint(z.Member)] = int64(z.Score)
				}
				alive := int64(0)
				for _, z := range rdb.ZRangeWithScores(ctx, fairDeadlines, 0, -1).Val() {
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
				require.Equal(rt, alive, number(rt, waiters.Run(ctx, rdb, keys[2:])))
				for _, key := range rdb.Keys(ctx, "*").Val() {
					require.Positive(rt, rdb.PTTL(ctx, key).Val(), "%s stays for ever", key)
				}
			},
		})
	})
}
