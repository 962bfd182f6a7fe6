package harness_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// homeMade is a lock as services write it: one key that expires.
type homeMade struct {
	rdb     redis.UniversalClient
	release string // the script that releases it
}

const (
	extendOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	deleteOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
	deleteAny = `return redis.call('DEL', KEYS[1])` // the bug of many
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
	return m.change(ctx, m.release, l)
}

func (m *homeMade) change(ctx context.Context, script string, l lock.Lease, args ...any) error {
	done, err := m.rdb.Eval(ctx, script, []string{l.Name}, append([]any{l.Request}, args...)...).Int()
	if err == nil && done == 0 {
		return lock.ErrNotHeld
	}
	return err
}

// spec is what a run has to know of the lock.
func spec(release string) harness.LockSpec {
	return harness.LockSpec{
		Name: "home-made", About: "one key that expires",
		Commands: []string{"SET", "EVAL"},
		Open: func(servers []redis.UniversalClient, _ harness.LockOptions) (lock.Locker, func(), error) {
			return &homeMade{servers[0], release}, func() {}, nil
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
	run := harness.RandomRun{Topology: topologies.Single, Lock: spec(deleteOwn), Faults: string(faults.Network), Length: 2 * time.Second}
	if err := run.Run(context.Background(), harness.Config{Dir: dir, Backend: process.Backend{}, Seed: 1}); err != nil {
		panic(err)
	}
	_, err = os.Stat(filepath.Join(dir, history.EventsFile))
	fmt.Println("recorded:", err == nil)
	// Output: recorded: true
}

// The lock of the example holds out, and with the bug of many it is convicted.
func TestAHomeMadeLock(t *testing.T) {
	for _, tt := range []struct {
		name, release, kind, faults string
		want                        checker.Verdict
	}{
		{"valid under faults of the network", deleteOwn, "contended", string(faults.Network), checker.Valid},
		{"valid with late releases", deleteOwn, "late-release", faults.MixNone, checker.Valid},
		{"deletes the key of another", deleteAny, "late-release", faults.MixNone, checker.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := harness.RandomRun{Topology: topologies.Single, Lock: spec(tt.release), Kind: tt.kind, Faults: tt.faults, Length: 3 * time.Second}
			r.Workload.Wait = r.Wait()
			run, h, _ := runtest.Until(t, r, runtest.Setup(t), tt.want, nil)
			require.Equal(t, "home-made", run.Lock)
			require.Equal(t, history.KindMutex, h.Guarantees()["lock-1"].Kind)
		})
	}
}

func TestALockUnderTestNeedsANameAndAWayToOpenIt(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*harness.LockSpec){
		"needs a name":                   func(l *harness.LockSpec) { l.Name = "" },
		"lock home-made can't be opened": func(l *harness.LockSpec) { l.Open = nil },
		`unknown kind of lock "rww"`:     func(l *harness.LockSpec) { l.Kind = "rww" },
	} {
		l := spec(deleteOwn)
		change(&l)
		r := harness.RandomRun{Topology: topologies.Single, Lock: l, Length: time.Second}
		require.ErrorContains(t, r.Validate(), want)
	}
	r := harness.RandomRun{Topology: topologies.Single, Lock: spec(deleteOwn), Length: time.Second}
	require.NoError(t, r.Validate())
}
