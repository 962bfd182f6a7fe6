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
//
// A fault of one message restarts no time in which all requests that count were
// answered, with a refusal: the servers were there.
//
// It is Unknown where a lock was asked for during the bound, and not granted, while
// nothing shows that a client held it in the way of the request, or may have held it until
// its lease was over (a lock without a lease may be held for ever after an unknown
// outcome, a crash or a notice of loss; of requests with unknown outcomes that follow one
// another only the first excuses the others; and readers are in the way of no reader); and where a lock was free and asked for during the last
// half of the bound and longer, and the record ended before it was all over. A bound that is shorter than [ProgressBound] is
// that of a script or a simulation, which knows when it has seen enough: there it is not.
func Progress(bound time.Duration) Checker {
	if bound == 0 {
		bound = ProgressBound
	}
	return &property{
		name: "progress", engine: "free spans",
		applies: func(ev *evidence) bool {
			return ev.sees(func(e *history.Event) bool { return e.Op == history.Acquire })
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			w := newWatch(bound)
			w.findings, w.promises = f, ev.holdings().Guarantees
			most := 0
			for i := range ev.history.Events {
				w.see(&ev.history.Events[i])
				if l := w.last; l != nil {
					most = max(most, l.asks*int(unsafe.Sizeof(ask{}))+l.holds.len()*int(unsafe.Sizeof(lasting{})))
				}
			}
			f.used(len(w.locks)*int(unsafe.Sizeof(watched{})) + most)
			w.end(ev.history.End())
			if !w.granted {
				f.doubt("no client was granted a lock, so that nothing shows that one could be")
			}
			f.valid = "no lock was asked for while it was free and no fault was in effect"
			if w.measured {
				f.valid = fmt.Sprintf("outside faults, no lock was free while a client asked for it for longer than %s", say.Span(w.longest))
			}
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
	promises map[string]history.Guarantees
	granted  bool
	longest  time.Duration // that a lock was free, asked for, and not granted
	measured bool          // that there was such a time

	faults    map[[2]string]int // in effect, by name and target
	active    int
	calm      time.Duration      // when the last fault ended
	single    map[[2]string]bool // those of one message
	messages  int                // how many of the active ones are about one message
	quiet     time.Duration      // when the last fault ended that was about more than one message
	healed    int
	recovered time.Duration // from then to the next grant; negative until there is one

	gone   map[int]time.Duration // when a process crashed last
	asks   byProcess             // the requests that are not answered
	owners map[string]*ask       // of the acquires among them, the first of each owner
	spare  []*ask                // to be used again
	over   []*free               // and these

	pruned int    // how many locks there were when those at rest were last forgotten
	name   string // of the lock that was seen last
	last   *watched
	locks  map[string]*watched
}

// byProcess are the requests that are not answered: a process has one at a time.
type byProcess struct {
	small []*ask // of the processes with small numbers
	large map[int]*ask
}

// isSmall reports whether a process has a small number.
func isSmall(process int) bool { return process >= 0 && process < 1<<16 }

func (b *byProcess) of(process int) *ask {
	switch {
	case !isSmall(process):
		return b.large[process]
	case process < len(b.small):
		return b.small[process]
	default:
		return nil
	}
}

func (b *byProcess) set(process int, asked *ask) {
	if isSmall(process) {
		for process >= len(b.small) {
			b.small = append(b.small, make([]*ask, len(b.small)+64)...)
		}
		b.small[process] = asked
		return
	}
	if b.large == nil {
		b.large = map[int]*ask{}
	}
	if b.large[process] = asked; asked == nil {
		delete(b.large, process)
	}
}

// all are those, in the order in which they were sent.
func (b *byProcess) all() []*ask {
	var list []*ask
	add := func(asked *ask) {
		if asked != nil {
			list = append(list, asked)
		}
	}
	for _, asked := range b.small {
		add(asked)
	}
	for _, asked := range b.large {
		add(asked)
	}
	slices.SortFunc(list, func(a, b *ask) int { return cmp.Compare(a.index, b.index) })
	return list
}

// A watched is one lock. There may be many that are held and not asked for, so
// that one of those is small.
type watched struct {
	until    time.Duration // when the last of those that are gone may have ended
	holds    holders       // of those that may hold, by owner
	lasts    *lasting      // one of them that was found to last, if it is there still
	looked   time.Duration // when it was last asked whether there is one
	asks     int           // how many are not answered
	waiting  *ask          // the acquires among them, in the order in which they were sent
	newest   *ask          // the last of these
	free     *free         // since the lock was free and asked for; nil if it is not
	refused  *free         // the same by requests that were refused alone, where faults of one message are left out
	firm     time.Duration // until when those that are gone held it for certain, and when it was granted last
	vague    *[2]chain     // since it was asked for though nothing shows that it was held: of all requests, and of those that were refused
	perhaps  time.Duration // until when the first request since then may hold it whose outcome is unknown; 0 for none
	doubted  bool          // that its clients could be granted it
	capacity int32         // permits of a semaphore that there are for certain; negative for other locks
}

// A chain is how long requests followed one another that were not granted.
type chain struct{ since, from, heard time.Duration }

// extend adds a request that was under way between two instants, none of which is before
// since. It says how long the chain is.
func (c *chain) extend(since, from, now, pause time.Duration) time.Duration {
	from = max(from, since)
	if c.since != since || from-c.heard > pause {
		*c = chain{since: since, from: from}
	}
	c.from, c.heard = min(c.from, from), max(c.heard, now)
	return c.heard - c.from
}

// A free is how long a lock was free, and its requests.
type free struct {
	since  time.Duration // when the lock became free, as far as first is concerned; -1 for a new one
	first  ask           // the first of the requests that follow one another while it is free
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
	acquires, reads  bool
	name             string // of the lock
	lock             *watched
	head             *ask // of the acquires of its owner that were open together, the first
	open             int  // of a head: how many are open
	joint            bool // of a head: several were open at once
	before, behind   *ask // of the same lock
}

// ask takes note of a request.
func (w *watch) ask(l *watched, e *history.Event) *ask {
	var asked *ask
	if n := len(w.spare); n > 0 {
		asked, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		asked = new(ask)
	}
	*asked = ask{index: e.Index, time: e.Time, lease: e.Lease, process: e.Process, permits: e.Permits, owner: e.Owner, acquires: e.Op == history.Acquire, reads: e.Mode == history.Read, name: e.Lock, lock: l}
	if before := w.asks.of(e.Process); before != nil && before.acquires {
		before.lock.leave(before) // it was given up: a process waits for one request at a time
	}
	w.asks.set(e.Process, asked)
	l.asks++
	if !asked.acquires {
		return asked
	}
	if asked.before = l.newest; l.newest == nil {
		l.waiting = asked
	} else {
		l.newest.behind = asked
	}
	l.newest = asked
	return asked
}

// leave takes a request that was answered from those that wait.
func (l *watched) leave(asked *ask) {
	if asked.before == nil {
		l.waiting = asked.behind
	} else {
		asked.before.behind = asked.behind
	}
	if asked.behind == nil {
		l.newest = asked.before
	} else {
		asked.behind.before = asked.before
	}
	asked.before, asked.behind = nil, nil
}

// holders is a map by owner that takes hardly any memory while it has no more than
// one, as those of most locks.
type holders struct {
	owner string
	one   *lasting
	more  map[string]*lasting
}

func (h *holders) get(owner string) *lasting {
	if h.one != nil && h.owner == owner {
		return h.one
	}
	return h.more[owner]
}

func (h *holders) set(owner string, value *lasting) {
	switch {
	case h.one == nil && h.more[owner] == nil, h.one != nil && h.owner == owner:
		h.owner, h.one = owner, value
	case h.more == nil:
		h.more = map[string]*lasting{owner: value}
	default:
		h.more[owner] = value
	}
}

func (h *holders) remove(owner string) {
	if h.one != nil && h.owner == owner {
		h.one = nil
		return
	}
	delete(h.more, owner)
}

func (h *holders) len() int {
	if h.one != nil {
		return 1 + len(h.more)
	}
	return len(h.more)
}

// all are the holders, which may be removed on the way.
func (h *holders) all() iter.Seq2[string, *lasting] {
	return func(yield func(string, *lasting) bool) {
		if h.one != nil && !yield(h.owner, h.one) {
			return
		}
		for owner, value := range h.more {
			if !yield(owner, value) {
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

	firm    time.Duration // until when it is certain
	since   time.Duration // when the first grant was asked for
	process int
	permits int
	reads   bool // it has no other mode
}

func newWatch(bound time.Duration) *watch {
	return &watch{bound: bound, faults: map[[2]string]int{}, single: map[[2]string]bool{}, gone: map[int]time.Duration{}, owners: map[string]*ask{}, locks: map[string]*watched{}, recovered: -1}
}

func (w *watch) see(e *history.Event) {
	switch e.Op {
	case history.Inject, history.Heal:
		w.fault(e)
		return
	case history.Crash:
		w.gone[e.Process] = e.Time
		return
	case history.Lost:
		if l := w.locks[e.Lock]; l != nil {
			if h := l.holder(e.LockOwner()); h != nil {
				h.firm = min(h.firm, e.Time)
			}
		}
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
			w.ask(l, e)
		case h != nil && h.count == 1 && !h.inner:
			h.given = e.Index
			h.firm = min(h.firm, e.Time)
		case h != nil:
			h.firm = min(h.firm, e.Time)
		}
		return
	}
	asked := w.answer(l, e.Process)
	if asked != nil {
		defer w.done(asked)
	}
	switch {
	case h == nil:
	case e.Op == history.Extend && asked != nil && h.given > 0 && asked.index > h.given:
	case e.Op == history.Extend && e.Type != history.Fail:
		h.until = max(h.until, ends(asked, e, w.promises[e.Lock].Drift))
		if firm := certain(asked, e, w.promises[e.Lock].Drift); e.Type == history.OK {
			h.firm = firm
		} else {
			h.firm = min(h.firm, firm)
		}
	case e.Type == history.Info:
	case e.Type == history.OK && h.count > 1:
		h.count--
	default:
		l.until = max(l.until, e.Time)
		l.firm = max(l.firm, min(h.firm, e.Time))
		l.remove(e.Owner, h)
	}
}

// certain is the first end of a lease that was asked for and answered, or not.
func certain(asked *ask, e *history.Event, drift time.Duration) time.Duration {
	switch {
	case e.Type == history.OK && e.Expires > 0:
		return e.Expires - drift
	case asked == nil || asked.lease == 0:
		return history.Never
	default:
		return after(asked.time, asked.lease) - drift
	}
}

// firmUntil is until when a holder held a lock for certain: without a lease, no longer
// than until its process crashed.
func (w *watch) firmUntil(h *lasting) time.Duration {
	if at, crashed := w.gone[h.process]; crashed && h.firm == history.Never && at >= h.since {
		return at
	}
	return h.firm
}

// inTheWay reports whether a client held the lock for certain, in the way of a request; and
// when one did last.
func (w *watch) inTheWay(l *watched, asked *ask, now time.Duration) (is bool, last time.Duration) {
	out := 0
	last = l.firm
	for _, h := range l.holds.all() {
		until := w.firmUntil(h)
		if h.until != history.Never { // perhaps until its lease is over, which is an end
			until = max(until, h.until)
		}
		switch {
		case asked.reads && h.reads && !l.writerWaits():
			continue
		case until < now:
			last = max(last, until)
			continue
		case l.capacity < 0:
			return true, now
		}
		if out += max(1, h.permits); out+max(1, asked.permits) > int(l.capacity) {
			return true, now
		}
	}
	for other := l.waiting; other != nil; other = other.behind { // granted, perhaps, and never told
		if at, crashed := w.gone[other.process]; crashed && at >= other.time && other.lease > 0 {
			last = max(last, min(after(at, other.lease), now))
			if after(at, other.lease) >= now {
				return true, now
			}
		}
	}
	if last = max(last, min(l.perhaps, now)); l.perhaps >= now {
		return true, now
	}
	return out > 0 && l.waiting != nil && l.waiting.index < asked.index, last // behind one that asks for more
}

// writerWaits reports whether a request is under way that readers wait for.
func (l *watched) writerWaits() bool {
	for other := l.waiting; other != nil; other = other.behind {
		if !other.reads {
			return true
		}
	}
	return false
}

// unexplained takes note of a request that was not granted until now, though nothing shows
// that a client held the lock.
func (w *watch) unexplained(lock string, l *watched, asked *ask, now time.Duration, refused bool) {
	if w.bound < ProgressBound || w.active > w.messages || w.active > 0 && !refused || !l.wants(asked) {
		return
	}
	held, last := w.inTheWay(l, asked, now)
	if held {
		l.firm = max(l.firm, now)
		return
	}
	if l.vague == nil {
		l.vague = &[2]chain{{since: -1}, {since: -1}}
	}
	long := time.Duration(0)
	if w.active == 0 {
		long = l.vague[0].extend(max(last, w.calm), w.longestWaiting(l, asked).time, now, w.bound/4)
	}
	if refused {
		long = max(long, l.vague[1].extend(max(last, w.quiet), asked.time, now, w.bound/4))
	}
	if long >= w.bound && !l.doubted {
		l.doubted = true
		w.doubt("lock %q was asked for and not granted for longer than %s, until %s at least, and nothing shows that a client was in the way all that time", lock, say.Span(w.bound), seconds(now))
	}
}

// prune forgets the locks that are neither held nor asked for, now and then.
func (w *watch) prune(now time.Duration) {
	const few = 4096
	if len(w.locks) < max(few, 2*w.pruned) {
		return
	}
	for name, l := range w.locks {
		if l.asks == 0 && l.holds.len() == 0 && (l.free == nil || l.free.refuse == 0) && l.until < now {
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
		if ofOneMessage(e) {
			w.messages++
			w.single[key] = true
		}
	case e.Op == history.Inject && e.Type == history.Fail || e.Op == history.Heal && e.Type == history.OK:
		if w.faults[key] == 0 {
			return
		}
		w.faults[key]--
		w.active--
		w.calm = e.Time
		if w.single[key] {
			w.messages--
		} else {
			w.quiet = e.Time
		}
		if e.Op == history.Heal {
			w.healed++
			w.recovered = -1
		}
	default:
	}
}

// ofOneMessage reports whether a fault is about one message, which may be late, lost or
// refused: all others go through.
func ofOneMessage(e *history.Event) bool {
	return e.Life == history.Triggered && len(e.Effects) > 0 && !slices.ContainsFunc(e.Effects, func(effect history.Effect) bool {
		switch effect {
		case history.Loses, history.Delays, history.Withholds, history.Refuses:
			return false
		default:
			return true
		}
	})
}

// answer is the request of a process for the lock that is answered now; nil if
// there is none.
func (w *watch) answer(l *watched, process int) *ask {
	asked := w.asks.of(process)
	if asked == nil || asked.lock != l {
		return nil
	}
	w.asks.set(process, nil)
	l.asks--
	if asked.acquires {
		l.leave(asked)
	}
	return asked
}

// join takes note of an acquire beside others of its owner: an owner that asks for
// several locks at once may be refused one that is free, for another that is not.
func (w *watch) join(asked *ask) {
	head := w.owners[asked.owner]
	if head == nil {
		head = asked
		w.owners[asked.owner] = head
	}
	asked.head = head
	head.open++
	head.joint = head.joint || head.open > 1 && asked.owner != ""
}

// done lets go of a request that was answered, and is not needed any more.
func (w *watch) done(asked *ask) {
	head := asked.head
	if head != asked {
		w.spare = append(w.spare, asked)
	}
	if head == nil {
		return
	}
	if head.open--; head.open == 0 {
		head.joint = false
		delete(w.owners, head.owner)
		w.spare = append(w.spare, head)
	}
}

func (w *watch) acquire(l *watched, e *history.Event, promise history.Guarantees) {
	var asked *ask
	if e.Type != history.Invoke {
		if asked = w.answer(l, e.Process); asked == nil {
			return
		}
		defer w.done(asked)
	}
	switch e.Type {
	case history.Invoke:
		w.join(w.ask(l, e))
		l.capacity = -1
		if isSemaphore(promise.Kind) {
			l.capacity = int32(min(max(promise.Capacity, 1), history.MaxAmount)) //nolint:gosec // no more than that
		}
	case history.Fail:
		w.askedFor(e.Lock, l, asked, e.Time, 1)
		w.refusedAgain(e.Lock, l, asked, e.Time)
		w.unexplained(e.Lock, l, asked, e.Time, true)
	case history.OK:
		w.askedFor(e.Lock, l, asked, e.Time, 0)
		w.unexplained(e.Lock, l, asked, e.Time, false)
		l.firm, l.refused, l.perhaps = max(l.firm, e.Time), nil, 0
		w.granted = true
		if w.active == 0 && w.healed > 0 && w.recovered < 0 {
			w.recovered = e.Time - w.calm
		}
		h := l.holder(e.Owner)
		if h == nil {
			h = &lasting{process: e.Process, since: asked.time, reads: true}
			l.holds.set(e.Owner, h)
		}
		h.count++
		h.firm = certain(asked, e, promise.Drift)
		h.permits += max(1, asked.permits)
		h.reads = h.reads && asked.reads
		h.given = 0
		if h.until = max(h.until, ends(asked, e, promise.Drift)); h.until >= e.Time {
			w.taken(l) // it will be free from a later time on
		}
	default:
		w.unexplained(e.Lock, l, asked, e.Time, false)
		l.until = max(l.until, ends(asked, e, promise.Drift))
		if l.perhaps == 0 && asked.lease > 0 {
			l.perhaps = ends(asked, e, promise.Drift)
		}
		if h := l.holder(e.Owner); h != nil {
			h.inner = true
		}
	}
}

// taken ends the time in which a lock was free.
func (w *watch) taken(l *watched) {
	if l.free != nil {
		w.over, l.free = append(w.over, l.free), nil
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
	l.firm = max(l.firm, min(h.firm, h.until))
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
	if w.active > 0 || !l.wants(asked) || l.held(now) {
		return
	}
	since := max(l.until, w.calm)
	if since >= now {
		return
	}
	first := w.longestWaiting(l, asked)
	from := max(first.time, since)
	f := l.free
	if n := len(w.over); f == nil && n > 0 {
		f, w.over = w.over[n-1], w.over[:n-1]
		f.since = -1
	} else if f == nil {
		f = &free{since: -1}
	}
	l.free = f
	if f.since != since || from-f.heard > w.bound/4 {
		*f = free{since: since, first: *first, asked: from}
	} else if from < f.asked {
		f.first, f.asked = *first, from
	}
	f.heard = now
	f.refuse += refused
	waited := now - f.asked
	if waited >= w.bound && !f.told && w.bury(lock, l) {
		w.askedFor(lock, l, asked, now, 0)
		return
	}
	w.longest, w.measured = max(w.longest, waited), true
	if waited < w.bound || f.told {
		return
	}
	f.told = true
	w.stuck(lock, f, asked, now, since)
}

// refusedAgain takes note that a request was refused now, where faults of one message make
// the other account begin anew: an answered refusal shows that the servers were there.
func (w *watch) refusedAgain(lock string, l *watched, asked *ask, now time.Duration) {
	if w.active > w.messages || !l.wants(asked) || l.held(now) {
		return
	}
	since := max(l.until, w.quiet)
	if since >= now {
		return
	}
	f := l.refused
	if f == nil || f.since != since || max(asked.time, since)-f.heard > w.bound/4 {
		f = &free{since: since, first: *asked, asked: max(asked.time, since)}
		l.refused = f
	}
	f.heard = now
	f.refuse++
	if now-f.asked >= w.bound && !f.told && (l.free == nil || !l.free.told) {
		f.told = true
		w.stuck(lock, f, asked, now, since)
	}
}

func (w *watch) stuck(lock string, f *free, asked *ask, now, since time.Duration) {
	tries := fmt.Sprintf("and %s refused", say.Count(f.refuse, "request")+was(f.refuse))
	if f.refuse == 0 {
		tries = "and no request was answered"
	}
	hindered := "was in effect"
	if since < w.calm || w.active > 0 {
		hindered = "of more than one message was in effect"
	}
	asking := "asked for it"
	if f.first.time < f.asked {
		asking = "had asked for it"
	}
	w.add(Violation{
		Kind: Stuck, Lock: lock, From: f.asked, Until: now, Events: events(f.first.index, asked.index),
		Explanation: fmt.Sprintf("no client can have held %q since %s, and no fault %s, but from %s, when %s %s, until %s no client was granted it, %s",
			lock, seconds(since), hindered, seconds(f.asked), who(f.first.process, f.first.owner), asking, seconds(now), tries),
	})
}

// wants reports whether a request asks for the lock: one for several locks at once may be
// refused one that is free, and one for more permits than there are is refused rightly.
func (l *watched) wants(asked *ask) bool {
	return (asked.head == nil || !asked.head.joint) && (l.capacity < 0 || asked.permits <= int(l.capacity))
}

// longestWaiting is of a request that was answered now, and those for the same lock that are
// under way, the one that was sent first.
func (w *watch) longestWaiting(l *watched, asked *ask) *ask {
	for other := l.waiting; other != nil && other.time < asked.time; other = other.behind {
		if at, crashed := w.gone[other.process]; l.wants(other) && (!crashed || at < other.time) {
			return other
		}
	}
	return asked
}

// bury takes note of the requests for a lock that are not answered any more because
// their processes have crashed, as if they had been done at that time. It reports
// whether there were any.
func (w *watch) bury(lock string, l *watched) bool {
	buried := false
	if l.asks == 0 || len(w.gone) == 0 {
		return false
	}
	for _, asked := range w.asks.all() {
		if at, crashed := w.gone[asked.process]; asked.lock == l && crashed && at >= asked.time {
			until := ends(asked, &history.Event{Time: at}, w.promises[lock].Drift)
			l.until = max(l.until, until)
			if l.perhaps == 0 && asked.lease > 0 {
				l.perhaps = until
			}
			w.done(w.answer(l, asked.process))
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
	for _, asked := range w.asks.all() {
		if asked.acquires {
			w.askedFor(asked.name, asked.lock, asked, now, 0)
			w.unexplained(asked.name, asked.lock, asked, now, false)
		}
	}
	for name, l := range w.locks {
		if w.bound < ProgressBound {
			break
		}
		for _, f := range [...]*free{l.free, l.refused} {
			if f != nil && !f.told && f.heard-f.asked >= w.bound/2 && now-f.heard <= w.bound/4 {
				w.doubt("the record ended %s after %q was free and asked for, and no client was granted it: before the bound, %s, was over", say.Span(now-f.asked), name, say.Span(w.bound))
			}
		}
	}
}
