package history_test

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// BenchmarkRecord is what an operation costs who records it: of both its events the stamp, the encoding and the buffer,
// alone and with eight clients at the same recorder. cpu-ns/op is the same in time of the
// processor, which other work on the machine changes less.
func BenchmarkRecord(b *testing.B) {
	processor := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	invoke := history.Event{Process: 1, Op: history.Acquire, Type: history.Invoke, Lock: "lock-1", Owner: "zone-a.1#17", Lease: time.Second}
	ok := invoke
	ok.Type, ok.Expires, ok.Token, ok.Holds, ok.Node = history.OK, time.Second, 1234567, 1, "redis-1"
	for name, clients := range map[string]int{"alone": 1, "together": 8} {
		b.Run(name, func(b *testing.B) {
			r := history.NewRecorder(io.Discard)
			b.ReportAllocs()
			before := processor()
			var together sync.WaitGroup
			for client := range clients {
				together.Go(func() {
					for n := client; n < b.N; n += clients {
						r.Record(invoke)
						r.Record(ok)
					}
				})
			}
			together.Wait()
			b.ReportMetric(float64(processor()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
