// Package etcd puts the lock of go.etcd.io/etcd/client/v3/concurrency under test:
// a lock on a replicated log instead of Redis, to compare with.
//
// The library keeps a lock for as long as its session, which it keeps alive by
// itself. The lease that a caller asks for is therefore kept here: at its end the
// lock is given up. A lease of zero has no end. Callers of one session are not
// kept apart by the library, so each hold and each waiter has a session of its
// own; a session that became free is used again.
//
// It is fair, and its tokens are revisions of the store. It is not re-entrant. A
// call may outlast its context while no server answers: the library takes a
// waiter's place back without a limit.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockchaos/lockchaos/adapters/internal/adapt"
	"github.com/lockchaos/lockchaos/lock"
)

const (
	prefix     = "/lockchaos/"
	defaultTTL = 30 * time.Second
	// dialTimeout bounds the first connection.
	dialTimeout = 10 * time.Second
	// withdrawn is the key of a mutex that the library knows to be deleted.
	withdrawn = "\x00"
)

// A Locker is the mutexes of an etcd as a [lock.Locker]. Make it with [New] and
// end it with Close.
type Locker struct {
	client *clientv3.Client
	ttl    time.Duration
	leased bool
	deaf   bool // the planted bug of [NewDeaf]

	mu     sync.Mutex
	closed bool
	idle   []*concurrency.Session
	ending sync.WaitGroup // sessions that are being closed
}

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker that keeps its locks where the client is connected to, and
// never closes the client. A session ends ttl, in whole seconds, after it was last
// heard of; 0 means 30s.
func New(client *clientv3.Client, ttl time.Duration) *Locker {
	if ttl == 0 {
		ttl = defaultTTL
	}
	return &Locker{client: client, ttl: max(ttl.Round(time.Second), time.Second)}
}

// NewLeased is as [New], but a hold lasts no longer than the session would without
// another renewal, counted from when the last one that was made for the hold was sent; so
// a holder that is cut off stops before another client is granted the lock. A lease of
// zero, or of more than ttl, becomes ttl.
func NewLeased(client *clientv3.Client, ttl time.Duration) *Locker {
	l := New(client, ttl)
	l.leased = true
	return l
}

// NewDeaf is as [New], with a planted bug: a holder does not heed that its session has
// ended, as one that drops the channel of its keep-alives.
func NewDeaf(client *clientv3.Client, ttl time.Duration) *Locker {
	l := New(client, ttl)
	l.deaf = true
	return l
}

// Dial returns a client of the members at those addresses, which writes nothing
// to stderr. The caller closes it.
func Dial(endpoints ...string) (*clientv3.Client, error) { return DialWith(nil, endpoints...) }

// How long a client waits before it dials a member again that refused: by default it is
// up to two minutes, beyond the lease of any lock.
const leastBackoff, mostBackoff = 20 * time.Millisecond, 100 * time.Millisecond

// DialWith is as [Dial], with connections that dial opens. Such a client soon tries again
// to reach a member that refused. Nil: those of the library.
func DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error), endpoints ...string) (*clientv3.Client, error) {
	config := clientv3.Config{Endpoints: endpoints, DialTimeout: dialTimeout, Logger: zap.NewNop()}
	if dial != nil {
		config.DialOptions = []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: leastBackoff, Multiplier: 2, MaxDelay: mostBackoff},
				MinConnectTimeout: time.Second,
			}),
		}
	}
	c, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return c, nil
}

// Close ends the sessions that no lock uses. Locks that are held end with their
// release, and their sessions with it.
func (l *Locker) Close() {
	l.mu.Lock()
	idle := l.idle
	l.idle, l.closed = nil, true
	l.mu.Unlock()
	for _, s := range idle {
		l.end(s)
	}
	l.ending.Wait()
}

// Acquire asks for the lock, and waits in line for it.
func (l *Locker) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	long := time.Duration(0)
	if l.leased {
		long = l.ttl
	}
	return adapt.Acquire(ctx, name, o, long, l.acquire)
}

func (l *Locker) acquire(ctx context.Context, lease lock.Lease, wait time.Duration) (*lock.Hold, error) {
	s, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	m := concurrency.NewMutex(s, prefix+url.PathEscape(lease.Name)) // a slash would make it part of another lock
	if wait == 0 {
		err = m.TryLock(ctx)
	} else {
		waiting, cancel := context.WithTimeout(ctx, wait)
		err = m.Lock(waiting)
		cancel()
		sent = time.Now()
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case m.Key() == withdrawn && (errors.Is(err, concurrency.ErrLocked) || errors.Is(err, context.DeadlineExceeded)):
		err = lock.ErrNotAcquired
	case errors.Is(err, concurrency.ErrSessionExpired): // and its place in the queue with it
		err = fmt.Errorf("%w: %w", lock.ErrNotAcquired, err)
	}
	if err != nil {
		l.free(s, m.Key() == withdrawn)
		return nil, err
	}
	giveUp := func(ctx context.Context) error {
		if err := m.Unlock(ctx); err != nil {
			s.Orphan() // so that the lock ends with its session, if not before
			return err
		}
		l.free(s, true)
		return nil
	}
	lease.Token = m.Header().GetRevision()
	var renew func(ctx context.Context, d time.Duration) (time.Time, error)
	if l.leased {
		renew = func(ctx context.Context, d time.Duration) (time.Time, error) { return l.renew(ctx, s, d) }
		if lease.Expires, err = renew(ctx, lease.Length); err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
			defer cancel()
			return nil, errors.Join(err, giveUp(ctx))
		}
	} else if lease.Length > 0 {
		lease.Expires = adapt.Expires(sent, lease.Length)
	}
	alive := s.Ctx()
	if l.deaf {
		alive = context.Background()
	}
	return adapt.Kept(lease, alive, giveUp, renew), nil //nolint:contextcheck // the session's says when it is lost
}

// renew has a session begin again, and returns until when a holder may believe in it.
func (l *Locker) renew(ctx context.Context, s *concurrency.Session, d time.Duration) (time.Time, error) {
	sent := time.Now()
	_, err := l.client.KeepAliveOnce(ctx, s.Lease())
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return time.Time{}, fmt.Errorf("%w: its session has ended", lock.ErrNotHeld)
	case err != nil:
		return time.Time{}, fmt.Errorf("renew session: %w", err)
	}
	if d == 0 || d > l.ttl {
		d = l.ttl
	}
	return adapt.Expires(sent, d), nil
}

// session returns one that no lock uses.
func (l *Locker) session(ctx context.Context) (*concurrency.Session, error) {
	for {
		l.mu.Lock()
		if len(l.idle) == 0 {
			l.mu.Unlock()
			break
		}
		s := l.idle[len(l.idle)-1]
		l.idle = l.idle[:len(l.idle)-1]
		l.mu.Unlock()
		if s.Ctx().Err() == nil {
			return s, nil
		}
	}
	granted, err := l.client.Grant(ctx, int64(l.ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	s, err := concurrency.NewSession(l.client, concurrency.WithTTL(int(l.ttl/time.Second)), concurrency.WithLease(granted.ID))
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

// free takes a session back. One that may have left a key behind is closed, and
// its keys with it.
func (l *Locker) free(s *concurrency.Session, clean bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if clean && !l.closed && s.Ctx().Err() == nil {
		l.idle = append(l.idle, s)
		return
	}
	l.end(s)
}

func (l *Locker) end(s *concurrency.Session) {
	l.ending.Go(func() { _ = s.Close() }) // else it ends with its lease
}
