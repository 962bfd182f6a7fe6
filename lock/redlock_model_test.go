package lock

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// redlockModel is what three servers have of one lock, and what the Redlock knows
// of it.
type redlockModel struct {
	owner  [3]string          // who has it there; "" for none
	grants [3]map[string]bool // by request
	holds  map[string]*modelHold
}

type modelHold struct {
	hold    *Hold
	number  int
	owner   string
	present [3]bool // as the last answer said
}

// grant is what one server says to a request, and does.
func (m *redlockModel) grant(server int, owner, request string) bool {
	if len(m.grants[server]) > 0 && m.owner[server] != owner {
		return false
	}
	m.owner[server] = owner
	m.grants[server][request] = true
	return true
}

func (m *redlockModel) drop(request string) (from int) {
	for i := range m.grants {
		if m.grants[i][request] {
			from++
			delete(m.grants[i], request)
		}
	}
	return from
}

// Random requests, and servers that lose their data or are taken by a client
// else: the outcome is what the votes make it, and once all is quiet the servers
// have what they should, and nothing else.
func TestRedlockAgainstAModel(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	var others []*Client
	for range 3 {
		s := redistest.Start(t)
		clients = append(clients, s.Client(t, nil))
		c, err := New(s.Client(t, nil), Config{})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		others = append(others, c)
	}
	r, err := NewRedlock(clients, RedlockConfig{NodeTimeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	ctx := t.Context()
	names := 0

	draws(t, func(t *testing.T, rng *rand.Rand) {
		t.Helper()
		names++
		name := fmt.Sprint("orders ", names)
		key := keysOf(defaultPrefix, name).lock
		m := &redlockModel{holds: map[string]*modelHold{}}
		for i := range m.grants {
			m.grants[i] = map[string]bool{}
		}
		strangers := [3]*Hold{}
		granted := 0
		pick := func() (string, *modelHold) {
			requests := slices.SortedFunc(maps.Keys(m.holds), func(a, b string) int { return m.holds[a].number - m.holds[b].number })
			request := oneOf(rng, requests...)
			return request, m.holds[request]
		}
		actions := map[string]func(){
			"acquire": func() {
				owner := oneOf(rng, "a", "b")
				votes := 0
				for i := range m.grants {
					if len(m.grants[i]) == 0 || m.owner[i] == owner {
						votes++
					}
				}
				h, err := r.Acquire(ctx, name, Options{Owner: owner, Lease: time.Hour})
				if votes < 2 {
					if !errors.Is(err, ErrNotAcquired) {
						t.Fatalf("%d votes: %v", votes, err)
					}
					return
				}
				if err != nil {
					t.Fatalf("%d votes: %v", votes, err)
				}
				request := h.Lease().Request
				granted++
				hold := &modelHold{hold: h, number: granted, owner: owner}
				count := 1
				for _, other := range m.holds {
					if other.owner == owner {
						count++
					}
				}
				if got := h.Lease().Holds; got != count {
					t.Fatalf("hold %d of its owner counts %d", count, got)
				}
				for i := range m.grants {
					hold.present[i] = m.grant(i, owner, request)
				}
				m.holds[request] = hold
			},
			"release": func() {
				request, h := pick()
				from := m.drop(request)
				delete(m.holds, request)
				err := h.hold.Release(ctx)
				if from >= 2 && err != nil || from < 2 && !errors.Is(err, ErrNotHeld) {
					t.Fatalf("released where %d servers had it: %v", from, err)
				}
			},
			"extend": func() {
				request, h := pick()
				votes := 0
				for i := range m.grants {
					if h.present[i] {
						h.present[i] = m.grants[i][request]
					} else {
						h.present[i] = m.grant(i, h.owner, request)
					}
					if h.present[i] {
						votes++
					}
				}
				err := h.hold.Extend(ctx, time.Hour)
				if votes >= 2 {
					if err != nil {
						t.Fatalf("extended on %d servers: %v", votes, err)
					}
					return
				}
				if !errors.Is(err, ErrNotHeld) {
					t.Fatalf("extended on %d servers: %v", votes, err)
				}
				m.drop(request)
				delete(m.holds, request)
			},
			"a server forgets": func() {
				i := rng.IntN(3)
				require.NoError(t, clients[i].Del(ctx, key).Err())
				m.grants[i], strangers[i] = map[string]bool{}, nil
			},
			"a stranger comes or goes": func() {
				i := rng.IntN(3)
				if h := strangers[i]; h != nil {
					require.NoError(t, h.Release(ctx))
					delete(m.grants[i], h.Lease().Request)
					strangers[i] = nil
					return
				}
				h, err := others[i].Acquire(ctx, name, Options{Owner: "x", Lease: time.Hour})
				if len(m.grants[i]) > 0 {
					require.ErrorIs(t, err, ErrNotAcquired)
					return
				}
				require.NoError(t, err)
				m.grant(i, "x", h.Lease().Request)
				strangers[i] = h
			},
		}
		// Once all is quiet, the servers have what they should.
		quiet := func() (wrong string) {
			r.tasks.Wait() // a request may be about to be sent
			for i := range r.nodes {
				got := redistest.Fields(ctx, t, clients[i], key)
				owner := got["owner"]
				delete(got, "owner")
				same := maps.EqualFunc(got, m.grants[i], func(string, bool) bool { return true })
				if !same || len(got) > 0 && owner != m.owner[i] {
					wrong = fmt.Sprintf("server %d has %v for %q; want %v for %q", i, got, owner, m.grants[i], m.owner[i])
				}
			}
			return wrong
		}
		for range 1 + rng.IntN(20) {
			possible := []string{"acquire", "a server forgets", "a stranger comes or goes"}
			if len(m.holds) > 0 {
				possible = append(possible, "extend", "extend", "release")
			}
			actions[oneOf(rng, possible...)]()
			wrong := quiet()
			for deadline := time.Now().Add(20 * time.Second); wrong != ""; wrong = quiet() {
				if time.Now().After(deadline) {
					t.Fatal(wrong)
				}
				time.Sleep(50 * time.Microsecond)
			}
		}
	})
}
