package driver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// A Session is what lockchaos says to a driver when it starts.
type Session struct {
	Zone, Topology, Master string
	Servers                []Server
	// Timeout is for how long the driver should wait for a server.
	Timeout time.Duration
	// Watchdog is the lease that a watchdog is to keep alive, and the time to live of a session; 0: the library's own.
	Watchdog time.Duration
}

// An Asker is a lock of kind "rw" or "semaphore", for [Serve].
type Asker interface {
	Ask(ctx context.Context, name string, w Way, o lock.Options) (*lock.Hold, error)
}

// Serve makes a driver of a Go lock: main calls it and returns. hello says what
// the lock is; open makes it for a session when the first lock is asked for, and closeIt is
// called when lockchaos has ended the driver's input. A lock that is no mutex is an [Asker]. A hold keeps what its [lock.Hold] says: its
// expiry, its token, and its loss. A request that its client gives up ends with its context, so that every such driver can promise cancel.
//
// Serve uses the socket that LOCKCHAOS_SOCKET names, else stdin and stdout. Its
// error says what was wrong with what it read, or why open failed.
func Serve(ctx context.Context, hello Hello, open func(context.Context, Session) (l lock.Locker, closeIt func(), err error)) error {
	in, out := io.ReadCloser(os.Stdin), io.Writer(os.Stdout)
	if path := os.Getenv("LOCKCHAOS_SOCKET"); path != "" {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			return fmt.Errorf("connect to lockchaos: %w", err)
		}
		defer conn.Close()
		in, out = conn, conn
	}
	return serve(ctx, in, out, hello, open)
}

func serve(ctx context.Context, in io.Reader, out io.Writer, hello Hello, open func(context.Context, Session) (lock.Locker, func(), error)) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{out: json.NewEncoder(out), holds: map[string]held{}, cancels: map[int64]context.CancelFunc{}}
	defer s.wait.Wait()
	defer cancel()
	var session *request
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), lineLimit)
	for lines.Scan() {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		if q.Op == opHello {
			session, hello.Protocol = &q, Version
			s.say(struct {
				Re int64 `json:"re"`
				Hello
			}{q.ID, hello})
			continue
		}
		switch {
		case session == nil:
			return fmt.Errorf("the request %q came before hello", q.Op)
		case s.locker == nil && q.Op != opPing: // one that is asked for its promises alone connects to no server
			l, closeIt, err := open(ctx, Session{
				Zone: session.Zone, Topology: session.Topology, Master: session.Master, Servers: session.Servers,
				Timeout: time.Duration(session.TimeoutMS) * time.Millisecond, Watchdog: time.Duration(session.WatchdogMS) * time.Millisecond,
			})
			if err != nil {
				return err
			}
			defer closeIt()
			if _, asks := l.(Asker); !asks && (hello.Promises.Kind == kindRW || hello.Promises.Kind == kindSemaphore) {
				return fmt.Errorf("the lock is a %T without the method Ask, and promises kind %q: make it a driver.Asker", l, hello.Promises.Kind)
			}
			s.locker = l
		}
		if q.Op == opCancel {
			s.cancel(q.ID)
			continue
		}
		s.mu.Lock()
		asked, cancel := context.WithCancel(ctx)
		s.cancels[q.ID] = cancel
		s.mu.Unlock()
		s.wait.Go(func() { s.say(s.answer(asked, q)) })
	}
	return lines.Err()
}

// A server answers requests.
type server struct {
	locker lock.Locker
	wait   sync.WaitGroup

	mu      sync.Mutex
	out     *json.Encoder
	next    int
	holds   map[string]held
	cancels map[int64]context.CancelFunc // of requests that are under way
}

// cancel ends the context of a request, if that has no answer yet.
func (s *server) cancel(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.cancels[id]; cancel != nil {
		cancel()
	}
	delete(s.cancels, id)
}

// held is a hold whose loss is told until it is over.
type held struct {
	*lock.Hold
	over context.CancelFunc
}

func (s *server) say(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(v) // lockchaos that is gone is seen by the reader
}

// answer answers a request, whose context ends with it, or where its client gives it up. That of a grant goes on until the release: a
// watchdog may depend on it.
func (s *server) answer(ctx context.Context, q request) response {
	a := response{Re: &q.ID, Result: resultOK}
	var err error
	defer s.cancel(q.ID)
	switch q.Op {
	case opPing:
		return a
	case opAcquire:
		sent := time.Now()
		var h *lock.Hold
		if h, err = s.acquire(ctx, q); err == nil {
			l := h.Lease()
			a.Hold, a.Token, a.Holds, a.ValidMS = s.add(ctx, q.ID, h), l.Token, l.Holds, validity(h, sent)
		}
	case opExtend, opRelease:
		s.mu.Lock()
		h := s.holds[q.Hold]
		s.mu.Unlock()
		switch {
		case h.Hold == nil:
			err = lock.ErrNotHeld
		case q.Op == opRelease:
			if err = h.Release(ctx); err == nil || errors.Is(err, lock.ErrNotHeld) {
				h.over() // it is kept, since a second release is asked of the lock as well
			}
		default:
			sent := time.Now()
			if err = h.Extend(ctx, span(q.LeaseMS)); err == nil {
				a.ValidMS = validity(h.Hold, sent)
			}
		}
	default:
		return response{Re: &q.ID, Result: resultUnsupported}
	}
	switch {
	case err == nil:
		return a
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, lock.ErrNotHeld), errors.Is(err, lock.ErrNotReplicated):
		return response{Re: &q.ID, Result: resultFail, Why: err.Error()}
	default:
		return response{Re: &q.ID, Result: resultInfo, Why: err.Error()}
	}
}

func (s *server) acquire(ctx context.Context, q request) (*lock.Hold, error) {
	o := lock.Options{Owner: q.Owner, Lease: span(q.LeaseMS), Wait: span(q.WaitMS)}
	if asker, is := s.locker.(Asker); is {
		return asker.Ask(ctx, q.Lock, q.Way, o)
	}
	return s.locker.Acquire(ctx, q.Lock, o)
}

// add gives a hold an identity, and tells of its loss.
func (s *server) add(ctx context.Context, request int64, h *lock.Hold) string {
	s.mu.Lock()
	s.next++
	id := "h" + strconv.Itoa(s.next)
	s.holds[id] = held{h, s.cancels[request]}
	delete(s.cancels, request) // its context is that of the hold
	s.mu.Unlock()
	s.wait.Go(func() {
		select {
		case <-h.Lost():
			s.say(response{Event: eventLost, Hold: id})
		case <-ctx.Done():
		}
	})
	return id
}

// validity is how long from then the holder may believe in a hold; nil if it
// has no end.
func validity(h *lock.Hold, from time.Time) *int64 {
	end := h.Lease().Expires
	if end.IsZero() {
		return nil
	}
	ms := max(end.Sub(from), 0).Milliseconds()
	return &ms
}

func span(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(min(max(*ms, 0), maxMillis)) * time.Millisecond
}
