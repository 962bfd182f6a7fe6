package harness

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockchaos/lockchaos/workload"
)

// A marked resource keeps the mark of the owner who was the last to begin a
// change, and takes a write from no other owner. The mark has no order: the last
// owner, however late, has it. It is the check-and-set of Sanfilippo, "Is
// Redlock safe?", 2016.
type marked interface {
	workload.Resource
	// mark puts the owner's mark in the place of the one that is there.
	mark(ctx context.Context, owner string) error
}

// checked is a marked resource as one owner sees it: to read it is to begin a
// change.
type checked struct {
	marked
	owner string
}

// Read leaves the mark before it reads, so that a change that another owner
// began before can't be written any more.
func (c *checked) Read(ctx context.Context) (int64, error) {
	if err := c.mark(ctx, c.owner); err != nil {
		return 0, err
	}
	return c.marked.Read(ctx)
}

// notMarked is the refusal of a write whose owner was not the last to begin one.
func notMarked(owner string) error {
	return fmt.Errorf("%w: another owner began a change after %s", workload.ErrRefused, owner)
}

// markedInside is one in the harness's memory.
type markedInside struct {
	workload.Resource
	mu   sync.Mutex
	last string
}

func (m *markedInside) mark(_ context.Context, owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = owner
	return nil
}

// Write stores the change if its owner's mark is still there.
func (m *markedInside) Write(ctx context.Context, c workload.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != c.Owner {
		return notMarked(c.Owner)
	}
	return m.Resource.Write(ctx, c)
}

// markedRedis is one under two keys of a Redis server.
type markedRedis struct{ onRedis }

func (m *markedRedis) markKey() string { return m.key + ":mark" }

func (m *markedRedis) mark(ctx context.Context, owner string) error {
	return m.client.Set(ctx, m.markKey(), owner, 0).Err()
}

// checkAndSet writes a value if the mark is the one that is given.
const checkAndSet = `
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`

// Write sets the value if its owner's mark is still there, in one step.
func (m *markedRedis) Write(ctx context.Context, c workload.Change) error {
	done, err := m.client.Eval(ctx, checkAndSet, []string{m.key, m.markKey()}, c.Value, c.Owner).Int()
	if err == nil && done == 0 {
		return notMarked(c.Owner)
	}
	return err
}
