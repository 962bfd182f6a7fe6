package checker

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"
	"unsafe"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// ProgressBound is how long a lock may stay free and asked for, if nothing else
// was said.
const ProgressBound = 10 * time.Second

// Progress is the checker of "progress": a lock that is free is granted to
// a client that asks for it, within the bound; 0 is [ProgressBound].
//
// A lock is free from the instant at which no client can hold it any more and no
// fault is in effect. A hold can last until its release or refusal was
// answered, else until its lease has run out, with any drift added; one without
// a lease until it is released. A grant with an unknown outcome can last for
// its lease from its end on, or from the crash of its process. (It may take effect later still; this property
// takes it that requests do not travel for longer than their lease.) A renewal
// that was sent after the owner had asked to release, and without an inner grant
// left, prolongs nothing: its owner has given that hold up. A request
// for several locks at once, which may be refused one that is free for another
// that is not, asks for none of them. A fault is in effect from its inject until its heal was answered, or for ever.
//
// The lock is stuck if for at least the bound it was free and asked for, and no
// request was granted. It is asked for while a request is under way, and between
// two requests that are no farther apart than a quarter of the bound. One that was granted
// after longer than that was stuck, too: the wait was not bounded. A request for
// more permits than a semaphore has, as far as is known, does not ask for it.
func Progress(bound time.Duration) Checker {
	if bound == 0 {
		bound = ProgressBound
	}
	return &property{
		name: "progress", engine: "free spans", apart: true,
		applies: func(ev *evidence) bool {
			return ev.sees(func(e *history.Event) bool { return e.Op == history.Acquire })
		},
		eager: true, // faults go on
		judge: func(_ context.Context, ev *evidence, f *findings) {
			w, ok := f.memo.(*watch)
			if !ok {
				w = newWatch(bound)
				f.memo = w
			}
			w.findings, w.promises = f, ev.book().Promises
			all, most := ev.history.Events, 0
			for i := range all {
				if all[i].Index < ev.from {
					continue
				}
				w.see(&all[i])
				if l := w.last; l != nil {
					most = max(most, l.asks.len()*int(unsafe.Sizeof(ask{}))+l.holds.len()*int(unsafe.Sizeof(lasting{})))
				}
			}
			f.used(len(w.locks)*int(unsafe.Sizeof(watched{})) + most)
			if !ev.history.Unfinished {
				w.end(ev.history.End())
			}
			f.need(w.granted, "no client was granted a lock, and the record is too short to say that none could be")
		},
		conclude: func(f *findings) {
			w, ok := f.memo.(*watch)
			if !ok {
				return
			}
			f.valid = fmt.Sprintf("no lock was free while a client asked for it for longer than %s", say.Span(w.longest))
			if w.healed > 0 && w.recovered >= 0 {
				f.valid += fmt.Sprintf("; after the last fault a lock was granted again within %s", say.Span(w.recovered))
			}
		},
	}
}

// A watch follows the locks event by event.
type watch struct {
	*findings
	bound    time.Duration
	promises map[string]history.Promise
	granted  bool
	longest  time.Duration // that a lock was free, asked for, and not granted

	faults    map[[2]string]int // in effect, by name and target
	active    int
	calm      time.Duration // when the last fault ended
	healed    int
	recovered time.Duration // from then to the next grant; negative until there is one

	gone  map[int]time.Duration // when a process crashed last
	open  map[string]int        // how many requests of an owner are not answered
	joint map[string]bool       // owners of several that were open at once

	pruned int    // how many locks there were when those at rest were last forgotten
	name   string // of the lock that was seen last
	last   *watched
	locks  map[string]*watched
}

