package checker_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// A crowd is how many clients wait for one lock, and how often an outcome is
// unknown.
type crowd struct {
	operations, clients int
	unknown             float64
}

// write writes a legal history of such a crowd, with an owner an attempt.
func (c crowd) write(w io.Writer) error {
	const lease = 20 * time.Millisecond
	rnd := rand.New(rand.NewPCG(1, uint64(c.clients)))
	out := bufio.NewWriterSize(w, 1<<20)
	var now time.Duration
	index, owners, processes := 0, 0, c.clients
	line := make([]byte, 0, 256)
	write := func(process, owner int, typ, op string, more ...any) {
		now += time.Duration(1 + rnd.IntN(2000))
		line = fmt.Appendf(line[:0], `{"index":%d,"time":%d,"process":%d,"type":"%s","op":"%s","lock":"orders","owner":"c%d-%d"`,
			index, now, process, typ, op, process, owner)
		if op == "acquire" {
			line = append(line, `,"lease":20000000`...)
		}
		for i := 0; i < len(more); i += 2 {
			line = fmt.Appendf(line, `,"%s":%d`, more[i], more[i+1])
		}
		line = append(line, '}', '\n')
		_, _ = out.Write(line)
		index++
	}
	type waiter struct{ process, owner int }
	waiting := make([]waiter, 0, c.clients)
	ask := func(process int) {
		owners++
		waiting = append(waiting, waiter{process, owners})
		write(process, owners, "invoke", "acquire")
	}
	for i := range c.clients {
		ask(i)
	}
	for done := 0; done < c.operations; {
		at := rnd.IntN(len(waiting))
		w := waiting[at]
		waiting[at] = waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		done++
		if rnd.Float64() < c.unknown {
			write(w.process, w.owner, "info", "acquire")
			if rnd.IntN(2) == 0 { // it was granted all the same
				now += lease
			}
			ask(processes)
			processes++
			continue
		}
		write(w.process, w.owner, "ok", "acquire", "expires", int64(now+lease), "token", done)
		if len(waiting) < c.clients-1 {
			ask(processes)
			processes++
		}
		write(w.process, w.owner, "invoke", "release")
		done++
		if rnd.Float64() < c.unknown {
			write(w.process, w.owner, "info", "release")
			now += lease
			ask(processes)
			processes++
			continue
		}
		write(w.process, w.owner, "ok", "release")
		ask(w.process)
	}
	return out.Flush()
}

// live is how much memory the heap has, in bytes.
func live() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() + sample[1].Value.Uint64()
}

// peak runs something and tells the most memory that the heap had meanwhile.
func peak(of func()) uint64 {
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		m := live()
		for {
			select {
			case <-tick.C:
				m = max(m, live())
			case <-stop:
				most <- max(m, live())
				return
			}
		}
	}()
	of()
	close(stop)
	return <-most
}

