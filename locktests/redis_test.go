package locktests

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()                               // go-redis writes to stderr what its errors say as well
	if os.Getenv("LOCKCHAOS_TEST_NIGHTLY") != "1" { // of the 100 histories of each model; -rapid.checks says otherwise
		if err := flag.Set("rapid.checks", "30"); err != nil {
			panic(err)
		}
	}
	known := []goleak.Option{
		// The thread that starts servers is never given back.
		goleak.IgnoreAnyFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"),
		// A pool whose server is gone sees a second late that it was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	}
	goleak.VerifyTestMain(settled{m, known}, known...)
}

// settled awaits what ends behind the tests: go-redis greets a server that is gone until it
// has repeated that as often as it may, though the client is closed.
type settled struct {
	*testing.M

	known []goleak.Option
}

// Run runs the tests.
func (s settled) Run() int {
	code := s.M.Run()
	for end := time.Now().Add(time.Minute); goleak.Find(s.known...) != nil && time.Now().Before(end); {
		continue
	}
	return code
}

const (
	long = time.Minute
	// soonOver is a lease that a test lets run out, in which a grant arrives also on
	// a busy machine.
	soonOver = time.Second
)

// open returns a client of its own connection pool.
func open(t *testing.T, s *redistest.Server, c lock.Config) *lock.Client {
	t.Helper()
	return newClient(t, s.Client(t, nil), c)
}

func newClient(t *testing.T, rdb redis.UniversalClient, c lock.Config) *lock.Client {
	t.Helper()
	client, err := lock.New(rdb, c)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func acquire(t *testing.T, l lock.Locker, owner string, lease time.Duration) *lock.Hold {
	t.Helper()
	h, err := l.Acquire(t.Context(), "orders", lock.Options{Owner: owner, Lease: lease})
	require.NoError(t, err)
	return h
}

// script is one of a lock, as the server knows it.
func script(tb testing.TB, name string) *redis.Script {
	tb.Helper()
	source := lock.Scripts()[name]
	require.NotEmpty(tb, source, name)
	return redis.NewScript(source)
}

// digest is what a script is called by.
func digest(tb testing.TB, name string) string {
	tb.Helper()
	return script(tb, name).Hash()
}

// acquireText is what requests for a Mutex have in them.
func acquireText(tb testing.TB) string {
	tb.Helper()
	return digest(tb, "acquire") + "|\r\nset\r\n"
}

// events is an observer that keeps all it is told.
type events struct {
	mu  sync.Mutex
	all []lock.Event
}

func (e *events) Observe(ev lock.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) list() []lock.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]lock.Event(nil), e.all...)
}

func (e *events) count(kind lock.EventKind) int {
	n := 0
	for _, ev := range e.list() {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

// await waits until n events of that kind were observed. What the client does by itself,
// a renewal or a loss, is observed after its effect can be seen.
func (e *events) await(t *testing.T, kind lock.EventKind, n int) {
	t.Helper()
	redistest.Await(t, fmt.Sprintf("%d events %q", n, kind), func() bool { return e.count(kind) >= n })
}

// keysLeft lists what is on the server, but for the marks of released requests and
// the last tokens.
func keysLeft(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	all, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	var left []string
	for _, key := range all {
		kind := rdb.Type(t.Context(), key).Val()
		if kind == "none" { // it ended since
			continue
		}
		// The turn of requests without a ticket ends by itself, as a mark does.
		if kind == "zset" && slices.Equal([]string{"-"}, rdb.ZRange(t.Context(), key, 0, -1).Val()) {
			continue
		}
		if kind != "string" || strings.HasPrefix(rdb.Get(t.Context(), key).Val(), "held ") {
			left = append(left, key)
		}
	}
	return left
}

// waiting asks in the background, and gives the lock back at once.
func waiting(ctx context.Context, t *testing.T, l lock.Locker, o lock.Options) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		h, err := l.Acquire(ctx, "orders", o)
		if err == nil {
			err = h.Release(context.WithoutCancel(ctx))
		}
		done <- err
	}()
	return done
}

// parked waits until so many subscriptions to locks are there.
func parked(t *testing.T, rdb *redis.Client, channels int) {
	t.Helper()
	redistest.Await(t, "subscriptions", func() bool {
		return len(rdb.PubSubChannels(t.Context(), "*").Val()) == channels
	})
}

// soonerThan requires that something comes before a limit, such as [beforePoll]. Time in which
// the server, or this process, stood still does not count: a machine may be busy.
func soonerThan(t *testing.T, rdb *redis.Client, limit time.Duration, why string, something func()) {
	t.Helper()
	const regular, late = 10 * time.Millisecond, 100 * time.Millisecond
	watching, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan time.Duration, 1)
	go func() {
		var stalled time.Duration
		for begin := time.Now(); ; begin = time.Now() {
			select {
			case <-watching.Done():
				done <- stalled
				return
			case <-time.After(regular):
			}
			_ = rdb.Ping(watching).Err()
			if took := time.Since(begin); took > late {
				stalled += took
			}
		}
	}()
	begin := time.Now()
	something()
	took := time.Since(begin)
	cancel()
	stalled := <-done
	require.Less(t, took-stalled, limit, "%s (of %v, the machine stood still for %v)", why, took, stalled)
}

// beforePoll is a limit for what a message brings: without one, a waiter asks again three
// seconds after its last request, which was sent a moment ago.
const beforePoll = 2 * time.Second

// within are options that wait for so long.
func within(wait time.Duration, o lock.Options) lock.Options {
	o.Wait = wait
	return o
}
