package checker

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"
	"unsafe"

	"github.com/lockchaos/lockchaos/checker/holding"
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
			return ev.anyOp(func(op *holding.Op) bool { return op.Verb == holding.Acquire })
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			p := newProgress(ev, bound)
			longest := time.Duration(0)
			for _, l := range ev.Locks() {
				w := watch{progress: p, Lock: l, until: -1, soonest: history.Never}
				f.add(w.stuck()...)
				for _, doubt := range w.doubts {
					f.doubt("%s", doubt)
				}
				longest = max(longest, w.longest)
				f.counts["requests"] += w.measured
				f.used(len(w.occupied)*int(unsafe.Sizeof(occupation{})) + 8*len(l.Ops))
			}
			granted, recovered := p.recovery(ev)
			if !granted {
				f.doubt("no client was granted a lock, so that nothing shows that one could be")
			}
			f.valid = "no lock was asked for while it was free and no fault was in effect"
			if f.counts["requests"] > 0 {
				f.valid = fmt.Sprintf("outside faults, no lock was free while a client asked for it for longer than %s", say.Span(longest))
			}
			if recovered >= 0 {
				f.valid += fmt.Sprintf("; after the last fault a lock was granted again within %s", say.Span(recovered))
			}
		},
	}
}

// progress is what the judges of all locks share.
type progress struct {
	bound   time.Duration
	crashes map[int][]holding.Stamp
	end     time.Duration
	calms   []calm                        // after each event of a fault
	joint   map[*holding.Op]bool          // acquires of an owner that asks for several things at once, and may be refused for any of them
	givenUp map[*holding.Op]holding.Stamp // acquires without an answer, whose process asked for something else
}

// A calm is which faults are in effect from an event on.
type calm struct {
	index    int64
	active   int
	messages int           // how many of these are about one message
	since    time.Duration // when the last fault ended
	quiet    time.Duration // when the last fault ended that was about more than one message
	healed   int
}

func newProgress(ev *evidence, bound time.Duration) *progress {
	p := &progress{bound: bound, crashes: ev.Crashes, end: ev.End, calms: []calm{{index: -1}}, joint: map[*holding.Op]bool{}, givenUp: map[*holding.Op]holding.Stamp{}}
	type fault struct{ name, target string }
	active, single := map[fault]int{}, map[fault]bool{}
	for i := range ev.Faults {
		e := &ev.Faults[i]
		key, now := fault{e.Fault, e.Target}, p.calms[len(p.calms)-1]
		switch now.index = e.Index; {
		case e.Op == history.Inject && e.Type == history.Invoke:
			active[key]++
			now.active++
			if ofOneMessage(e) {
				now.messages++
				single[key] = true
			}
		case (e.Op == history.Inject && e.Type == history.Fail || e.Op == history.Heal && e.Type == history.OK) && active[key] > 0:
			active[key]--
			now.active--
			now.since = e.Time
			if single[key] {
				now.messages--
			} else {
				now.quiet = e.Time
			}
			if e.Op == history.Heal {
				now.healed++
			}
		default:
			continue
		}
		p.calms = append(p.calms, now)
	}
	longest := make([]*holding.Op, ev.Names()) // of the acquires of each owner, the one that is under way longest
	open := map[int][]*holding.Op{}            // by process
	for op := range ev.Ops() {
		if op.Verb != holding.Acquire && op.Verb != holding.Extend {
			continue
		}
		for _, before := range open[op.Process] {
			p.givenUp[before] = op.Invoke
		}
		delete(open, op.Process)
		if op.Verb == holding.Extend {
			continue
		}
		if op.Open() {
			open[op.Process] = append(open[op.Process], op)
		}
		before := longest[op.Owner]
		if before != nil && op.Invoke.Index < answeredAt(before) {
			p.joint[before], p.joint[op] = true, true
		}
		if before == nil || answeredAt(before) < answeredAt(op) {
			longest[op.Owner] = op
		}
	}
	return p
}

// answeredAt is the index of the answer to a request.
func answeredAt(op *holding.Op) int64 {
	if op.Open() {
		return math.MaxInt64
	}
	return op.Complete.Index
}

// at is which faults are in effect at an event.
func (p *progress) at(index int64) *calm {
	return &p.calms[sort.Search(len(p.calms), func(i int) bool { return p.calms[i].index > index })-1]
}

