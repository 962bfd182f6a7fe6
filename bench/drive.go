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

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
)

const (
	// The histograms count from 0.1us to 5 minutes, to three digits.
	shortest, longest = int64(100), int64(5 * time.Minute)
	digits            = 3
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
	record    record
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

// A record is what the workers did.
type record struct {
	mu sync.Mutex
	Slice
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
	d.record.Slice = newSlice()
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
				lock := i
				if d.workload.Locks > 0 {
					lock = rng.IntN(d.workload.Locks)
				}
				d.once(ctx, releasing, i, lock, begin)
			}
		})
	}
	all.Wait()
}

// The intervals of which two in a row have about the same throughput where a system works as fast as it will, and how long that is awaited.
const settleInterval, settleLimit = time.Second, 30 * time.Second

// settle lets the workers go on until an interval has within a tenth the throughput of the one before: a JVM is slow at first.
func (d *driver) settle(ctx context.Context) error {
	for last, end := int64(0), time.Now().Add(settleLimit); time.Now().Before(end); {
		before := d.served.Load()
		if err := await.Pause(ctx, settleInterval); err != nil {
			return err
		}
		now := d.served.Load() - before
		if last > 0 && 10*max(now-last, last-now) < last {
			break
		}
		last = now
	}
	return nil
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
	if wait := time.Until(begin); wait > 0 && await.Pause(ctx, wait) != nil {
		return begin, false
	}
	return begin, true
}

// due is how many operations of an open loop should have begun by then.
func (d *driver) due(t time.Time) int64 { return int64(t.Sub(d.start).Seconds() * d.workload.Rate) }

// once acquires and releases a lock. begin is when that should have begun.
func (d *driver) once(ctx, releasing context.Context, worker, n int, begin time.Time) {
	s := &d.record
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
			_ = await.Pause(ctx, errorPause)
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
	d.served.Add(1)
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
func (s *record) passed(p passage, measured bool, acquire, release, cycle time.Duration, err error) {
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
	s.LongestWait = max(s.LongestWait, acquire)
	observe(s.acquire, acquire)
	if err == nil { // a release that fails at once is not a fast one
		s.Cycles++
		observe(s.release, release)
		observe(s.cycle, cycle)
	}
	if p.handed {
		s.Handovers++
	}
	if p.passed {
		observe(s.handover, p.took)
	}
}

// failed records an acquire that came to nothing: because the slice was over, or
// for another reason.
func (s *record) failed(ctx context.Context, err error, waited time.Duration, measured bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		s.Unfinished++
		s.LongestWait = max(s.LongestWait, waited)
	case errors.Is(err, lock.ErrNotAcquired):
		if measured {
			s.Refused++
		}
	default:
		s.count("acquire: " + err.Error())
	}
}

// count keeps the first kinds of error by their text, and the rest as others.
func (s *record) count(text string) {
	if _, known := s.errors[text]; !known && len(s.errors) >= errorKinds {
		text = "others"
	}
	s.errors[text]++
}

func observe(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), shortest), longest)) // within its bounds
}
