package history_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// ends are both ends of an operation as a client records them.
func ends(process int, op history.Op) (invoke, ok history.Event) {
	invoke = history.Event{
		Process: process, Op: op, Type: history.Invoke, Lock: "lock-1",
		Owner: fmt.Sprintf("zone-a.%d#17", process), Lease: time.Second,
	}
	ok = invoke
	ok.Type, ok.Expires, ok.Token, ok.Holds, ok.Node = history.OK, time.Second, 1234567, 1, "redis-1"
	return invoke, ok
}

// BenchmarkRecord is what one event costs who records it: the stamp, the
// encoding and the buffer, alone and with eight clients at the same recorder; of
// an operation, that is of two events. cpu-ns/op is the same in time of the
// processor, which other work on the machine changes less.
func BenchmarkRecord(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		r := history.NewRecorder(io.Discard)
		_, e := ends(1, history.Acquire)
		b.ReportAllocs()
		before := processorTime(b)
		for b.Loop() {
			r.Record(e)
		}
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	})
	b.Run("operation", func(b *testing.B) {
		r := history.NewRecorder(io.Discard)
		invoke, ok := ends(1, history.Acquire)
		b.ReportAllocs()
		before := processorTime(b)
		for b.Loop() {
			r.Record(invoke)
			r.Record(ok)
		}
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	})
	b.Run("together", func(b *testing.B) {
		r := history.NewRecorder(io.Discard)
		b.ReportAllocs()
		b.SetParallelism(4)
		before := processorTime(b)
		b.RunParallel(func(pb *testing.PB) {
			_, e := ends(1, history.Acquire)
			for pb.Next() {
				r.Record(e)
			}
		})
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkRecordedCycle is an acquire and a release of a lock on a real server,
// in turn with the four events of the two written to a file and without.
// recorder-% is how much longer the former takes, and recorder-cpu-% how much more
// of the processor this process uses: in the median of neighbours, since the machine
// gets slower and faster. One pass is compared with one: two of them together
// are disturbed more often. On a machine with other work the medians take minutes to
// settle (-benchtime 2m). Clients of a run have a link in between, which takes its time.
func BenchmarkRecordedCycle(b *testing.B) {
	topology, err := topologies.ByName("single")
	if err != nil {
		b.Fatal(err)
	}
	d, err := process.Backend{}.Start(b.Context(), topology)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	b.Run("direct", func(b *testing.B) { benchmarkRecordedCycle(b, d.Server("redis-1").Observer()) })
	b.Run("link", func(b *testing.B) {
		linked := topologies.Clients(d.ClientOptions("zone-a"))[0]
		defer func() { _ = linked.Close() }()
		benchmarkRecordedCycle(b, linked)
	})
}

func benchmarkRecordedCycle(b *testing.B, rdb redis.UniversalClient) {
	b.Helper()
	client, err := lock.New(rdb, lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	file, err := os.Create(filepath.Join(b.TempDir(), "history.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	r := history.NewRecorder(file)
	asked, granted := ends(1, history.Acquire)
	releasing, released := ends(1, history.Release)
	const cycles = 128 // so that each pass writes to the file
	pass := func(record func(e history.Event)) (wall, cpu time.Duration) {
		begin, before := time.Now(), processorTime(b)
		for range cycles {
			record(asked)
			h, err := client.Acquire(b.Context(), "lock-1", lock.Options{Lease: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			record(granted)
			record(releasing)
			if err := h.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
			record(released)
		}
		return time.Since(begin), processorTime(b) - before
	}
	recorded := func(e history.Event) { r.Record(e) }
	plain := func(history.Event) {}
	var walls, cpus, times []float64
	for turn := 0; b.Loop(); turn++ {
		var withWall, withCPU, wall, cpu time.Duration
		if turn%2 == 0 {
			withWall, withCPU = pass(recorded)
		}
		wall, cpu = pass(plain)
		if turn%2 == 1 {
			withWall, withCPU = pass(recorded)
		}
		walls = append(walls, float64(withWall)/float64(wall))
		cpus = append(cpus, float64(withCPU)/float64(cpu))
		times = append(times, float64(wall)/cycles)
	}
	b.ReportMetric(0, "ns/op") // which says nothing
	b.ReportMetric(100*(median(walls)-1), "recorder-%")
	b.ReportMetric(100*(median(cpus)-1), "recorder-cpu-%")
	b.ReportMetric(median(times), "ns/cycle")
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// processorTime is what this process has used of processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
