package history_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/workload/history"
)

// BenchmarkRecord is what one event costs who records it: the stamp, the
// encoding and the buffer, alone and with eight clients at the same recorder.
func BenchmarkRecord(b *testing.B) {
	event := func(process int) history.Event {
		return history.Event{
			Process: process, Op: history.Acquire, Type: history.OK, Lock: "lock-1", Owner: fmt.Sprintf("zone-a.%d#17", process),
			Lease: time.Second, Expires: time.Second, Token: 1234567, Holds: 1, Node: "redis-1",
		}
	}
	b.Run("alone", func(b *testing.B) {
		r := history.NewRecorder(io.Discard)
		e := event(1)
		b.ReportAllocs()
		for b.Loop() {
			r.Record(e)
		}
	})
	b.Run("together", func(b *testing.B) {
		r := history.NewRecorder(io.Discard)
		b.ReportAllocs()
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			e := event(1)
			for pb.Next() {
				r.Record(e)
			}
		})
	})
}
