package history_test

import (
	"io"
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
	for name, run := range map[string]func(b *testing.B, operation func()){
		"alone": func(b *testing.B, operation func()) {
			b.Helper()
			for b.Loop() {
				operation()
			}
		},
		"together": func(b *testing.B, operation func()) {
			b.Helper()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					operation()
				}
			})
		},
	} {
		b.Run(name, func(b *testing.B) {
			r := history.NewRecorder(io.Discard)
			b.ReportAllocs()
			before := processor()
			run(b, func() {
				r.Record(invoke)
				r.Record(ok)
			})
			b.ReportMetric(float64(processor()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
