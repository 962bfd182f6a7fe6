package lock

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

func TestScriptsAreThoseThatAreRun(t *testing.T) {
	named := map[string]string{}
	for name, source := range Scripts() {
		digest := redis.NewScript(source).Hash()
		require.Empty(t, named[digest], "two names for one script")
		named[digest] = name
	}
	k := newKinds()
	for want, s := range map[string]script{
		"force": k.force, "inspect": k.inspect,
		"fair_force": k.fair.force, "fair_waiters": k.fair.waiters,
		"rw_force": k.rw.force, "rw_inspect": k.rw.inspect,
		"semaphore_acquire": k.semaphore.acquire, "semaphore_extend": k.semaphore.extend, "semaphore_release": k.semaphore.release,
		"semaphore_give": k.semaphore.give, "semaphore_size": k.semaphore.size, "semaphore_delete": k.semaphore.delete, "semaphore_inspect": k.semaphore.inspect,
		"latch_set": k.latch.set, "latch_down": k.latch.down, "latch_count": k.latch.count, "latch_delete": k.latch.delete,
	} {
		require.Equal(t, want, named[s.Hash()])
	}
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	for prefix, kind := range map[string]*kind{"": k.mutex, "rw_": k.rw.read} {
		o := c.object("name", kind)
		g := o.grant(Options{})
		require.Equal(t, prefix+"acquire", named[kind.acquire(g).script.Hash()])
		require.Equal(t, prefix+"extend", named[kind.extend(g, 1).script.Hash()])
		require.Equal(t, prefix+"release", named[kind.release(g, false).script.Hash()])
	}
}
