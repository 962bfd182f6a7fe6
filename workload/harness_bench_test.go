package workload_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// lineCounter counts the events that are written.
type lineCounter int64

func (n *lineCounter) Write(b []byte) (int, error) {
	*n += lineCounter(bytes.Count(b, []byte{'\n'}))
	return len(b), nil
}

// BenchmarkHarness is what clients and recorder can do together in a second, with
// a lock that costs next to nothing and nearly no time spent in holding it. An
// operation is a quarter of a second. recorder-% is the share of that which the
// recorder took, by what an event costs it alone.
func BenchmarkHarness(b *testing.B) {
	var n lineCounter
	for b.Loop() {
		r := history.NewRecorder(&n)
		locks := memory.New()
		ctx, cancel := context.WithTimeout(b.Context(), 250*time.Millisecond)
		workload.Run(ctx, workload.Config{
			Clients: 16, Locks: 16, Hold: 1, Think: 1, Lease: time.Minute, Wait: time.Second,
		}, []workload.Zone{{Name: "zone-a", Locker: locks}}, r, &workload.Processes{})
		cancel()
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	perSecond := float64(n) / b.Elapsed().Seconds()
	b.ReportMetric(perSecond, "events/s")
	b.ReportMetric(100*perSecond*recording(b).Seconds(), "recorder-%")
}

// recording is what one event costs the recorder.
func recording(b *testing.B) time.Duration {
	b.Helper()
	const events = 20_000
	r := history.NewRecorder(new(lineCounter))
	e := history.Event{Process: 1, Op: history.Acquire, Type: history.OK, Lock: "lock-1", Owner: "zone-a.1#17", Lease: time.Minute, Expires: time.Minute}
	begin := time.Now()
	for range events {
		r.Record(e)
	}
	return time.Since(begin) / events
}
