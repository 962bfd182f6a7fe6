package history_test

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// BenchmarkRecord is what an operation costs the clients that record it, each with a processor of its own: of both its events the
// stamp, the encoding and the buffer.
func BenchmarkRecord(b *testing.B) {
	invoke := history.Event{Op: history.Acquire, Type: history.Invoke, Lock: "lock-1", Owner: "zone-a.1#17", Lease: time.Second}
	ok := invoke
	ok.Type, ok.Expires, ok.Token, ok.Holds, ok.Node = history.OK, time.Second, 1234567, 1, "redis-1"
	r := history.NewRecorder(io.Discard)
	b.ReportAllocs()
	var clients atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		invoke, ok := invoke, ok
		invoke.Process = int(clients.Add(1))
		ok.Process = invoke.Process
		for pb.Next() {
			r.Record(invoke)
			r.Record(ok)
		}
	})
}