// A watched is one lock. There may be many that are held and not asked for, so
// that one of those is small.
type watched struct {
	until    time.Duration        // when the last of those that are gone may have ended
	holds    few[string, lasting] // of those that may hold, by owner
	lasts    *lasting             // one of them that was found to last, if it is there still
	looked   time.Duration        // when it was last asked whether there is one
	asks     few[int, ask]        // that are not answered, by process
	free     *free                // since the lock was free and asked for; nil if it is not
	capacity int32                // permits of a semaphore that there are for certain; negative for other locks
}

// A free is how long a lock was free, and its requests.
type free struct {
	since  time.Duration // when the lock became free, as far as first is concerned
	first  *ask          // the first of the requests that follow one another while it is free
	asked  time.Duration // when that was sent, or the lock became free
	heard  time.Duration // when the last of them was answered
	told   bool          // that it was stuck
	refuse int           // how many were refused since then
}

// An ask is the invoke of an acquire or extend, as far as it matters here.
type ask struct {
	index            int64
	time, lease      time.Duration
	process, permits int
	owner            string
	acquires         bool
}

func newAsk(e *history.Event) *ask {
	return &ask{e.Index, e.Time, e.Lease, e.Process, e.Permits, e.Owner, e.Op == history.Acquire}
}

// few is a map that takes hardly any memory while it has no more than one entry,
// as those of most locks.
type few[K comparable, V any] struct {
	key  K
	one  *V
	more map[K]*V
}

func (f *few[K, V]) get(key K) *V {
	if f.one != nil && f.key == key {
		return f.one
	}
	return f.more[key]
}

func (f *few[K, V]) set(key K, value *V) {
	switch {
	case f.one == nil && f.more[key] == nil, f.one != nil && f.key == key:
		f.key, f.one = key, value
	case f.more == nil:
		f.more = map[K]*V{key: value}
	default:
		f.more[key] = value
	}
}

func (f *few[K, V]) remove(key K) {
	if f.one != nil && f.key == key {
		f.one = nil
		return
	}
	delete(f.more, key)
}

func (f *few[K, V]) len() int {
	if f.one != nil {
		return 1 + len(f.more)
	}
	return len(f.more)
}

// all are the entries, which may be removed on the way.
func (f *few[K, V]) all() iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		if f.one != nil && !yield(f.key, f.one) {
			return
		}
		for key, value := range f.more {
			if !yield(key, value) {
				return
			}
		}
	}
}

// A lasting is how long an owner may hold a lock.
type lasting struct {
	count int
	until time.Duration
	given int64 // index of the invoke of the release that was to end it; 0 for none
	inner bool  // an inner acquire with an unknown outcome may have counted
}

func newWatch(bound time.Duration) *watch {
	return &watch{bound: bound, faults: map[[2]string]int{}, gone: map[int]time.Duration{}, open: map[string]int{}, joint: map[string]bool{}, locks: map[string]*watched{}, recovered: -1}
}

func (w *watch) see(e *history.Event) {
	switch e.Op {
	case history.Inject, history.Heal:
		w.fault(e)
		return
	case history.Crash:
		w.gone[e.Process] = e.Time
		return
	case history.Acquire, history.Release, history.Extend:
	default:
		return
	}
	if w.last == nil || w.name != e.Lock {
		w.name, w.last = e.Lock, w.locks[e.Lock]
		if w.last == nil {
			w.prune(e.Time)
			w.last = &watched{until: -1}
			w.locks[e.Lock] = w.last
		}
	}
	l := w.last
	if e.Op == history.Acquire {
		w.acquire(l, e, w.promises[e.Lock])
		return
	}
	h := l.holder(e.Owner)
	if e.Type == history.Invoke {
		switch {
		case e.Op == history.Extend:
			l.asks.set(e.Process, newAsk(e))
		case h != nil && h.count == 1 && !h.inner:
			h.given = e.Index
		}
		return
	}
	asked := l.asks.get(e.Process)
	l.asks.remove(e.Process)
	switch {
	case h == nil:
	case e.Op == history.Extend && asked != nil && h.given > 0 && asked.index > h.given:
	case e.Op == history.Extend && e.Type != history.Fail:
		h.until = max(h.until, ends(asked, e, w.promises[e.Lock].Drift))
	case e.Type == history.Info:
	case e.Type == history.OK && h.count > 1:
		h.count--
	default:
		l.until = max(l.until, e.Time)
		l.remove(e.Owner, h)
	}
}

