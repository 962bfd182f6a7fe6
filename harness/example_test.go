package harness_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// homeMade is a lock as services write it: one key that expires.
type homeMade struct{ rdb redis.UniversalClient }

const (
	extendOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	deleteOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
)

// Acquire sets the key unless it is there, until the wait is over.
func (m *homeMade) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	lease := o.Lease
	if lease == 0 {
		lease = time.Second
	}
	l := lock.Lease{Name: name, Owner: o.Owner, Request: rand.Text(), Holds: 1, Length: lease}
	for end := time.Now().Add(o.Wait); ; {
		asked := time.Now()
		err := m.rdb.SetArgs(ctx, name, l.Request, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
		switch {
		case err == nil:
			l.Expires = asked.Add(lease * 9 / 10) // clocks differ
			return lock.NewHold(l, m), nil
		case !errors.Is(err, redis.Nil):
			return nil, err
		case time.Now().After(end):
			return nil, lock.ErrNotAcquired
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Extend makes the key expire later, if it is that of the grant.
func (m *homeMade) Extend(ctx context.Context, l lock.Lease, d time.Duration) (time.Time, error) {
	asked := time.Now()
	return asked.Add(d * 9 / 10), m.change(ctx, extendOwn, l, d.Milliseconds())
}

// Release deletes the key.
func (m *homeMade) Release(ctx context.Context, l lock.Lease) error {
	return m.change(ctx, deleteOwn, l)
}

func (m *homeMade) change(ctx context.Context, script string, l lock.Lease, args ...any) error {
	done, err := m.rdb.Eval(ctx, script, []string{l.Name}, append([]any{l.Request}, args...)...).Int()
	if err == nil && done == 0 {
		return lock.ErrNotHeld
	}
	return err
}

// spec is what a run has to know of the lock.
func spec() harness.LockSpec {
	return harness.LockSpec{
		Name: "home-made", About: "one key that expires",
		Promises: promises.Promises{Extend: true, ReleaseTells: true},
		Commands: []string{"SET", "EVAL"},
		Open: func(servers []redis.UniversalClient, _ harness.LockOptions) (lock.Locker, func(), error) {
			return &homeMade{servers[0]}, func() {}, nil
		},
	}
}

// A lock of one's own is put under test by a [harness.LockSpec]: here on one
// server, while faults of the network pass.
func Example_yourOwnLock() {
	dir, err := os.MkdirTemp("", "home-made")
	if err != nil {
		panic(err)
	}
	run := harness.RandomRun{Topology: topologies.Single, Lock: spec(), Faults: string(faults.Network), Length: 2 * time.Second}
	if err := run.Run(context.Background(), harness.Config{Dir: dir, Backend: process.Backend{}, Seed: 1}); err != nil {
		panic(err)
	}
	_, err = os.Stat(filepath.Join(dir, history.EventsFile))
	fmt.Println("recorded:", err == nil)
	// Output: recorded: true
}
