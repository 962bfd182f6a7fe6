package locktests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock/redistest"
)

// elsewhere marks a request that took permits of a semaphore which was deleted since, and unheld one that was withdrawn and
// had none.
const elsewhere, unheld = -1, -2

// semaphoreModel is what the scripts should do, without a clock: grants end and
// waiters die when the test says so.
type semaphoreModel struct {
	set         bool
	size, taken int
	grants      map[string]int // by request
	queue       []string
	dead        map[string]bool
	marks       map[string]int // elsewhere: permits that were taken before a deletion
	messages    []string
}

func (m *semaphoreModel) free() int {
	free := m.size - m.taken
	for _, n := range m.grants {
		free -= n
	}
	return free
}

func (m *semaphoreModel) leave(request string) {
	m.queue = slices.DeleteFunc(m.queue, func(r string) bool { return r == request })
}

func (m *semaphoreModel) first() string {
	for len(m.queue) > 0 && m.dead[m.queue[0]] {
		m.queue = m.queue[1:]
	}
	if len(m.queue) == 0 {
		return ""
	}
	return m.queue[0]
}

func (m *semaphoreModel) wake() {
	if first := m.first(); first != "" && m.free() > 0 {
		m.messages = append(m.messages, "="+first)
	}
}

func (m *semaphoreModel) acquire(request string, n int, leased, waits bool) string {
	if done, ok := m.marks[request]; ok {
		switch done {
		case 0, unheld:
			return "refused"
		case elsewhere:
			return "NOTSET"
		}
		return fmt.Sprint("granted ", done)
	}
	_, held := m.grants[request]
	switch {
	case !m.set:
		return "NOTSET"
	case !held && n > m.size:
		return "TOOMANY"
	}
	if !held {
		if n == 0 {
			n = m.free()
		}
		if first := m.first(); m.free() < max(n, 1) || first != "" && first != request {
			if waits && !slices.Contains(m.queue, request) {
				m.queue = append(m.queue, request)
			}
			if waits {
				delete(m.dead, request)
			}
			return "refused"
		}
	}
	m.leave(request)
	if leased {
		m.grants[request] = n
	} else {
		m.taken += n
		m.marks[request] = n
	}
	m.wake()
	return fmt.Sprint("granted ", n)
}

func (m *semaphoreModel) release(request string, withdraw bool) string {
	done, marked := m.marks[request]
	switch {
	case marked && done == 0:
		return "1"
	case done == unheld:
		return "0"
	}
	marked = marked && done != elsewhere
	_, leased := m.grants[request]
	held := m.set && (marked || leased)
	if held {
		m.marks[request] = 0
	} else if withdraw {
		m.marks[request] = unheld
	}
	m.leave(request)
	if !m.set {
		return "0"
	}
	if marked {
		m.taken = max(m.taken-done, 0)
	} else if leased {
		delete(m.grants, request)
	}
	m.wake()
	if held {
		return "1"
	}
	return "0"
}

func (m *semaphoreModel) give(request string, n int) string {
	if _, ok := m.marks[request]; ok {
		return "1"
	}
	if !m.set {
		return "NOTSET"
	}
	if m.taken < n {
		return "0"
	}
	m.taken -= n
	m.marks[request] = 1
	m.wake()
	return "1"
}

func (m *semaphoreModel) resize(request, how string, n int) string {
	if _, ok := m.marks[request]; ok {
		return "1"
	}
	switch {
	case how == "try" && m.set:
		return "0"
	case how == "add" && !m.set:
		return "NOTSET"
	case how == "add":
		n += m.size
	}
	if n < 0 || n > 6 {
		return "BADSIZE"
	}
	m.set, m.size = true, n
	m.marks[request] = 1
	m.messages = append(m.messages, "all")
	return "1"
}

// over ends a round.
func (m *semaphoreModel) over() {
	for request, done := range m.marks {
		if strings.HasPrefix(request, "r") && done > 0 {
			m.marks[request] = elsewhere
		}
	}
}

