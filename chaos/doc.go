// Package chaos puts a lock of your own under test from a Go test: it starts Redis
// servers, breaks them while clients use the lock, and fails the test with the
// story of what went wrong.
//
//	var orders = chaos.New("orders", func(s chaos.Servers) (lock.Locker, func() error, error) {
//		l := mylock.New(s.Redis)
//		return chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (chaos.Grant, error) {
//			token, err := l.TryLock(ctx, name, lease) // lock.ErrNotAcquired if it is taken
//			return chaos.Grant{Release: func(ctx context.Context) error { return l.Unlock(ctx, name, token) }}, err
//		}), nil, nil
//	})
//
//	func TestOrders(t *testing.T) { chaos.Smoke(t, orders) }
//
// [Smoke] takes ten seconds. [Run] breaks the topologies and has the faults that a
// [Plan] names, [Reproduce] plays a known failure, and [Judge] judges a history
// that was recorded in another way. [Main] is needed for scenarios that pause or
// kill a client.
//
// A test fails if the verdict is invalid, or unknown twice. Its message tells the
// story, and where the report is. What a run left stays if the test fails, in the
// folder [ReportsDir] beside the test, or with the flag -artifacts of go test in
// the artifacts of the test.
//
// The servers are redis-server processes on loopback addresses. They end with the
// test binary, in whatever way that ends. Without a redis-server a test is skipped;
// if the environment variable [RequireVariable] is set to 1, it fails instead.
//
// The package silences the log of go-redis, which would tell each broken
// connection. It runs on Linux.
package chaos