// prune forgets the locks that are neither held nor asked for, now and then.
func (w *watch) prune(now time.Duration) {
	const few = 4096
	if len(w.locks) < max(few, 2*w.pruned) {
		return
	}
	for name, l := range w.locks {
		if l.asks.len() == 0 && l.holds.len() == 0 && (l.free == nil || l.free.refuse == 0) && l.until < now {
			delete(w.locks, name)
		}
	}
	w.pruned = len(w.locks)
}

// ends is the latest end of a lease that was asked for and answered, or not.
func ends(asked *ask, e *history.Event, drift time.Duration) time.Duration {
	lease := e.Lease
	if asked != nil {
		lease = asked.lease
	}
	switch {
	case e.Expires > 0:
		return after(max(e.Expires, after(e.Time, lease)), drift)
	case lease == 0:
		return history.Never
	default:
		return after(after(e.Time, lease), drift)
	}
}

// after is t and some time more.
func after(t, more time.Duration) time.Duration {
	if more > history.Never-t {
		return history.Never
	}
	return t + more
}

func (w *watch) fault(e *history.Event) {
	key := [2]string{e.Fault, e.Target}
	switch {
	case e.Op == history.Inject && e.Type == history.Invoke:
		w.faults[key]++
		w.active++
	case e.Op == history.Inject && e.Type == history.Fail || e.Op == history.Heal && e.Type == history.OK:
		if w.faults[key] == 0 {
			return
		}
		w.faults[key]--
		w.active--
		w.calm = e.Time
		if e.Op == history.Heal {
			w.healed++
			w.recovered = -1
		}
	default:
	}
}

// asks takes note of a request, and answered that it was answered: an owner
// that asks for several locks at once may be refused one that is free, for
// another that is not.
func (w *watch) asks(e *history.Event) {
	w.open[e.Owner]++
	if e.Owner != "" && w.open[e.Owner] > 1 {
		w.joint[e.Owner] = true
	}
}

func (w *watch) answered(owner string) {
	if w.open[owner]--; w.open[owner] <= 0 {
		delete(w.open, owner)
		delete(w.joint, owner)
	}
}

func (w *watch) acquire(l *watched, e *history.Event, promise history.Promise) {
	asked := l.asks.get(e.Process)
	if e.Type != history.Invoke {
		l.asks.remove(e.Process)
		if asked == nil {
			return
		}
		defer w.answered(asked.owner)
	}
	switch e.Type {
	case history.Invoke:
		l.asks.set(e.Process, newAsk(e))
		l.capacity = -1
		if isSemaphore(promise.Kind) {
			l.capacity = int32(min(max(promise.Capacity, 1), history.MaxAmount)) //nolint:gosec // no more than that
		}
		w.asks(e)
	case history.Fail:
		w.askedFor(e.Lock, l, asked, e.Time, 1)
	case history.OK:
		w.askedFor(e.Lock, l, asked, e.Time, 0)
		w.granted = true
		if w.active == 0 && w.healed > 0 && w.recovered < 0 {
			w.recovered = e.Time - w.calm
		}
		h := l.holder(e.Owner)
		if h == nil {
			h = &lasting{}
			l.holds.set(e.Owner, h)
		}
		h.count++
		h.given = 0
		if h.until = max(h.until, ends(asked, e, promise.Drift)); h.until >= e.Time {
			l.free = nil // it will be free from a later time on
		}
	default:
		l.until = max(l.until, ends(asked, e, promise.Drift))
		if h := l.holder(e.Owner); h != nil {
			h.inner = true
		}
	}
}

