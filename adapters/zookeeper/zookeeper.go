// Package zookeeper puts the lock recipe of ZooKeeper under test, with the client
// github.com/go-zookeeper/zk: each request makes an ephemeral sequential node, the lowest
// holds the lock, and each waits for the one before it to go. It is the recipe of
// [zk.Lock], which can't be asked without waiting, nor be cancelled, and does not tell its
// token.
//
// The nodes live as long as the session of a [Locker], which all of its callers share, and
// which the library keeps alive by itself. The lease that a caller asks for is kept here:
// at its end the lock is given up. A lease of zero has no end. [Heed] says when a holder
// stops because of its session.
//
// It is fair, and its token is the czxid of the node: the number of the transaction that
// made it. It is not re-entrant. A node whose end could not be confirmed is deleted as soon
// as the servers answer again.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockchaos/lockchaos/adapters/internal/adapt"
	"github.com/lockchaos/lockchaos/lock"
)

// Heed is what a holder takes for the loss of its lock.
type Heed int

const (
	// Disconnected is the end of the connection: the servers may end the session soon,
	// and can't say so. The library learns of it by an error, or after two thirds of the
	// session's timeout without a reply.
	Disconnected Heed = iota
	// Expired is that the servers say that the session has ended. It can't be learnt of
	// while they don't answer.
	Expired
	// Leased is Disconnected or, if that is sooner, the end of the session's timeout since
	// the hold's last confirmed request was sent.
	Leased
)

const (
	defaultTTL  = 30 * time.Second
	defaultRoot = "/lockchaos"
	// confirm bounds how long a call waits until its node is gone.
	confirm = time.Second
	// again is the pause before a request is repeated that had no answer.
	again = 20 * time.Millisecond
)