// BenchmarkFile judges histories from files with all checkers, reading
// included, and beside that with porcupine alone on the whole lock, within 20
// seconds. LOCKCHAOS_OPERATIONS is the most operations, by default a million.
func BenchmarkFile(b *testing.B) {
	most := 1_000_000
	if text := os.Getenv("LOCKCHAOS_OPERATIONS"); text != "" {
		var err error
		most, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for operations := 1_000; operations <= most; operations *= 10 {
		for _, clients := range []int{5, 20, 100} {
			for _, unknown := range []float64{0, 0.01, 0.1} {
				c := crowd{operations, clients, unknown}
				name := fmt.Sprintf("operations=%d/clients=%d/unknown=%g%%", operations, clients, 100*unknown)
				path := filepath.Join(b.TempDir(), "history.jsonl")
				b.Run(name+"/engine=both", func(b *testing.B) { c.benchmark(b, path, judgeFile) })
				b.Run(name+"/engine=sweep", func(b *testing.B) { c.benchmark(b, path, sweepFile) })
				if operations <= 10_000 { // beyond, it needs n*n/8 bytes at the best
					b.Run(name+"/engine=porcupine", func(b *testing.B) { c.benchmark(b, path, searchFile) })
				}
			}
		}
	}
}

func (c crowd) benchmark(b *testing.B, path string, judge func(context.Context, io.Reader) (checker.Verdict, error)) {
	b.Helper()
	if _, err := os.Stat(path); err != nil {
		f, err := os.Create(path)
		require.NoError(b, err)
		require.NoError(b, c.write(f))
		require.NoError(b, f.Close())
	}
	most := uint64(0)
	verdict := checker.Unknown
	for b.Loop() {
		most = max(most, peak(func() {
			f, err := os.Open(path)
			require.NoError(b, err)
			verdict, err = judge(b.Context(), f)
			require.NoError(b, err)
			require.NoError(b, f.Close())
		}))
	}
	require.NotEqual(b, checker.Invalid, verdict)
	b.ReportMetric(float64(most)/(1<<20), "peak-MB")
	decided := 1.0
	if verdict == checker.Unknown {
		decided = 0
	}
	b.ReportMetric(decided, "decided")
}

// BenchmarkEngines is the two engines alone, on a history that is in memory and
// of which it is known who held what.
func BenchmarkEngines(b *testing.B) {
	for _, operations := range []int{1_000, 10_000} {
		for _, clients := range []int{5, 20, 100} {
			var file bytes.Buffer
			require.NoError(b, crowd{operations, clients, 0}.write(&file))
			h, err := history.ReadAll(&file)
			require.NoError(b, err)
			p := checker.Prepare(h, "orders")
			name := fmt.Sprintf("operations=%d/clients=%d", operations, clients)
			b.Run(name+"/engine=sweep", func(b *testing.B) {
				for b.Loop() {
					require.Equal(b, checker.Valid, p.Sweep())
				}
			})
			b.Run(name+"/engine=porcupine", func(b *testing.B) {
				verdict := checker.Unknown
				for b.Loop() {
					verdict = p.Search(b.Context())
				}
				require.NotEqual(b, checker.Invalid, verdict)
			})
		}
	}
}

func judgeFile(ctx context.Context, r io.Reader) (checker.Verdict, error) {
	report, err := checker.CheckReader(ctx, history.NewReader(r))
	return report.Verdict, err
}

func sweepFile(ctx context.Context, r io.Reader) (checker.Verdict, error) {
	report, err := checker.CheckReader(ctx, history.NewReader(r), checker.Assumptions(), checker.MutualExclusion(), checker.Ownership())
	return report.Verdict, err
}

func searchFile(ctx context.Context, r io.Reader) (checker.Verdict, error) {
	h, err := history.ReadAll(r)
	if err != nil {
		return checker.Unknown, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return checker.Prepare(h, "orders").Search(ctx), nil
}

func TestTheBenchmarksHistoriesAreLegal_NoRace(t *testing.T) {
	t.Parallel()
	for _, c := range []crowd{{10_000, 5, 0}, {10_000, 20, 0.01}, {10_000, 100, 0.1}} {
		var file bytes.Buffer
		require.NoError(t, c.write(&file))
		r, err := checker.CheckReader(t.Context(), history.NewReader(&file))
		require.NoError(t, err)
		require.Equal(t, checker.Valid, r.Verdict, "%+v", r)
		require.Positive(t, r.Events)
	}
}

// allocated is how many bytes something allocates in all.
func allocated(of func()) uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	of()
	metrics.Read(sample)
	return sample[0].Value.Uint64() - before
}

// together is a history in which so many owners hold something at once: one lock,
// or if it is not declared, a lock each.
func together(n int, declare history.Event, mode history.Mode) *history.History {
	h := &history.History{}
	lock := func(int) string { return "k" }
	if declare.Kind == "" {
		lock = func(i int) string { return "k" + strconv.Itoa(i) }
	} else {
		declare.Process, declare.Type, declare.Op, declare.Lock = history.NoProcess, history.OK, history.Declare, "k"
		h.Events = append(h.Events, declare)
	}
	for _, op := range []history.Op{history.Acquire, history.Release} {
		for i := range n {
			for _, typ := range []history.Type{history.Invoke, history.OK} {
				at := len(h.Events)
				h.Events = append(h.Events, history.Event{
					Index: int64(at), Time: time.Duration(at), Process: i, Type: typ, Op: op, Lock: lock(i), Owner: strconv.Itoa(i), Mode: mode,
				})
			}
		}
	}
	return h
}

// The cost grows with the length of a history, and not with how many hold a lock
// at once, or how many locks are held: four times as many allocate four times as
// much, not sixteen.
// (It is not parallel, because it counts what all goroutines allocate.)
func TestCostIsLinearInWhatIsHeldAtOnce(t *testing.T) {
	for _, test := range []struct {
		name    string
		declare history.Event
		mode    history.Mode
	}{
		{"readers", history.Event{Kind: history.KindRW}, history.Read},
		{"permits", history.Event{Kind: history.KindSemaphore, Capacity: 1 << 20}, history.Permit},
		{"locks", history.Event{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cost := func(n int) uint64 {
				h := together(n, test.declare, test.mode)
				return allocated(func() {
					r, err := checker.CheckReader(t.Context(), list(h))
					require.NoError(t, err)
					require.NotEqual(t, checker.Invalid, r.Verdict)
				})
			}
			few, many := cost(5_000), cost(20_000)
			t.Logf("%d MB, %d MB", few>>20, many>>20)
			require.Less(t, many, 8*few)
		})
	}
}

// Locks that no owner holds or may still release are forgotten: what is kept
// does not grow with how many there were.
func TestMemoryForgetsLocksThatAreDone(t *testing.T) {
	t.Parallel()
	const locks = 40_000
	h := together(locks, history.Event{}, "")
	kept, err := checker.Kept(t.Context(), list(&history.History{Events: h.Events[:2*locks]}))
	require.NoError(t, err)
	require.Equal(t, 2*locks, kept, "while all are held")
	kept, err = checker.Kept(t.Context(), list(h))
	require.NoError(t, err)
	require.Less(t, kept, locks, "until all are released")
}

// What a history costs grows with its length, and what the judge keeps does not.
func TestCostIsLinearInTheLength(t *testing.T) {
	cost := func(operations int) (allocates, keeps uint64) {
		var file bytes.Buffer
		require.NoError(t, crowd{operations, 20, 0}.write(&file))
		allocates = allocated(func() {
			keeps = peak(func() {
				r, err := checker.CheckReader(t.Context(), history.NewReader(&file))
				require.NoError(t, err)
				require.Equal(t, checker.Valid, r.Verdict)
			})
		})
		return allocates, keeps
	}
	short, _ := cost(50_000)
	long, _ := cost(200_000)
	t.Logf("%d MB, %d MB", short>>20, long>>20)
	require.Less(t, long, 6*short)
}
