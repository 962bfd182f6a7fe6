package checker_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// A crowd is how many clients use some locks, and how often an outcome is unknown.
type crowd struct {
	operations, clients int
	unknown             float64
	locks               int          // 0 is 1
	mode                history.Mode // Permit: of a semaphore; Read: of a read-write lock that is read four times in five
	permits             int          // that the semaphore has
}

// write writes a legal history of such a crowd, with an owner an attempt.
func (c crowd) write(w io.Writer) error {
	const lease = 20 * time.Millisecond
	rnd := rand.New(rand.NewPCG(1, uint64(c.clients)))
	out := bufio.NewWriterSize(w, 1<<20)
	var now time.Duration
	line := make([]byte, 0, 256)
	index := 0
	write := func(format string, args ...any) {
		now += time.Duration(1 + rnd.IntN(2000))
		line = fmt.Appendf(line[:0], `{"index":%d,"time":%d,`, index, now)
		line = fmt.Appendf(line, format, args...)
		_, _ = out.Write(append(line, "}\n"...))
		index++
	}
	type lock struct {
		name    string
		holders int
		written bool          // by its one holder
		until   time.Duration // when the last of those ends of which no client was told
		token   int
	}
	locks := make([]lock, max(c.locks, 1))
	for i := range locks {
		locks[i].name = "orders"
		if i > 0 {
			locks[i].name += strconv.Itoa(i)
		}
		switch c.mode {
		case history.Permit:
			write(`"process":-1,"type":"ok","op":"declare","lock":"%s","kind":"semaphore","capacity":%d`, locks[i].name, c.permits)
		case history.Read:
			write(`"process":-1,"type":"ok","op":"declare","lock":"%s","kind":"rw"`, locks[i].name)
		default:
		}
	}
	type client struct {
		process, owner int
		mode           history.Mode
		holds          bool
		*lock
	}
	clients, owners, processes := make([]client, c.clients), 0, 0
	event := func(by *client, typ, op, more string) {
		if by.mode != "" {
			more += `,"mode":"` + string(by.mode) + `"`
		}
		write(`"process":%d,"type":"%s","op":"%s","lock":"%s","owner":"c%d-%d"%s`, by.process, typ, op, by.name, by.process, by.owner, more)
	}
	ask := func(by *client, process int) {
		*by = client{process: process, owner: owners, mode: c.mode, lock: &locks[rnd.IntN(len(locks))]}
		if owners++; c.mode == history.Read && rnd.IntN(5) == 0 {
			by.mode = history.Write
		}
		event(by, "invoke", "acquire", `,"lease":20000000`)
	}
	retired := func(by *client) { // its process had an unknown outcome
		processes++
		ask(by, processes)
	}
	for i := range clients {
		processes = i
		ask(&clients[i], i)
	}
	for done := 0; done < c.operations; {
		by := &clients[rnd.IntN(len(clients))]
		l := by.lock
		unknown := rnd.Float64() < c.unknown
		fits := l.holders == 0
		switch by.mode {
		case history.Permit:
			fits = l.holders < c.permits
		case history.Read:
			fits = !l.written
		default: // as it is
		}
		switch {
		case by.holds:
			event(by, "invoke", "release", "")
			done++
			if l.holders--; !unknown {
				event(by, "ok", "release", "")
				l.written = false
				ask(by, by.process)
				continue
			}
			event(by, "info", "release", "")
			l.until, l.written = now+lease, false
			retired(by)
		case l.until > now:
			now += lease / 64
		case !fits:
		case unknown:
			done++
			event(by, "info", "acquire", "")
			if rnd.IntN(2) == 0 { // it was granted all the same
				l.until = now + lease
			}
			retired(by)
		default:
			done++
			l.holders++
			l.token++
			by.holds, l.written = true, by.mode == history.Write
			event(by, "ok", "acquire", fmt.Sprintf(`,"expires":%d,"token":%d`, int64(now+lease), l.token))
		}
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
	for operations := 1_000; operations <= longest(b); operations *= 10 {
		for _, clients := range []int{5, 20, 100} {
			for _, unknown := range []float64{0, 0.01, 0.1} {
				c := crowd{operations: operations, clients: clients, unknown: unknown}
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

// longest is how many operations the longest history of a benchmark has.
func longest(b *testing.B) int {
	b.Helper()
	return fromEnv(b, "LOCKCHAOS_OPERATIONS", 1_000_000)
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
			require.NoError(b, crowd{operations: operations, clients: clients}.write(&file))
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
	for _, c := range []crowd{
		{operations: 10_000, clients: 5},
		{operations: 10_000, clients: 20, unknown: 0.01},
		{operations: 10_000, clients: 100, unknown: 0.1},
		{operations: 10_000, clients: 100, unknown: 0.1, locks: 50},
		{operations: 10_000, clients: 20, unknown: 0.01, mode: history.Read},
		{operations: 10_000, clients: 20, unknown: 0.01, mode: history.Permit, permits: 5},
	} {
		var file bytes.Buffer
		require.NoError(t, c.write(&file))
		r, err := checker.CheckReader(t.Context(), history.NewReader(&file))
		require.NoError(t, err)
		require.Equal(t, checker.Valid, r.Verdict, "%+v", r)
		require.Positive(t, r.Events)
	}
}

// What does not fit into memory is unknown, and the report says what would do.
func TestHistoryBeyondMemoryIsUnknown(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	require.NoError(t, crowd{operations: 2_000, clients: 5}.write(&file))
	text := file.String()
	within := func(most int64) checker.Report {
		r, err := checker.CheckReaderWithin(t.Context(), history.NewReader(strings.NewReader(text)), most)
		require.NoError(t, err)
		return r
	}
	whole := within(math.MaxInt64)
	require.Equal(t, checker.Valid, whole.Verdict)
	part := within(1_000)
	require.Equal(t, checker.Unknown, part.Verdict)
	require.Equal(t, whole.Events, part.Events)
	require.Contains(t, part.Results[0].Summary, "GOMEMLIMIT=")
	require.Equal(t, checker.Unknown, part.Results[0].Verdict)
}

// A verdict does not depend on whether a history is read, or in memory.
func TestWhatIsReadIsJudgedAlike(t *testing.T) {
	t.Parallel()
	for seed := range uint64(cases(t, 150)) {
		h := made(seed)
		want := checker.Check(t.Context(), h)
		got, err := checker.CheckReader(t.Context(), list(h))
		require.NoError(t, err)
		for _, r := range []*checker.Report{&want, &got} {
			r.Took, r.Record = 0, nil
			for i := range r.Results {
				r.Results[i].Took, r.Results[i].Memory = 0, 0
				for j := range r.Results[i].Violations {
					r.Results[i].Violations[j].Minimal = nil
				}
			}
		}
		require.Equal(t, want, got, "seed %d\n%s", seed, oracle.Lines(h))
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
	return &history.History{Events: slices.Collect(heldTogether(n, declare, mode))}
}

// heldTogether are the events of that history.
func heldTogether(n int, declare history.Event, mode history.Mode) iter.Seq[history.Event] {
	lock := func(int) string { return "k" }
	if declare.Kind == "" {
		lock = func(i int) string { return "k" + strconv.Itoa(i) }
	} else {
		declare.Process, declare.Type, declare.Op, declare.Lock = history.NoProcess, history.OK, history.Declare, "k"
	}
	return func(yield func(history.Event) bool) {
		at := 0
		if declare.Kind != "" {
			at++
			if !yield(declare) {
				return
			}
		}
		for _, op := range []history.Op{history.Acquire, history.Release} {
			for i := range n {
				for _, typ := range []history.Type{history.Invoke, history.OK} {
					e := history.Event{Index: int64(at), Time: time.Duration(at), Process: i, Type: typ, Op: op, Lock: lock(i), Owner: strconv.Itoa(i), Mode: mode}
					if at++; !yield(e) {
						return
					}
				}
			}
		}
	}
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
			few, many := cost(2_000), cost(8_000)
			t.Logf("%d MB, %d MB", few>>20, many>>20)
			require.Less(t, many, 8*few)
		})
	}
}

// What a history costs grows with its length alone.
func TestCostIsLinearInTheLength(t *testing.T) {
	cost := func(operations int) uint64 {
		var file bytes.Buffer
		require.NoError(t, crowd{operations: operations, clients: 20}.write(&file))
		return allocated(func() {
			r, err := checker.CheckReader(t.Context(), history.NewReader(&file))
			require.NoError(t, err)
			require.Equal(t, checker.Valid, r.Verdict)
		})
	}
	short, long := cost(20_000), cost(80_000)
	t.Logf("%d MB, %d MB", short>>20, long>>20)
	require.Less(t, long, 6*short)
}

// A listed is a history to be read that is in memory.
type listed struct{ *history.History }

func list(h *history.History) listed { return listed{h} }

func (l listed) Events() iter.Seq2[[]history.Event, error] {
	return func(yield func([]history.Event, error) bool) { yield(l.History.Events, nil) }
}

func (l listed) Truncated() int { return l.History.Truncated }