// gone is when the process of a request had last crashed before an event, since the request was sent.
func (p *progress) gone(op *holding.Op, before int64) (crash holding.Stamp, is bool) {
	for _, c := range p.crashes[op.Process] {
		if c.Index < before && c.Time >= op.Invoke.Time {
			crash, is = c, true
		}
	}
	return crash, is
}

// recovery is whether a lock was granted at all, and how soon after the last heal of a fault;
// negative if that is not known.
func (p *progress) recovery(ev *evidence) (granted bool, recovered time.Duration) {
	last := p.calms[len(p.calms)-1]
	from := int64(-1)
	for i := range p.calms {
		if i > 0 && p.calms[i].healed > p.calms[i-1].healed {
			from = p.calms[i].index
		}
	}
	var first *holding.Op
	for op := range ev.Ops() {
		if op.Verb != holding.Acquire || !op.OK() {
			continue
		}
		granted = true
		if op.Complete.Index > from && last.healed > 0 && p.at(op.Complete.Index).active == 0 && (first == nil || op.Complete.Index < first.Complete.Index) {
			first = op
		}
	}
	if first == nil {
		return granted, -1
	}
	return granted, first.Complete.Time - p.at(first.Complete.Index).since
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

// An occupation is for how long a lock may be held, and for how long that is certain, or has an end.
type occupation struct {
	from    int64 // the event that shows it
	until   time.Duration
	firm    time.Duration // until when it is in the way of requests
	permits int
	reads   bool
}

// occupations are those of the lock, in order.
func (p *progress) occupations(l *holding.Lock) []occupation {
	list := make([]occupation, 0, len(l.Holds))
	proven, extended := map[*holding.Op]bool{}, map[*holding.Op]bool{} // acquires with an unknown outcome, and extensions of holds
	doubted := map[int32]bool{}                                        // owners of an acquire with an unknown outcome, of which nothing shows that it was granted
	released := map[int32][]*holding.Op{}                              // by owner
	for _, holds := range [...][]*holding.Grant{l.Holds, l.Excluded} {
		for _, h := range holds {
			if h.Acquire.Unknown() {
				proven[h.Acquire] = true
			}
			for _, x := range h.Extensions {
				extended[x] = true
			}
			list = p.occupationsOf(list, l, h)
		}
	}
	for _, op := range l.Ops {
		if op.Verb == holding.Release && !op.Unknown() {
			released[op.Owner] = append(released[op.Owner], op)
		}
	}
	for _, op := range l.Ops {
		if op.Verb == holding.Acquire && op.Unknown() && !proven[op] {
			doubted[op.Owner] = true
		}
		// What an owner may have been granted, an extension with an unknown outcome may have extended.
		extends := op.Verb == holding.Extend && (!doubted[op.Owner] || !op.Unknown() || extended[op])
		if op.Verb == holding.Release || op.Failed() || proven[op] || !l.Disordered(op.Owner) && (extends || op.OK()) {
			continue
		}
		o := occupation{from: op.Complete.Index, until: op.Latest(l.Drift), permits: op.Amount(), reads: op.Mode == holding.Read, firm: -1}
		switch {
		case op.OK(): // the order of what its owner did is not known: it is not held after it was released
			all := released[op.Owner]
			if at := sort.Search(len(all), func(i int) bool { return all[i].Invoke.Index > op.Complete.Index }); at < len(all) {
				o.until = min(o.until, all[at].Complete.Time)
			}
			if o.until != history.Never {
				o.firm = o.until
			}
		case op.Open():
			crash, is := p.gone(op, math.MaxInt64)
			if !is {
				continue
			}
			o.from, o.until = crash.Index, history.Never
			if op.Lease > 0 {
				o.until = holding.After(holding.After(crash.Time, op.Lease), l.Drift)
			}
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b occupation) int { return cmp.Compare(a.from, b.from) })
	return list
}

// occupationsOf adds those of a hold to a list: from each acquire and extend that may have given it a lease until
// that was over, or until a release or refusal was answered. A renewal that was sent after its owner
// had asked to release prolongs nothing, where no inner grant can be left.
func (p *progress) occupationsOf(list []occupation, l *holding.Lock, h *holding.Grant) []occupation {
	answered := history.Never
	released := int64(math.MaxInt64)
	if r := h.Release; r != nil {
		if h.Ended == holding.Released || r.Failed() {
			answered = r.Complete.Time
		}
		if !l.Reentrant && !h.Reads() {
			released = r.Invoke.Index
		}
	}
	for _, x := range h.Extensions {
		if x.Failed() {
			answered = x.Complete.Time
		}
	}
	first := len(list)
	add := func(at holding.Stamp, until time.Duration) {
		o := occupation{from: at.Index, until: min(until, answered), permits: h.Permits(), reads: h.Reads()}
		if o.firm = max(o.until, h.End); o.until == history.Never {
			o.firm = h.End
		}
		if last := len(list) - 1; l.Semaphore() && last >= first && at.Time <= list[last].until { // the same permits, which count once
			list[last].until, list[last].firm = max(list[last].until, o.until), max(list[last].firm, o.firm)
			return
		}
		list = append(list, o)
	}
	lease := h.Acquire
	if lease.Unknown() && !lease.Open() { // it was held from then on, as is known later
		add(lease.Complete, lease.Latest(l.Drift))
	}
	if lease.Unknown() && h.Proof.Verb == holding.Extend {
		lease = h.Proof
	}
	add(h.Proof.Complete, lease.Latest(l.Drift))
	for _, x := range h.Extensions {
		switch {
		case x.Failed() || x.Verb != holding.Acquire && x.Invoke.Index >= released:
		case x.Open(): // of a client that crashed it may still be carried out, and of others it does nothing until it is answered
			if crash, is := p.gone(x, math.MaxInt64); is && x.Lease > 0 {
				add(crash, holding.After(holding.After(crash.Time, x.Lease), l.Drift))
			}
		default:
			add(x.Complete, x.Latest(l.Drift))
		}
	}
	return list
}

// A watch follows one lock from answer to answer.
type watch struct {
	*progress
	*holding.Lock
	occupied []occupation
	seen     int           // how many of them have begun
	until    time.Duration // until when the lock may be held, or was
	waiting  []*holding.Op // the acquires under way, in the order in which they were sent

	free    *free            // since the lock was free and asked for; nil if it is not
	space   free             // for it
	refused *free            // the same by requests that were refused alone, where faults of one message are left out
	firm    [2]time.Duration // until when it was in the way of requests: by those who do not read, and by those who do
	granted time.Duration    // when it was granted last, or found to be held
	holders []occupation     // of a semaphore: those that may be in the way
	out     int              // their permits
	soonest time.Duration    // when the first of them ends
	vague   [2]chain         // since it was asked for though nothing shows that it was held: of all requests, and of those that were refused
	perhaps time.Duration    // until when the first request since then may hold it whose outcome is unknown; 0 for none

	measured   int           // how many requests found it free
	longest    time.Duration // that it was free, asked for, and not granted
	violations []Violation
	doubts     []string
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
	since  time.Duration // when the lock became free, as far as first is concerned
	first  *holding.Op   // the first of the requests that follow one another while it is free
	asked  time.Duration // when that was sent, or the lock became free
	heard  time.Duration // when the last of them was answered
	told   bool          // that it was stuck
	refuse int           // how many were refused since then
}

// stuck judges the lock.
func (w *watch) stuck() []Violation {
	requests := filter(w.Ops, func(op *holding.Op) bool { return op.Verb == holding.Acquire })
	if len(requests) == 0 {
		return nil
	}
	w.vague = [2]chain{{since: -1}, {since: -1}}
	w.occupied = w.occupations(w.Lock)
	answers := slices.Clone(requests)
	slices.SortFunc(answers, func(a, b *holding.Op) int { return cmp.Compare(a.Rank(), b.Rank()) })
	for _, op := range answers {
		if op.Open() {
			break
		}
		for len(requests) > 0 && requests[0].Invoke.Index < op.Complete.Index {
			w.waiting = append(w.waiting, requests[0])
			requests = requests[1:]
		}
		w.leave(op)
		w.answered(op)
	}
	w.waiting = append(w.waiting, requests...)
	w.atTheEnd()
	return w.violations
}

// leave takes a request that was answered from those that wait.
func (w *watch) leave(op *holding.Op) {
	at, found := slices.BinarySearchFunc(w.waiting, op.Invoke.Index, func(w *holding.Op, index int64) int { return cmp.Compare(w.Invoke.Index, index) })
	for ; found && at < len(w.waiting); at++ {
		if w.waiting[at] == op {
			w.waiting = slices.Delete(w.waiting, at, at+1)
			return
		}
	}
}

// begin takes note of the occupations that begin before an event.
func (w *watch) begin(before int64) {
	for ; w.seen < len(w.occupied) && w.occupied[w.seen].from < before; w.seen++ {
		o := w.occupied[w.seen]
		w.until = max(w.until, o.until)
		if o.firm < 0 {
			continue
		}
		if w.Semaphore() {
			w.holders = append(w.holders, o)
			w.out, w.soonest = w.out+o.permits, min(w.soonest, o.firm)
			continue
		}
		by := &w.firm[0]
		if o.reads {
			by = &w.firm[1]
		}
		*by = max(*by, o.firm)
	}
}

// forget drops those who are no longer in the way of a request for permits.
func (w *watch) forget(now time.Duration) {
	w.out, w.soonest = 0, history.Never
	w.holders = slices.DeleteFunc(w.holders, func(h occupation) bool {
		if h.firm < now {
			w.firm[0] = max(w.firm[0], h.firm)
			return true
		}
		w.out, w.soonest = w.out+h.permits, min(w.soonest, h.firm)
		return false
	})
}

func (w *watch) answered(op *holding.Op) {
	at, now := op.Complete.Index, op.Complete.Time
	w.begin(at)
	faults := w.at(at)
	switch {
	case op.Failed():
		w.askedFor(op, faults, now, 1)
		w.refusedAgain(op, faults, now)
		w.unexplained(op, faults, at, now, true)
	case op.OK():
		w.askedFor(op, faults, now, 0)
		w.unexplained(op, faults, at, now, false)
		w.granted, w.refused, w.perhaps = max(w.granted, now), nil, 0
		if w.begin(at + 1); w.until >= now {
			w.free = nil // it will be free from a later time on
		}
	default:
		w.unexplained(op, faults, at, now, false)
		if w.perhaps == 0 && op.Lease > 0 {
			w.perhaps = op.Latest(w.Drift)
		}
	}
}

// wants reports whether a request asks for the lock: one for several locks at once may be
// refused one that is free, and one for more permits than there are is refused rightly.
func (w *watch) wants(op *holding.Op) bool {
	return !w.joint[op] && (!w.Semaphore() || int(op.Permits) <= max(w.Capacity, 1))
}

// first is of a request that was answered now, and those for the same lock that are
// under way, the one that was sent first.
func (w *watch) first(op *holding.Op, at int64) *holding.Op {
	for _, other := range w.waiting {
		if other.Invoke.Time >= op.Invoke.Time {
			break
		}
		if _, crashed := w.gone(other, at); !crashed && w.wants(other) && !w.gaveUp(other, at) {
			return other
		}
	}
	return op
}

func (w *watch) gaveUp(op *holding.Op, at int64) bool {
	next, is := w.givenUp[op]
	return is && next.Index < at
}

// askedFor takes note that a client asked for the lock until now, and was not granted it before
// now; refused is 1 if it was refused now.
func (w *watch) askedFor(op *holding.Op, faults *calm, now time.Duration, refused int) {
	since := max(w.until, faults.since)
	if faults.active > 0 || !w.wants(op) || since >= now {
		return
	}
	first := w.first(op, answeredAt(op))
	from := max(first.Invoke.Time, since)
	if w.free == nil || w.free.since != since || from-w.free.heard > w.bound/4 {
		if w.free == nil {
			w.free = &w.space
		}
		*w.free = free{since: since, first: first, asked: from}
	} else if from < w.free.asked {
		w.free.first, w.free.asked = first, from
	}
	f := w.free
	f.heard = now
	f.refuse += refused
	waited := now - f.asked
	w.longest = max(w.longest, waited)
	w.measured++
	if waited >= w.bound && !f.told {
		f.told = true
		w.tell(f, op, faults, now)
	}
}

// refusedAgain takes note that a request was refused now, where faults of one message make
// the other account begin anew: an answered refusal shows that the servers were there.
func (w *watch) refusedAgain(op *holding.Op, faults *calm, now time.Duration) {
	since := max(w.until, faults.quiet)
	if faults.active > faults.messages || !w.wants(op) || since >= now {
		return
	}
	f := w.refused
	if f == nil || f.since != since || max(op.Invoke.Time, since)-f.heard > w.bound/4 {
		f = &free{since: since, first: op, asked: max(op.Invoke.Time, since)}
		w.refused = f
	}
	f.heard = now
	f.refuse++
	if now-f.asked >= w.bound && !f.told && (w.free == nil || !w.free.told) {
		f.told = true
		w.tell(f, op, faults, now)
	}
}

func (w *watch) tell(f *free, op *holding.Op, faults *calm, now time.Duration) {
	tries := fmt.Sprintf("and %s refused", say.Count(f.refuse, "request")+was(f.refuse))
	if f.refuse == 0 {
		tries = "and no request was answered"
	}
	hindered := "was in effect"
	if f.since < faults.since || faults.active > 0 {
		hindered = "of more than one message was in effect"
	}
	asking := "asked for it"
	if f.first.Invoke.Time < f.asked {
		asking = "had asked for it"
	}
	w.violations = append(w.violations, Violation{
		Kind: Stuck, Lock: w.Name, From: f.asked, Until: now, Events: events(f.first.Invoke.Index, op.Invoke.Index),
		Explanation: fmt.Sprintf("no client can have held %q since %s, and no fault %s, but from %s, when %s %s, until %s no client was granted it, %s",
			w.Name, seconds(f.since), hindered, seconds(f.asked), caller(w.Record(), f.first), asking, seconds(now), tries),
	})
}

func was(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

// inTheWay reports whether a client held the lock for certain, or until its lease was over, in the
// way of a request; and when one did last.
func (w *watch) inTheWay(op *holding.Op, at int64, now time.Duration) (is bool, last time.Duration) {
	last = w.granted
	out := 0
	switch {
	case w.Semaphore():
		if w.soonest < now {
			w.forget(now)
		}
		last, out = max(last, w.firm[0]), w.out
		if out > 0 && out+op.Amount() > max(w.Capacity, 1) {
			return true, now
		}
	default:
		firm := w.firm[0]
		if op.Mode != holding.Read || slices.ContainsFunc(w.waiting, func(other *holding.Op) bool { return other.Mode != holding.Read }) {
			firm = max(firm, w.firm[1])
		}
		if firm >= now {
			return true, now
		}
		last = max(last, firm)
	}
	for _, other := range w.waiting { // granted, perhaps, and never told
		if crash, crashed := w.gone(other, at); crashed && other.Lease > 0 {
			end := holding.After(crash.Time, other.Lease)
			if last = max(last, min(end, now)); end >= now {
				return true, now
			}
		}
	}
	if last = max(last, min(w.perhaps, now)); w.perhaps >= now {
		return true, now
	}
	return out > 0 && len(w.waiting) > 0 && w.waiting[0].Invoke.Index < op.Invoke.Index, last // behind one that asks for more
}

// unexplained takes note of a request that was not granted until now, though nothing shows
// that a client held the lock.
func (w *watch) unexplained(op *holding.Op, faults *calm, at int64, now time.Duration, refused bool) {
	if w.bound < ProgressBound || faults.active > faults.messages || faults.active > 0 && !refused || !w.wants(op) {
		return
	}
	held, last := w.inTheWay(op, at, now)
	if held {
		w.granted = max(w.granted, now)
		return
	}
	long := time.Duration(0)
	if faults.active == 0 {
		long = w.vague[0].extend(max(last, faults.since), w.first(op, at).Invoke.Time, now, w.bound/4)
	}
	if refused {
		long = max(long, w.vague[1].extend(max(last, faults.quiet), op.Invoke.Time, now, w.bound/4))
	}
	if long >= w.bound && len(w.doubts) == 0 {
		w.doubts = append(w.doubts, fmt.Sprintf("lock %q was asked for and not granted for longer than %s, until %s at least, and nothing shows that a client was in the way all that time", w.Name, say.Span(w.bound), seconds(now)))
	}
}

// atTheEnd looks at those who are still waiting.
func (w *watch) atTheEnd() {
	w.begin(math.MaxInt64)
	faults := w.at(math.MaxInt64)
	for _, op := range w.waiting {
		if !w.gaveUp(op, math.MaxInt64) {
			w.askedFor(op, faults, w.end, 0)
			w.unexplained(op, faults, math.MaxInt64, w.end, false)
		}
	}
	if w.bound < ProgressBound {
		return
	}
	for _, f := range [...]*free{w.free, w.refused} {
		if f != nil && !f.told && f.heard-f.asked >= w.bound/2 && w.end-f.heard <= w.bound/4 {
			w.doubts = append(w.doubts, fmt.Sprintf("the record ended %s after %q was free and asked for, and no client was granted it: before the bound, %s, was over", say.Span(w.end-f.asked), w.Name, say.Span(w.bound)))
		}
	}
}
