package zookeeper_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/adapters/zookeeper"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/topologies"
)

// An ensemble is one for all tests: to boot it costs more than they do.
type ensemble struct{ topologies.Deployment }

func start(t *testing.T) ensemble {
	t.Helper()
	return ensemble{runtest.Start(t, runtest.Backend{}, topologies.ZooKeeperEnsemble, topologies.Options{})}
}

// open opens a session of a zone, under a root that no other has.
func (e ensemble) open(t *testing.T, zone, root string, heed zookeeper.Heed, ttl time.Duration) *zookeeper.Locker {
	t.Helper()
	o := e.ClientOptions(zone)
	l, err := zookeeper.Open(zookeeper.Config{Servers: o.Addrs, Dial: o.Dialer, Heed: heed, TTL: ttl, Root: root})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	e := start(t)
	t.Cleanup(func() { e.empties(t) })
	t.Run("contract", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, func(t *testing.T) lock.Locker {
			t.Helper()
			return e.open(t, "zone-b", "/"+rand.Text(), zookeeper.Disconnected, time.Minute)
		}, locktest.Features{Fenced: true, Lease: 2 * time.Second, Callers: 40, Apart: true})
	})
	t.Run("silence", func(t *testing.T) { // they break the same links, one after the other
		t.Parallel()
		t.Run("of a holder", e.silence)
		t.Run("and what stays behind", e.nothingStays)
	})
}

// What a holder does whose links fall silent until its session has ended, and that nothing
// of it stays behind.
func (e ensemble) silence(t *testing.T) {
	ctx := runtest.Within(t, 2*time.Minute)
	const ttl = 2 * time.Second
	holds := map[zookeeper.Heed]*lock.Hold{}
	others := map[zookeeper.Heed]*zookeeper.Locker{}
	for _, heed := range []zookeeper.Heed{zookeeper.Disconnected, zookeeper.Expired, zookeeper.Leased} {
		root := "/" + rand.Text()
		h, err := e.open(t, "zone-a", root, heed, ttl).Acquire(ctx, "orders", lock.Options{})
		require.NoError(t, err)
		holds[heed], others[heed] = h, e.open(t, "zone-b", root, heed, ttl)
		_, err = others[heed].Acquire(ctx, "orders", lock.Options{})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
	}
	var mends []func()
	links, err := e.Topology().Select("zone-a>*")
	require.NoError(t, err)
	for _, l := range links {
		mend, err := e.Proxy(l.Name()).Put(topologies.Both, topologies.Hold())
		require.NoError(t, err)
		mends = append(mends, mend)
	}
	for _, heed := range []zookeeper.Heed{zookeeper.Disconnected, zookeeper.Leased} {
		next, err := others[heed].Acquire(ctx, "orders", lock.Options{Wait: time.Minute})
		require.NoError(t, err)
		select {
		case <-holds[heed].Lost():
		default:
			t.Fatalf("another client was granted the lock, and its holder (%v) was told nothing", heed)
		}
		require.Greater(t, next.Lease().Token, holds[heed].Lease().Token)
		require.NoError(t, next.Release(ctx))
	}
	next, err := others[zookeeper.Expired].Acquire(ctx, "orders", lock.Options{Wait: time.Minute})
	require.NoError(t, err)
	select {
	case <-holds[zookeeper.Expired].Lost():
		t.Fatal("it can't know that its session has expired")
	default:
	}
	require.Greater(t, next.Lease().Token, holds[zookeeper.Expired].Lease().Token)
	for _, mend := range mends {
		mend()
	}
	select {
	case <-holds[zookeeper.Expired].Lost():
	case <-ctx.Done():
		t.Fatal("its session has expired, and it was not told")
	}
	require.ErrorIs(t, holds[zookeeper.Expired].Release(ctx), lock.ErrNotHeld)
	require.NoError(t, next.Release(ctx))
}

// A request that is given up while its connection is silent leaves no node behind, whether
// its node was made or not; and a hold that was lost leaves none in a session that lives on.
func (e ensemble) nothingStays(t *testing.T) {
	ctx := runtest.Within(t, 2*time.Minute)
	root := "/" + rand.Text()
	l := e.open(t, "zone-a", root, zookeeper.Disconnected, time.Minute)
	h, err := l.Acquire(ctx, "held", lock.Options{})
	require.NoError(t, err)
	for _, stream := range []topologies.Stream{topologies.Upstream, topologies.Downstream} {
		var mends []func()
		for _, server := range e.Topology().Servers() {
			mend, err := e.Proxy("zone-a>"+server).Put(stream, topologies.Hold())
			require.NoError(t, err)
			mends = append(mends, mend)
		}
		for _, name := range []string{"held", "new-" + stream} {
			giveUp, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, err := l.Acquire(giveUp, name, lock.Options{Wait: time.Minute})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		for _, mend := range mends {
			mend()
		}
	}
	for _, server := range e.Topology().Servers() {
		e.Proxy("zone-a>" + server).Reset()
	}
	select {
	case <-h.Lost():
	case <-ctx.Done():
		t.Fatal("its connection was reset, and it was told nothing")
	}
	watcher := e.connect(ctx, t)
	defer watcher.Close()
	require.NoError(t, await.Until(ctx, func() error {
		var left []string
		locks, _, err := watcher.Children(root)
		if err != nil {
			return err
		}
		for _, name := range locks {
			nodes, _, err := watcher.Children(root + "/" + name)
			if err != nil {
				return err
			}
			left = append(left, nodes...)
		}
		if len(left) > 0 {
			return fmt.Errorf("left behind: %s", strings.Join(left, " "))
		}
		return nil
	}))
	again, err := l.Acquire(ctx, "held", lock.Options{Wait: time.Minute})
	require.NoError(t, err)
	require.NoError(t, again.Release(ctx))
}

// empties sees that of all that the tests wrote nothing is left for another run.
func (e ensemble) empties(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	watcher := e.connect(ctx, t)
	defer watcher.Close()
	nodes, _, err := watcher.Children("/")
	require.NoError(t, err)
	require.Greater(t, len(nodes), 1)
	require.NoError(t, e.Empty(ctx))
	_, err = watcher.Sync("/")
	require.NoError(t, err)
	nodes, _, err = watcher.Children("/")
	require.NoError(t, err)
	require.Equal(t, []string{"zookeeper"}, nodes)
}

// connect opens a session past the adapter.
func (e ensemble) connect(ctx context.Context, t *testing.T) *zk.Conn {
	t.Helper()
	o := e.ClientOptions("zone-b")
	dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return o.Dialer(ctx, network, addr)
	}
	c, _, err := zk.Connect(o.Addrs, time.Minute, zk.WithDialer(dial), zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	return c
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