// Config says where the servers are, and what a holder heeds.
type Config struct {
	// Servers are their addresses, host:port.
	Servers []string
	// TTL is the timeout of the session; the servers have bounds of their own. Default: 30s.
	TTL  time.Duration
	Heed Heed
	// Root is the node under which the locks are. Default: /lockchaos.
	Root string
	// Dial opens connections. Nil: as [net.Dialer] does.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// A Locker is a session with ZooKeeper as a [lock.Locker]. Make it with [Open] and end it
// with Close.
type Locker struct {
	Config
	conn   *zk.Conn
	hasty  bool            // the planted bug of [OpenHasty]
	closed context.Context //nolint:containedctx // it is how long the session is wanted
	close  context.CancelFunc
	work   sync.WaitGroup // nodes that are being deleted, and the events

	mu      sync.Mutex
	raw     net.Conn // that in use
	link    *life    // of the connection; nil without one
	session *life
	changed chan struct{} // closed when either changes
}

var _ lock.Locker = (*Locker)(nil)

// A life ends when what it is of does.
type life struct {
	context.Context //nolint:containedctx // a life is nothing else
	end             context.CancelFunc
	id              int64 // of the session
}

func (l *Locker) begin(id int64) *life {
	ctx, end := context.WithCancel(l.closed)
	return &life{ctx, end, id}
}

// Open connects to the servers, in the background. It writes nothing to stderr.
func Open(c Config) (*Locker, error) { return open(c, false) }

// OpenHasty is as [Open], with a planted bug: a waiter takes the lock when the node before
// its own is gone, and does not look whether its own is the lowest. The other may have
// been that of a waiter which gave up.
func OpenHasty(c Config) (*Locker, error) { return open(c, true) }

func open(c Config, hasty bool) (*Locker, error) {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Root == "" {
		c.Root = defaultRoot
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	l := &Locker{Config: c, hasty: hasty, changed: make(chan struct{})}
	l.closed, l.close = context.WithCancel(context.Background())
	l.mu.Lock() // nothing is heard before
	defer l.mu.Unlock()
	conn, events, err := zk.Connect(c.Servers, c.TTL, zk.WithDialer(l.dial), zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithEventCallback(l.heard))
	if err != nil {
		l.close()
		return nil, fmt.Errorf("connect to ZooKeeper: %w", err)
	}
	l.conn = conn
	l.work.Go(func() {
		for range events {
		}
	})
	return l, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (l *Locker) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.closed, timeout)
	defer cancel()
	c, err := l.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Err() != nil {
		return nil, errors.Join(l.closed.Err(), c.Close())
	}
	l.raw = c
	return c, nil
}

// heard is told of the session's state, before anything else happens to it.
func (l *Locker) heard(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		id := l.conn.SessionID()
		if l.session == nil || l.session.id != id {
			l.expire()
			l.session = l.begin(id)
		}
		l.link = l.begin(id)
	case zk.StateDisconnected:
		l.disconnect()
	case zk.StateExpired:
		l.expire()
	default:
		return
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Locker) disconnect() {
	if l.link != nil {
		l.link.end()
		l.link = nil
	}
}

func (l *Locker) expire() {
	l.disconnect()
	if l.session != nil {
		l.session.end()
		l.session = nil
	}
}

// connected waits for a connection with a session, and returns the lives of both.
func (l *Locker) connected(ctx context.Context) (link, session *life, err error) {
	for {
		l.mu.Lock()
		link, session, changed := l.link, l.session, l.changed
		l.mu.Unlock()
		if link != nil {
			return link, session, nil
		}
		select {
		case <-changed:
		case <-l.closed.Done():
			return nil, nil, zk.ErrClosing
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// Close ends the session, and the locks with it.
func (l *Locker) Close() {
	l.conn.Close()
	l.mu.Lock()
	l.close()
	if l.raw != nil {
		_ = l.raw.Close() // the library may wait for an answer on it
	}
	l.mu.Unlock()
	l.work.Wait()
}

// Acquire asks for the lock, and waits in line for it.
func (l *Locker) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	long := time.Duration(0)
	if l.Heed == Leased {
		long = l.TTL
	}
	return adapt.Acquire(ctx, name, o, long, l.acquire)
}

func (l *Locker) acquire(ctx context.Context, lease lock.Lease, wait time.Duration) (*lock.Hold, error) {
	limited := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	p, err := l.enter(limited, lease)
	if err == nil {
		err = p.first(limited, wait > 0)
	}
	var seen sight
	if err == nil {
		seen, err = p.look(limited)
	}
	if err != nil {
		return nil, p.giveBack(ctx, err)
	}
	lease.Token = seen.stat.Czxid
	p.unwatch = context.AfterFunc(seen.alive, p.remove) //nolint:contextcheck // a lock that was lost must not stay behind
	var renew func(ctx context.Context, d time.Duration) (time.Time, error)
	if l.Heed == Leased {
		lease.Length = l.within(lease.Length)
		renew = func(ctx context.Context, d time.Duration) (time.Time, error) {
			seen, err := p.look(ctx)
			return adapt.Expires(seen.sent, l.within(d)), err
		}
	}
	if lease.Length > 0 {
		lease.Expires = adapt.Expires(seen.sent, lease.Length)
	}
	return adapt.Kept(lease, seen.alive, p.release, renew), nil //nolint:contextcheck // alive says when it is lost
}

// within is a lease that does not outlast the session.
func (l *Locker) within(d time.Duration) time.Duration {
	if d == 0 || d > l.TTL {
		return l.TTL
	}
	return d
}

// A place is a request's node in the line for a lock.
type place struct {
	l       *Locker
	parent  string
	mark    string // by which the node is found whose creation had no answer
	session *life

	created chan struct{} // closed once no request that creates it will be sent
	gone    chan struct{} // closed once it is certain that there is no node of it
	unwatch func() bool   // of a hold, once it is given up

	mu       sync.Mutex
	node     string // its name in the parent; empty while it is not known
	removing bool
}

// enter makes a node at the end of the line.
func (l *Locker) enter(ctx context.Context, lease lock.Lease) (*place, error) {
	p := &place{
		l: l, parent: l.Root + "/lock-" + url.PathEscape(lease.Name), // a slash would make it part of another lock
		mark: lease.Request + "-", created: make(chan struct{}), gone: make(chan struct{}),
	}
	var err error
	if _, p.session, err = l.connected(ctx); err != nil {
		close(p.gone)
		return p, err
	}
	create := func() (string, error) {
		return l.conn.Create(p.parent+"/"+p.mark, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	}
	path, err := call(ctx, func() (string, error) {
		defer close(p.created)
		path, err := create()
		if errors.Is(err, zk.ErrNoNode) {
			for _, parent := range []string{l.Root, p.parent} {
				if _, err := l.conn.Create(parent, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
					return "", err
				}
			}
			return create()
		}
		return path, err
	})
	if err != nil {
		return p, err
	}
	p.mu.Lock()
	p.node = path[strings.LastIndexByte(path, '/')+1:]
	p.mu.Unlock()
	return p, nil
}

// errTaken says that another node is before this one.
var errTaken = errors.New("another is before it in the line")

// errExpired says that the session has ended, and the place in the line with it.
var errExpired = errors.New("its session has ended")

// first returns once the node is the lowest. Where it may not wait, it fails with errTaken
// if it is not.
func (p *place) first(ctx context.Context, wait bool) error {
	for {
		children, err := repeat(ctx, p.session, func() ([]string, error) {
			children, _, err := p.l.conn.Children(p.parent)
			return children, err
		})
		if err != nil {
			return err
		}
		before := ""
		for _, other := range children {
			if n := number(other); n < number(p.node) && (before == "" || n > number(before)) {
				before = other
			}
		}
		switch {
		case before == "":
			return nil
		case !wait:
			return errTaken
		}
		goes, err := repeat(ctx, p.session, func() (<-chan zk.Event, error) {
			there, _, goes, err := p.l.conn.ExistsW(p.parent + "/" + before)
			if err == nil && !there {
				return nil, nil //nolint:nilnil // nothing is to be waited for
			}
			return goes, err
		})
		if err != nil {
			return err
		}
		if goes == nil {
			continue
		}
		select {
		case <-goes:
			if p.l.hasty {
				return nil
			}
		case <-p.session.Done():
			return errExpired
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// number is the place of a node in the line.
func number(node string) int {
	n, err := strconv.Atoi(node[strings.LastIndexByte(node, '-')+1:])
	if err != nil {
		return -1 // a stranger's, which is waited for
	}
	return n
}

// A sight is what was seen of a node that is there: alive ends when its holder must stop, sent is when it was asked for.
type sight struct {
	alive *life
	sent  time.Time
	stat  *zk.Stat
}

// look sees that the node is there.
func (p *place) look(ctx context.Context) (sight, error) {
	seen, err := repeat(ctx, p.session, func() (sight, error) {
		link, session, err := p.l.connected(ctx)
		switch {
		case err != nil:
			return sight{}, err
		case session != p.session:
			return sight{}, errExpired
		}
		seen := sight{alive: link, sent: time.Now()}
		if p.l.Heed == Expired {
			seen.alive = session
		}
		there, stat, err := p.l.conn.Exists(p.parent + "/" + p.node)
		if err == nil && !there {
			err = fmt.Errorf("%w: its node is gone", lock.ErrNotHeld)
		}
		seen.stat = stat
		return seen, err
	})
	if errors.Is(err, errExpired) {
		err = errors.Join(lock.ErrNotHeld, err)
	}
	return seen, err
}

// giveBack removes the place of a request that was not granted, and says whether it was
// refused: only once there is certainly no node of it.
func (p *place) giveBack(ctx context.Context, why error) error {
	p.remove()
	refused := errors.Is(why, errTaken) || errors.Is(why, errExpired) || errors.Is(why, context.DeadlineExceeded) && ctx.Err() == nil
	timeout := time.NewTimer(confirm)
	defer timeout.Stop()
	select {
	case <-p.gone:
		if refused {
			return fmt.Errorf("%w: %w", lock.ErrNotAcquired, why)
		}
	case <-ctx.Done():
	case <-timeout.C:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return why
}

// release removes the place of a hold.
func (p *place) release(ctx context.Context) error {
	select {
	case <-p.gone:
		return nil // an earlier call began it
	case <-p.session.Done():
		return fmt.Errorf("%w: %w", lock.ErrNotHeld, errExpired)
	default:
	}
	_, err := call(ctx, func() (struct{}, error) { return struct{}{}, p.l.conn.Delete(p.parent+"/"+p.node, -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%w: its node is gone", lock.ErrNotHeld)
	case err != nil:
		p.remove()
		return fmt.Errorf("delete its node: %w", err)
	}
	p.unwatch()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.removing {
		p.removing = true
		close(p.gone)
	}
	return nil
}

// remove sees to it that there is no node of this place, until it is certain.
func (p *place) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removing {
		return
	}
	p.removing = true
	select {
	case <-p.gone:
		return
	default:
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.l.closed.Err() != nil {
		close(p.gone) // with the session
		return
	}
	// A request that waited for a connection may have been sent in the next session, so that
	// the end of this one proves nothing.
	p.l.work.Go(func() {
		defer close(p.gone)
		select {
		case <-p.created:
		case <-p.l.closed.Done():
		}
		for p.l.closed.Err() == nil && !p.removed() {
			_ = pause(p.l.closed, p.l.closed)
		}
	})
}

// removed reports whether it is certain that there is no node of this place.
func (p *place) removed() bool {
	p.mu.Lock()
	node := p.node
	p.mu.Unlock()
	if node == "" {
		// Its creation had no answer. What was on its way to the leader when the connection
		// ended comes before the sync, or never.
		if _, err := p.l.conn.Sync(p.parent); err != nil {
			return errors.Is(err, zk.ErrNoNode)
		}
		children, _, err := p.l.conn.Children(p.parent)
		if err != nil {
			return errors.Is(err, zk.ErrNoNode)
		}
		for _, child := range children {
			if strings.HasPrefix(child, p.mark) {
				node = child
			}
		}
		if node == "" {
			return true
		}
	}
	err := p.l.conn.Delete(p.parent+"/"+node, -1)
	return err == nil || errors.Is(err, zk.ErrNoNode)
}

// repeat asks until there is an answer; only what changes nothing may be asked so.
func repeat[T any](ctx context.Context, session *life, ask func() (T, error)) (T, error) {
	for {
		v, err := call(ctx, ask)
		switch {
		case errors.Is(err, zk.ErrSessionExpired) || session.Err() != nil:
			return v, errExpired
		case !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer): // it may not be answered when it is repeated
			return v, err
		}
		if err := pause(ctx, session); err != nil {
			return v, err
		}
	}
}

// pause waits a moment before a request is repeated.
func pause(ctx, session context.Context) error {
	t := time.NewTimer(again)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-session.Done():
		return errExpired
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call waits for an answer of the library's, which knows of no context.
func call[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		v, err := f()
		answered <- answer{v, err}
	}()
	select {
	case a := <-answered:
		return a.v, a.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}