// held reports whether some owner may hold the lock. It looks at no more of them
// than it must: those that are over are forgotten when they are looked at.
func (l *watched) held(now time.Duration) bool {
	l.looked = now
	if l.lasts != nil && l.lasts.until >= now {
		return true
	}
	for owner, h := range l.holds.all() {
		if h.until >= now {
			l.lasts = h
			return true
		}
		l.over(owner, h)
	}
	return false
}

// holder is how long an owner may hold the lock; nil if it was over when it was
// last asked whether some owner does.
func (l *watched) holder(owner string) *lasting {
	h := l.holds.get(owner)
	if h != nil && h.until < l.looked {
		l.over(owner, h)
		return nil
	}
	return h
}

func (l *watched) over(owner string, h *lasting) {
	l.until = max(l.until, h.until)
	l.remove(owner, h)
}

func (l *watched) remove(owner string, h *lasting) {
	l.holds.remove(owner)
	if l.lasts == h {
		l.lasts = nil
	}
}

// askedFor takes note that a client asked for the lock from the event on until
// now, and was not granted it before now; refused is 1 if it was refused now.
func (w *watch) askedFor(lock string, l *watched, asked *ask, now time.Duration, refused int) {
	if w.active > 0 || w.joint[asked.owner] || l.capacity >= 0 && asked.permits > int(l.capacity) {
		return
	}
	if l.held(now) {
		return
	}
	since := max(l.until, w.calm)
	if since >= now {
		return
	}
	from := max(asked.time, since)
	f := l.free
	if f == nil || f.since != since || from-f.heard > w.bound/4 {
		f = &free{since: since, first: asked, asked: from}
		l.free = f
	} else if from < f.asked {
		f.first, f.asked = asked, from
	}
	f.heard = now
	f.refuse += refused
	waited := now - f.asked
	if waited >= w.bound && !f.told && w.bury(lock, l) {
		w.askedFor(lock, l, asked, now, 0)
		return
	}
	w.longest = max(w.longest, waited)
	if waited < w.bound || f.told {
		return
	}
	f.told = true
	tries := fmt.Sprintf("and %s refused", say.Count(f.refuse, "request")+was(f.refuse))
	if f.refuse == 0 {
		tries = "and no request was answered"
	}
	asking := "asked for it"
	if f.first.time < f.asked {
		asking = "had asked for it"
	}
	w.add(Violation{
		Kind: Stuck, Lock: lock, From: f.asked, Until: now, Events: events(f.first.index, asked.index),
		Explanation: fmt.Sprintf("no client can have held %q since %s, and no fault was in effect, but from %s, when %s %s, until %s no client was granted it, %s",
			lock, seconds(since), seconds(f.asked), who(f.first.process, f.first.owner), asking, seconds(now), tries),
	})
}

// bury takes note of the requests for a lock that are not answered any more because
// their processes have crashed, as if they had been done at that time. It reports
// whether there were any.
func (w *watch) bury(lock string, l *watched) bool {
	buried := false
	for process, asked := range l.asks.all() {
		if at, crashed := w.gone[process]; crashed && at >= asked.time {
			l.until = max(l.until, ends(asked, &history.Event{Time: at}, w.promises[lock].Drift))
			l.asks.remove(process)
			if asked.acquires {
				w.answered(asked.owner)
			}
			buried = true
		}
	}
	return buried
}

func was(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

// end looks at those who are still waiting.
func (w *watch) end(now time.Duration) {
	for lock, l := range w.locks {
		var asks []*ask
		for _, asked := range l.asks.all() {
			if asked.acquires {
				asks = append(asks, asked)
			}
		}
		slices.SortFunc(asks, func(a, b *ask) int { return cmp.Compare(a.index, b.index) })
		for _, asked := range asks {
			w.askedFor(lock, l, asked, now, 0)
		}
	}
}