func (m *semaphoreModel) remove(request string) string {
	if _, ok := m.marks[request]; ok {
		return "1"
	}
	if !m.set {
		return "0"
	}
	*m = semaphoreModel{
		grants: map[string]int{}, dead: map[string]bool{}, marks: m.marks,
		messages: append(m.messages, "all"),
	}
	m.over()
	m.marks[request] = 1
	return "1"
}

// TestSemaphoreIsLikeItsModel drives the scripts with random requests, each also
// more than once, and compares all that they return, keep and publish.
func TestSemaphoreIsLikeItsModel(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	scripts := map[string]*redis.Script{}
	for _, step := range []string{"acquire", "extend", "release", "give", "size", "delete", "inspect"} {
		scripts[step] = script(t, "semaphore_"+step)
	}
	pubsub := rdb.Subscribe(ctx, "c")
	defer func() { require.NoError(t, pubsub.Close()) }()
	_, err := pubsub.Receive(ctx)
	require.NoError(t, err)

	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		m := &semaphoreModel{grants: map[string]int{}, dead: map[string]bool{}, marks: map[string]int{}}
		run := func(step, request string, args ...any) any {
			v, err := scripts[step].Run(ctx, rdb, []string{"s", "s:grants", "s:queue", "s:alive", "mark:" + request}, args...).Result()
			if err != nil {
				code, _, _ := strings.Cut(err.Error(), " ")
				return code
			}
			return v
		}
		const minute = 60000
		answered := func(v any) string {
			fields, ok := v.([]any)
			switch {
			case !ok:
				return fmt.Sprint(v)
			case fields[0] == int64(1):
				return fmt.Sprint("granted ", fields[1])
			default:
				if ms, _ := fields[1].(int64); ms < 0 || ms > minute {
					return fmt.Sprint("come back in ", ms)
				}
				return "refused"
			}
		}
		// A request always asks for the same, as a repetition does.
		spec := func(request string) (n int, leased, waits bool) {
			i, _ := strconv.Atoi(request[1:])
			return i % 4, i%4 > 0 && i%3 > 0, i%4 > 0 && i%5 > 0
		}
		fresh, rounds := 0, 0
		known := func(t *rapid.T) string {
			all := append(slices.Clone(m.queue), slices.Sorted(maps.Keys(m.grants))...)
			for i := range fresh {
				if request := "r" + strconv.Itoa(i); m.marks[request] != 0 {
					all = append(all, request)
				}
			}
			return rapid.SampledFrom(append(all, "r"+strconv.Itoa(rapid.IntRange(0, fresh).Draw(t, "i")))).Draw(t, "request")
		}
		acquire := func(t *rapid.T, request string) {
			n, leased, waits := spec(request)
			lease := 0
			if leased {
				lease = minute
			}
			got := run("acquire", request, request, n, lease, intOf(waits), minute, minute, "c")
			require.Equal(t, m.acquire(request, n, leased, waits), answered(got), request)
		}
		some := func(name string) string {
			return name + strconv.Itoa(rapid.IntRange(0, 30).Draw(t, "request"))
		}
		rarely := func(t *rapid.T) bool { return rapid.IntRange(0, 9).Draw(t, "rarely") == 9 }
		require.Equal(t, m.resize("s", "set", 3), fmt.Sprint(run("size", "s", "set", 3, 6, minute, "c", "first")))
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "times") {
					fresh += rapid.IntRange(1, 3).Draw(t, "skip")
					acquire(t, "r"+strconv.Itoa(fresh))
				}
			},
			"ask again": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "times") {
					acquire(t, known(t))
				}
			},
			"extend": func(t *rapid.T) {
				request := known(t)
				n, _, _ := spec(request)
				want := int64(0)
				if _, ok := m.grants[request]; ok && m.set {
					want = 1
				}
				require.Equal(t, want, run("extend", request, request, n, minute), request)
			},
			"release": func(t *rapid.T) {
				request := known(t)
				n, _, _ := spec(request)
				for range rapid.IntRange(1, 2).Draw(t, "times") {
					withdraw := rapid.Bool().Draw(t, "withdraw")
					got := run("release", request, request, n, minute, "c", intOf(withdraw))
					require.Equal(t, m.release(request, withdraw), fmt.Sprint(got), request)
				}
			},
			"give": func(t *rapid.T) {
				request, n := some("g"), rapid.IntRange(1, 3).Draw(t, "n")
				require.Equal(t, m.give(request, n), fmt.Sprint(run("give", request, n, minute, "c")))
			},
			"size": func(t *rapid.T) {
				request, how := some("s"), rapid.SampledFrom([]string{"try", "set", "add"}).Draw(t, "how")
				n := rapid.IntRange(0, 6).Draw(t, "n")
				if how == "add" {
					n -= 3
				}
				rounds++
				got := run("size", request, how, n, 6, minute, "c", "round"+strconv.Itoa(rounds))
				require.Equal(t, m.resize(request, how, n), fmt.Sprint(got))
			},
			"delete": func(t *rapid.T) {
				if rarely(t) {
					request := some("d")
					require.Equal(t, m.remove(request), fmt.Sprint(run("delete", request, minute, "c")))
				}
			},
			"a grant ends": func(t *rapid.T) {
				if all := slices.Sorted(maps.Keys(m.grants)); len(all) > 0 {
					request := rapid.SampledFrom(all).Draw(t, "request")
					member := strconv.Itoa(m.grants[request]) + ":" + request
					require.NoError(t, rdb.ZAddXX(ctx, "s:grants", redis.Z{Score: 1, Member: member}).Err())
					delete(m.grants, request)
				}
			},
			"all grants end": func(t *rapid.T) {
				if rarely(t) {
					require.NoError(t, rdb.Del(ctx, "s:grants").Err())
					clear(m.grants)
				}
			},
			"a waiter dies": func(t *rapid.T) {
				if len(m.queue) > 0 {
					request := rapid.SampledFrom(m.queue).Draw(t, "request")
					if rapid.Bool().Draw(t, "lost") {
						require.NoError(t, rdb.HDel(ctx, "s:alive", request).Err())
					} else {
						require.NoError(t, rdb.HSet(ctx, "s:alive", request, 1).Err())
						require.NoError(t, rdb.Expire(ctx, "s:alive", time.Minute).Err())
					}
					m.dead[request] = true
				}
			},
			"the size is lost": func(t *rapid.T) {
				if rarely(t) {
					require.NoError(t, rdb.Del(ctx, "s").Err())
					m.set, m.size, m.taken = false, 0, 0
					m.over()
				}
			},
			"": func(t *rapid.T) {
				want := any("NOTSET")
				if m.set {
					want = []any{int64(m.size), int64(m.size - m.free())}
				}
				require.Equal(t, want, run("inspect", ""))
				require.Equal(t, append([]string{}, m.queue...), rdb.ZRange(ctx, "s:queue", 0, -1).Val())
				require.Equal(t, m.messages, published(ctx, t, pubsub))
				m.messages = nil
				require.EqualValues(t, -1, max(rdb.PTTL(ctx, "s").Val(), -1), "the size stays")
				for _, key := range []string{"s:grants", "s:queue", "s:alive"} {
					require.NotEqualValues(t, -1, rdb.PTTL(ctx, key).Val(), "%s goes by itself", key)
				}
			},
		})
	})
}

func intOf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// published returns the messages up to now.
func published(ctx context.Context, t require.TestingT, pubsub *redis.PubSub) []string {
	var all []string
	require.NoError(t, pubsub.Ping(ctx))
	for {
		got, err := pubsub.ReceiveTimeout(ctx, 10*time.Second)
		require.NoError(t, err)
		switch got := got.(type) {
		case *redis.Message:
			all = append(all, got.Payload)
		case *redis.Pong:
			return all
		}
	}
}
