package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockchaos/lockchaos/lock"
)

const (
	// The histograms count from 0.1us to 5 minutes, to three digits.
	shortest, longest = int64(100), int64(5 * time.Minute)
	digits            = 3
	// shards is how many workers, at most, share a set of histograms.
	shards = 8
	// errorPause keeps a system that fails at once from spinning.
	errorPause = time.Millisecond
	// releaseLimit bounds the releases that the end of a slice leaves.
	releaseLimit = 10 * time.Second
	// errorKinds bounds how many different errors are kept.
	errorKinds = 10
)

// The phases of a slice.
const (
	warming int32 = iota
	measuring
	over
)

// A driver has the workers of one slice do their work.
type driver struct {
	workload  Workload
	instances []Acquire
	limit     int64 // operations at most; 0 is any number
	locks     []guarded
	shards    [shards]shard
	grants    []atomic.Int64 // of each worker, while measuring
	phase     atomic.Int32
	begun     atomic.Int64
	start     time.Time // of an open loop's schedule
	served    atomic.Int64
}

// guarded is a lock that the workers want.
type guarded struct {
	name string
	*exclusion
}

// A shard is what some of the workers recorded.
type shard struct {
	mu sync.Mutex

	acquire, release, cycle, handover *hdrhistogram.Histogram

	cycles, handovers, refused, unfinished int64
	violations, lost                       int64
	longest                                time.Duration // wait, ended or not
	errors                                 map[string]int64
}

// newDriver names the locks with a prefix, so that slices share none.
func newDriver(w Workload, instances []Acquire, prefix string) *driver {
	d := &driver{workload: w, instances: instances, start: time.Now(), grants: make([]atomic.Int64, w.Workers)}
	locks := w.Locks
	if locks == 0 {
		locks = w.Workers
	}
	for i := range locks {
		d.locks = append(d.locks, guarded{fmt.Sprintf("%s-%d", prefix, i), newExclusion()})
	}
	for i := range d.shards {
		s := &d.shards[i]
		s.errors = map[string]int64{}
		for _, h := range []**hdrhistogram.Histogram{&s.acquire, &s.release, &s.cycle, &s.handover} {
			*h = hdrhistogram.New(shortest, longest, digits)
		}
	}
	return d
}

// work runs all workers until the context ends.
func (d *driver) work(ctx context.Context, seed uint64) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	releasing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	context.AfterFunc(ctx, func() { time.AfterFunc(releaseLimit, end) })
	var all sync.WaitGroup
	for i := range d.workload.Workers {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				begin, ok := d.next(ctx)
				if !ok {
					if d.workload.Turns {
						stop() // no other worker is left to take turns with
					}
					return
				}
				d.once(ctx, releasing, i, d.lockOf(i, rng), begin)
			}
		})
	}
	all.Wait()
}

// next waits until an operation is due, and returns when that was. It is false
// when there are no more.
func (d *driver) next(ctx context.Context) (begin time.Time, ok bool) {
	n := d.begun.Add(1) - 1
	if d.limit > 0 && n >= d.limit {
		return begin, false
	}
	if d.workload.Rate == 0 {
		return time.Now(), true
	}
	begin = d.start.Add(time.Duration(float64(n) / d.workload.Rate * float64(time.Second)))
	if wait := time.Until(begin); wait > 0 && pause(ctx, wait) != nil {
		return begin, false
	}
	return begin, true
}

// due is how many operations of an open loop should have begun by then.
func (d *driver) due(t time.Time) int64 { return int64(t.Sub(d.start).Seconds() * d.workload.Rate) }

func (d *driver) lockOf(worker int, rng *rand.Rand) int {
	switch d.workload.Locks {
	case 0:
		return worker
	case 1:
		return 0
	default:
		return rng.IntN(d.workload.Locks)
	}
}

// once acquires and releases a lock. begin is when that should have begun.
func (d *driver) once(ctx, releasing context.Context, worker, n int, begin time.Time) {
	s := &d.shards[worker%shards]
	x := d.locks[n]
	asked := begin
	if d.workload.Rate > 0 { // it may be late
		asked = time.Now()
	}
	if d.workload.Endless {
		ctx, releasing = context.WithoutCancel(ctx), context.WithoutCancel(releasing)
	}
	release, err := d.instances[worker%len(d.instances)](ctx, x.name)
	granted := time.Now()
	if err != nil {
		s.failed(ctx, err, granted.Sub(begin), d.phase.Load() == measuring)
		if ctx.Err() == nil {
			_ = pause(ctx, errorPause)
		}
		return
	}
	p := x.enter(worker, asked, granted)
	switch {
	case d.workload.Hold > 0:
		time.Sleep(d.workload.Hold) // what the holder does is no work
	case d.workload.Contended():
		runtime.Gosched() // so that a worker that was granted the same lock gets in
	}
	leaving := time.Now()
	x.leave(worker, leaving)
	var next <-chan struct{}
	if d.workload.Turns {
		next = x.next()
	}
	err = release(releasing)
	end := time.Now()
	if d.workload.Rate > 0 {
		d.served.Add(1)
	}
	measured := d.phase.Load() == measuring
	if measured {
		d.grants[worker].Add(1)
	}
	s.passed(p, measured, granted.Sub(begin), end.Sub(leaving), end.Sub(begin)-leaving.Sub(granted), err)
	if next != nil {
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

// passed records a grant and what became of its release. A violation counts
// also while warming up, and so does a lock that was lost before its lease ended.
func (s *shard) passed(p passage, measured bool, acquire, release, cycle time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.violated {
		s.violations++
	}
	switch {
	case errors.Is(err, lock.ErrNotHeld):
		s.lost++
	case err != nil:
		s.count("release: " + err.Error())
	}
	if !measured {
		return
	}
	s.longest = max(s.longest, acquire)
	record(s.acquire, acquire)
	if err == nil { // a release that fails at once is not a fast one
		s.cycles++
		record(s.release, release)
		record(s.cycle, cycle)
	}
	if p.handed {
		s.handovers++
	}
	if p.passed {
		record(s.handover, p.took)
	}
}

// tells reports whether there is something to tell of the slice: what its metric is
// made of, or what went wrong.
func (d *driver) tells() bool {
	for i := range d.shards {
		if d.shards[i].tells(d.workload.Metric) {
			return true
		}
	}
	return false
}

func (s *shard) tells(m Metric) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused+s.violations+s.lost > 0 || len(s.errors) > 0 {
		return true
	}
	switch m {
	case HandoversPerSecond:
		return s.handovers > 0
	case HandoverMedian:
		return s.handover.TotalCount() > 0
	default:
		return s.cycles > 0
	}
}

// failed records an acquire that came to nothing: because the slice was over, or
// for another reason.
func (s *shard) failed(ctx context.Context, err error, waited time.Duration, measured bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		s.unfinished++
		s.longest = max(s.longest, waited)
	case errors.Is(err, lock.ErrNotAcquired):
		if measured {
			s.refused++
		}
	default:
		s.count("acquire: " + err.Error())
	}
}

// count keeps the first kinds of error by their text, and the rest as others.
func (s *shard) count(text string) {
	if _, known := s.errors[text]; !known && len(s.errors) >= errorKinds {
		text = "others"
	}
	s.errors[text]++
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), shortest), longest)) // within its bounds
}
