package simredis_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// memoryServer is a simulated server that programs of this process connect to, in
// true time. It notes what they request.
type memoryServer struct {
	mu     sync.Mutex
	s      *simredis.Server
	begun  time.Time
	record []request
	conns  int
}

// request is what a connection sent at a time of the server's clock.
type request struct {
	conn   int
	micros int64
	args   []string
}

func newMemoryServer(tb testing.TB) *memoryServer {
	tb.Helper()
	m := &memoryServer{begun: time.Now()}
	m.s = simredis.New(simredis.Host{Now: m.clock, After: m.after})
	tb.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.s.Crash(false)
		m.s.Close()
	})
	return m
}

// start is where clocks begin, in microseconds since 1970.
const start = 1_700_000_000_000_000

func (m *memoryServer) clock() int64 { return start + time.Since(m.begun).Microseconds() }

func (m *memoryServer) after(d time.Duration, f func()) (stop func()) {
	t := time.AfterFunc(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		f()
	})
	return func() { t.Stop() }
}

// client returns go-redis' with its defaults.
func (m *memoryServer) client(tb testing.TB, address string) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: address, PoolSize: 100, Dialer: m.dial})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (m *memoryServer) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	out := make(chan []byte, 1<<10)
	m.mu.Lock()
	session := m.s.Open(func(b []byte) { out <- slices.Clone(b) })
	m.conns++
	conn := m.conns
	m.mu.Unlock()
	go func() { // from the client
		b := make([]byte, 1<<16)
		var rest []byte
		for {
			n, err := ours.Read(b)
			m.mu.Lock()
			if err != nil || session.Closed() {
				session.Close()
				close(out)
				m.mu.Unlock()
				_ = ours.Close()
				return
			}
			rest = m.receive(session, conn, append(rest, b[:n]...))
			m.mu.Unlock()
		}
	}()
	go func() { // to the client
		for b := range out {
			_, _ = ours.Write(b)
		}
	}()
	return theirs, nil
}

// receive gives the session whole requests, one at a time, and returns what is
// left. The caller holds the mutex.
func (m *memoryServer) receive(session *simredis.Session, conn int, b []byte) []byte {
	for {
		args, n, err := simredis.Parse(string(b))
		if n == 0 && err == nil {
			return b
		}
		if err != nil {
			session.Receive(b)
			return nil
		}
		m.record = append(m.record, request{conn, m.clock(), slices.Clone(args)})
		session.Receive(b[:n])
		b = b[n:]
	}
}
