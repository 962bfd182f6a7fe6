package simredis_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// start is where clocks begin, in microseconds since 1970.
const start = 1_700_000_000_000_000

// waiter is a server whose timers and replicas the test is.
type waiter struct {
	*simredis.Server

	timers []func()
	acked  int64 // by one replica
	out    bytes.Buffer
	c      *simredis.Session
}

func newWaiter(t *testing.T) *waiter {
	t.Helper()
	w := &waiter{}
	host := alone(func() int64 { return start })
	host.After = func(_ time.Duration, f func()) func() {
		i := len(w.timers)
		w.timers = append(w.timers, f)
		return func() { w.timers[i] = nil }
	}
	host.Acked = func(offset int64) int64 {
		if w.acked >= offset {
			return 1
		}
		return 0
	}
	w.Server = simredis.New(host)
	w.c = w.Open(func(b []byte) { w.out.Write(b) })
	t.Cleanup(w.Close)
	return w
}

// send returns what the client gets at once.
func (w *waiter) send(args ...string) string {
	w.c.Take([][]string{args})
	return w.got()
}

func (w *waiter) got() string {
	defer w.out.Reset()
	return w.out.String()
}

func TestWait(t *testing.T) {
	t.Run("nothing written", func(t *testing.T) {
		require.Equal(t, ":1\r\n", newWaiter(t).send("WAIT", "1", "100"))
	})
	t.Run("acknowledged", func(t *testing.T) {
		w := newWaiter(t)
		w.send("SET", "k", "v")
		require.Empty(t, w.send("WAIT", "1", "100"))
		require.True(t, w.c.Blocked())
		require.Empty(t, w.send("GET", "k"), "a request behind one that waits")
		w.acked = w.Offset() - 1
		w.Acknowledged()
		require.Empty(t, w.got())
		w.acked = w.Offset()
		w.Acknowledged()
		require.Equal(t, ":1\r\n$1\r\nv\r\n", w.got())
		require.Nil(t, w.timers[0], "the timeout goes on")
	})
	t.Run("timeout", func(t *testing.T) {
		w := newWaiter(t)
		w.send("SET", "k", "v")
		require.Empty(t, w.send("WAIT", "1", "100"))
		w.timers[0]()
		require.Equal(t, ":0\r\n", w.got())
		require.False(t, w.c.Blocked())
	})
	t.Run("a write of another session", func(t *testing.T) {
		w := newWaiter(t)
		w.Do("SET", "k", "v")
		require.Equal(t, ":1\r\n", w.send("WAIT", "1", "0"), "it waits for its own writes")
	})
	t.Run("within a transaction", func(t *testing.T) {
		w := newWaiter(t)
		w.send("SET", "k", "v")
		w.send("MULTI")
		w.send("WAIT", "1", "0")
		require.Equal(t, "*1\r\n:0\r\n", w.send("EXEC"))
	})
	t.Run("on a replica", func(t *testing.T) {
		w := newWaiter(t)
		w.SetReplica(true)
		require.Contains(t, w.send("WAIT", "1", "0"), "-ERR WAIT cannot be used with replica instances")
	})
	t.Run("the connection ends", func(t *testing.T) {
		w := newWaiter(t)
		w.send("SET", "k", "v")
		w.send("WAIT", "1", "100")
		w.c.Close()
		w.acked = w.Offset()
		w.Acknowledged()
		require.Empty(t, w.got())
		require.Nil(t, w.timers[0], "the timeout goes on")
	})
	t.Run("the server becomes a replica", func(t *testing.T) {
		w := newWaiter(t)
		w.send("SET", "k", "v")
		w.send("WAIT", "1", "100")
		w.SetReplica(true)
		require.Contains(t, w.got(), "-UNBLOCKED")
	})
	t.Run("crash", func(t *testing.T) {
		w := newWaiter(t)
		w.send("SET", "k", "v")
		w.send("WAIT", "1", "100")
		w.Crash(true)
		require.Empty(t, w.got())
		require.True(t, w.c.Closed())
		require.Equal(t, "v", w.Do("GET", "k"))
	})
}

func TestBlockingPopEnds(t *testing.T) {
	w := newWaiter(t)
	require.Empty(t, w.send("BLPOP", "l", "1"))
	w.timers[0]()
	require.Equal(t, "*-1\r\n", w.got())
	require.Equal(t, int64(1), w.Do("RPUSH", "l", "e"), "no session waits any more")
	require.Equal(t, "*2\r\n$1\r\nl\r\n$1\r\ne\r\n", w.send("BLPOP", "l", "1"))
}

// What a client sends in pieces is taken once it is complete.
func TestParsePieces(t *testing.T) {
	all := simredis.AppendCommand(nil, "SET", "k", "v\r\nw")
	all = simredis.AppendCommand(all, "PING")
	all = simredis.AppendCommand(all, "GET", "k")
	w := newWaiter(t)
	var kept []byte
	for i := range all {
		kept = append(kept, all[i])
		requests, n, err := simredis.Parse(string(kept))
		require.NoError(t, err)
		w.c.Take(requests)
		kept = kept[n:]
	}
	require.Equal(t, "+OK\r\n+PONG\r\n$4\r\nv\r\nw\r\n", w.got())
	_, _, err := simredis.Parse("*1\r\nPING\r\n")
	require.EqualError(t, err, "Protocol error: expected '$', got 'P'")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("*1\r\n$4\r\nPING\r\n"))
	f.Add([]byte("*-1\r\n"))
	f.Add([]byte("PING\r\n"))
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$-1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, n, _ := simredis.Parse(string(b))
		require.LessOrEqual(t, n, len(b))
		var written []byte
		for _, args := range all {
			written = simredis.AppendCommand(written, args...)
		}
		again, m, err := simredis.Parse(string(written))
		require.NoError(t, err)
		require.Len(t, written, m)
		require.Equal(t, all, again)
	})
}
