package checker

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// ProgressBound is how long a lock may stay free and asked for, if nothing else
// was said.
const ProgressBound = 10 * time.Second

// Progress is the checker of "progress": a lock that is free of holders and faults is granted to
// a client that asks for it, within the bound; 0 is [ProgressBound]. The section on progress in docs/what-is-checked.md
// says when a lock is free, what asks for it, and when nothing can be told.
//
// A lock is stuck, too, where a master has it for a request that was refused: see [history.ObserveLeft]. A bound that is
// shorter than [ProgressBound] is that of a script or a simulation, which knows when it has seen enough: that a record
// ended within the bound is no doubt there.
func Progress(bound time.Duration) Checker {
	bound = cmp.Or(bound, ProgressBound)
	return progressSince(bound, bound/4, false)
}

// progressSince is [Progress], with the longest pause between two requests that ask for the lock as one. With grant the record
// may begin while a client holds a lock: until its first grant a lock is not known to be free.
func progressSince(bound, pause time.Duration, grant bool) Checker {
	return Checker{
		name: "progress", engine: "free spans",
		// A stamp of one clock may be as wrong as that of another, and each pause has two of them, too.
		stretched: func(by time.Duration) Checker { return progressSince(bound+by, pause-by/2, grant) },
		of:        func(l *holding.Lock) bool { return slices.ContainsFunc(l.Ops, isAcquire) },
		judge: func(_ context.Context, ev *evidence, locks []*holding.Lock, f *findings) {
			p := newProgress(ev)
			p.bound, p.pause = bound, pause
			for _, l := range locks {
				w := watch{progress: p, Lock: l, findings: f, until: -1, soonest: history.Never}
				if first := slices.IndexFunc(l.Ops, func(op *holding.Op) bool { return op.Verb == holding.Acquire && op.OK() }); grant && first >= 0 {
					w.until = l.Ops[first].Complete.Time
				}
				w.judge()
			}
			f.add(left(ev)...)
			if !p.granted {
				f.doubt("no client was granted a lock, so that nothing shows that one could be")
			}
			f.valid = "no lock was asked for while it was free and no fault was in effect"
			if f.counts["requests"] > 0 {
				f.valid = fmt.Sprintf("outside faults, no lock was free while a client asked for it for longer than %s", say.Span(p.longest))
			}
			if op := p.recovered; op != nil {
				f.valid += fmt.Sprintf("; after the last fault a lock was granted again within %s", say.Span(op.Complete.Time-p.at(op.Complete.Index).ended[sparing]))
			}
		},
	}
}

func isAcquire(op *holding.Op) bool { return op.Verb == holding.Acquire }

// progress is what the judges of all locks share.
type progress struct {
	*evidence
	bound, pause time.Duration        // the longest pause between two requests that ask for the lock as one
	calms        []calm               // after each event of a fault
	joint        map[*holding.Op]bool // acquires of an owner that asks for several things at once, and may be refused for any of them

	healed    int64         // the last heal of a fault; 0 if there was none
	longest   time.Duration // that a lock was free, asked for, and not granted
	granted   bool          // whether any was
	recovered *holding.Op   // the first grant after the last heal of a fault, while none is in effect
}

// What a fault excuses.
const (
	lasting = iota // all that is not granted meanwhile
	message        // one message, which may be late, lost or refused: all others go through
	sparing        // nothing: it spares a majority of the servers, and the lock promises that it needs no more
)

func excused(e *history.Event) int {
	one := []history.Effect{history.Loses, history.Delays, history.Withholds, history.Refuses}
	switch {
	case e.Life == history.Triggered && len(e.Effects) > 0 && !slices.ContainsFunc(e.Effects, func(effect history.Effect) bool { return !slices.Contains(one, effect) }):
		return message
	case slices.Contains(e.Effects, history.Minority):
		return sparing
	default:
		return lasting
	}
}

// A calm is which faults are in effect from an event on.
type calm struct {
	index  int64
	active [3]int           // how many, by what they excuse
	ended  [3]time.Duration // when the last one ended that was lasting, the last that excuses something, and the last of all
}

// calm reports whether no fault is in effect that excuses something.
func (c *calm) calm() bool { return c.active[lasting]+c.active[message] == 0 }

func newProgress(ev *evidence) *progress {
	p := &progress{evidence: ev, calms: []calm{{index: -1}}, joint: map[*holding.Op]bool{}}
	active := map[[2]string][3]int{} // of one name and target
	for i := range ev.Faults {
		e, now := &ev.Faults[i], p.calms[len(p.calms)-1]
		of := [2]string{e.Fault, e.Target}
		together, kind := active[of], excused(e)
		switch now.index = e.Index; {
		case e.Op == history.Inject && e.Type == history.Invoke:
			together[kind]++
			now.active[kind]++
		case !endsFault(e) || together == [3]int{}:
			continue
		default:
			for _, kind = range [...]int{message, sparing, lasting} { // in this order they are over
				if together[kind] > 0 {
					break
				}
			}
			together[kind]--
			now.active[kind]--
			for ; kind <= sparing; kind++ {
				now.ended[kind] = e.Time
			}
		}
		if active[of] = together; e.Op == history.Heal {
			p.healed = e.Index
		}
		p.calms = append(p.calms, now)
	}
	longest := make([]*holding.Op, ev.Names()) // of the acquires of each owner, the one that is under way longest
	for op := range ev.Ops() {
		if op.Verb != holding.Acquire {
			continue
		}
		before := longest[op.Owner]
		if before != nil && op.Invoke.Index < before.Answered() {
			p.joint[before], p.joint[op] = true, true
		}
		if before == nil || before.Answered() < op.Answered() {
			longest[op.Owner] = op
		}
	}
	return p
}

// at is which faults are in effect at an event.
func (p *progress) at(index int64) *calm {
	return &p.calms[sort.Search(len(p.calms), func(i int) bool { return p.calms[i].index > index })-1]
}

// gone is when the process of a request had last crashed before an event, since the request was sent.
func (p *progress) gone(op *holding.Op, before int64) (crash holding.Stamp, is bool) {
	for _, c := range p.Crashes[op.Process] {
		if c.Index < before && c.Time >= op.Invoke.Time {
			crash, is = c.Stamp, true
		}
	}
	return crash, is
}

// grant takes note of an acquire that was granted.
func (p *progress) grant(op *holding.Op) {
	at := op.Complete.Index
	if p.granted = true; p.healed > 0 && at > p.healed && p.at(at).active == [3]int{} && (p.recovered == nil || at < p.recovered.Complete.Index) {
		p.recovered = op
	}
}

// An occupation is for how long a lock may be held, and for how long that is certain, or has an end.
type occupation struct {
	from    int64 // the event that shows it
	until   time.Duration
	firm    time.Duration // until when it is in the way of requests
	permits int
	reads   bool
	by      *holding.Op
}

// arrived is when a request had reached the servers at the latest that its client gave up, or crashed with: a fault that was
// in effect then may have held it back until it was over. One that spares a majority held it back from no more than the others.
func (p *progress) arrived(left holding.Stamp) holding.Stamp {
	for i := sort.Search(len(p.calms), func(i int) bool { return p.calms[i].index > left.Index }) - 1; !p.calms[i].calm(); i++ {
		if i == len(p.calms)-1 {
			return holding.Stamp{Time: max(left.Time, p.End), Index: left.Index}
		}
		left = holding.Stamp{Time: max(left.Time, p.calms[i+1].ended[message]), Index: p.calms[i+1].index}
	}
	return left
}

// carriedOut is when an acquire or extend was carried out at the latest, and until when the lease lasts that it gave. Of one
// that was not answered it is false if its process did not crash.
func (p *progress) carriedOut(op *holding.Op, drift time.Duration) (at holding.Stamp, until time.Duration, is bool) {
	at, until, is = op.Complete, op.Latest(drift), true
	if op.Open() {
		at, is = p.gone(op, math.MaxInt64)
	}
	if is && op.Unknown() {
		late := *op
		late.Complete = p.arrived(at)
		at, until = late.Complete, late.Latest(drift)
	}
	return at, until, is
}

// occupations are those of the lock, in order.
func (p *progress) occupations(l *holding.Lock) []occupation {
	list := make([]occupation, 0, len(l.Holds))
	known := map[*holding.Op]bool{}       // of those with an unknown outcome, the acquires and extends that are part of a hold
	doubted := map[int32]bool{}           // owners of an acquire with an unknown outcome, of which nothing shows that it was granted
	released := map[int32][]*holding.Op{} // of those of which not even the order of what they did is known
	for _, h := range slices.Concat(l.Holds, l.Excluded) {
		for _, op := range h.Extensions {
			known[op] = true
		}
		if h.Acquire.Unknown() {
			known[h.Acquire] = true
		}
		list = p.occupationsOf(list, l, h)
	}
	for _, op := range l.Ops {
		if op.Verb == holding.Release && !op.Unknown() && l.Disordered[op.Owner] {
			released[op.Owner] = append(released[op.Owner], op)
		}
	}
	for _, op := range l.Ops {
		if op.Verb == holding.Release || op.Failed() || op.Unknown() && known[op] {
			continue
		}
		if op.Verb == holding.Acquire && op.Unknown() {
			doubted[op.Owner] = true
		}
		// What an owner may have been granted, an extension with an unknown outcome may have extended.
		counts := l.Disordered[op.Owner] || op.Unknown() && doubted[op.Owner]
		at, until, is := p.carriedOut(op, l.Drift)
		if !counts || !is {
			continue
		}
		o := occupation{from: at.Index, until: until, permits: op.Amount(), reads: op.Mode == holding.Read, firm: -1, by: op}
		if op.OK() { // it is not held after it was released
			after := func(r *holding.Op) bool { return r.Invoke.Index > op.Complete.Index }
			if at := slices.IndexFunc(released[op.Owner], after); at >= 0 {
				o.until = min(o.until, released[op.Owner][at].Complete.Time)
			}
			if o.until != history.Never {
				o.firm = o.until
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
	answered, released := history.Never, int64(math.MaxInt64)
	if r := h.Release; r != nil {
		if h.Ended == holding.EndReleased || r.Failed() {
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
		o := occupation{from: at.Index, until: min(until, answered), permits: h.Permits(), reads: h.Reads(), by: h.Acquire}
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
		at, until, is := p.carriedOut(x, l.Drift)
		late := x.Verb != holding.Acquire && x.Invoke.Index >= released
		if is && !x.Failed() && !late && (!x.Open() || x.Lease > 0) {
			add(at, until)
		}
	}
	return list
}

// A chain is requests that follow one another, none of which was granted.
type chain struct {
	first  *holding.Op   // of the requests, the one that was sent first
	since  time.Duration // from when on they count
	asked  time.Duration // when the first of them was sent, no sooner than that
	heard  time.Duration // when the last of them was answered
	refuse int           // how many were refused
	told   bool          // that the lock was stuck
}

// add is how long a chain is with a request, from whose beginning on the lock was asked for until now.
func (c *chain) add(since time.Duration, op *holding.Op, now, pause time.Duration) time.Duration {
	from := max(op.Invoke.Time, since)
	switch {
	case c.first == nil || c.since != since || from-c.heard > pause:
		*c = chain{first: op, since: since, asked: from}
	case from < c.asked:
		c.first, c.asked = op, from
	}
	c.heard = max(c.heard, now)
	return c.heard - c.asked
}

// A watch follows one lock from answer to answer.
type watch struct {
	*progress
	*holding.Lock
	*findings
	occupied []occupation  // those that have not begun
	until    time.Duration // until when the lock may be held, or was
	dead     time.Duration // the leases of the requests that clients waited with when they crashed
	waiting  []*holding.Op // the acquires under way, in the order in which they were sent

	// Of all requests, where no fault is in effect, and of those that were refused alone, where faults of one message
	// don't count: since the lock was free and asked for, and since it was asked for though nothing shows that it was held.
	free, vague [2]chain

	firm    [2]time.Duration // until when it was in the way of requests: by those who do not read, and by those who do
	given   time.Duration    // when it was granted last, or found to be held
	holders []occupation     // of a semaphore: those that may be in the way
	out     int              // their permits
	soonest time.Duration    // when the first of them ends
	perhaps time.Duration    // until when the first request since then may hold it whose outcome is unknown; 0 for none

	endless *holding.Op // the last acquire that may hold it for ever, and need not
	doubted bool
}

// judge goes through the requests for the lock in the order of their answers.
func (w *watch) judge() {
	requests := slices.DeleteFunc(slices.Clone(w.Ops), func(op *holding.Op) bool { return !isAcquire(op) })
	w.occupied = w.occupations(w.Lock)
	for _, op := range w.Requests {
		at, now := op.Complete.Index, op.Complete.Time
		if op.Open() {
			break
		}
		for ; len(requests) > 0 && requests[0].Invoke.Index < at; requests = requests[1:] {
			w.waiting = append(w.waiting, requests[0])
		}
		i := slices.Index(w.waiting, op)
		w.waiting = slices.Delete(w.waiting, i, i+1)
		w.begin(at)
		w.ask(op, at, now)
		switch {
		case op.OK():
			w.grant(op)
			w.given, w.free, w.perhaps = max(w.given, now), [2]chain{}, 0
			w.begin(at + 1)
		case op.Unknown() && w.perhaps == 0 && op.Lease > 0:
			_, w.perhaps, _ = w.carriedOut(op, w.Drift)
		}
	}
	w.waiting = append(w.waiting, requests...)
	w.begin(math.MaxInt64)
	for _, op := range w.waiting {
		w.ask(op, math.MaxInt64, w.End)
	}
	for _, f := range w.free {
		if w.bound >= ProgressBound && f.first != nil && !f.told && f.heard-f.asked >= w.bound/2 && w.End-f.heard <= w.bound/4 {
			w.doubt("the record ended %s after %q was free and asked for, and no client was granted it: before the bound, %s, was over", say.Span(w.End-f.asked), w.Name, say.Span(w.bound))
		}
	}
}

// begin takes note of the occupations that begin before an event.
func (w *watch) begin(before int64) {
	for ; len(w.occupied) > 0 && w.occupied[0].from < before; w.occupied = w.occupied[1:] {
		o := w.occupied[0]
		if w.until = max(w.until, o.until); o.until == history.Never && o.firm != history.Never {
			w.endless = o.by
		}
		if o.firm < 0 && isAcquire(o.by) { // nothing shows that it was granted
			if _, crashed := w.gone(o.by, math.MaxInt64); crashed {
				w.dead = holding.After(w.dead, o.by.Lease)
			}
		}
		if w.Semaphore() && o.firm >= 0 {
			w.holders = append(w.holders, o)
			w.out, w.soonest = w.out+o.permits, min(w.soonest, o.firm)
		} else if o.reads {
			w.firm[1] = max(w.firm[1], o.firm)
		} else {
			w.firm[0] = max(w.firm[0], o.firm)
		}
	}
}

// rightly reports whether a request may be refused a lock that is free: one for several locks at once, and one for more
// permits than there are until now.
func (w *watch) rightly(op *holding.Op, now time.Duration) (is bool, capacity int) {
	least, _ := w.CapacityIn(op.Invoke.Time, now)
	return w.joint[op] || w.Semaphore() && int(op.Permits) > max(least, 1), max(least, 1)
}

// ask takes note that a client asked for the lock until now, an event, and was not granted it before now.
func (w *watch) ask(op *holding.Op, at int64, now time.Duration) {
	faults, refused := w.at(at), op.Failed()
	rightly, capacity := w.rightly(op, now)
	if rightly || faults.active[lasting] > 0 || faults.active[message] > 0 && !refused {
		return
	}
	held, last := w.inTheWay(op, capacity, at, now)
	if held {
		w.given = max(w.given, now)
	}
	long := time.Duration(0)
	for i, since := range [...]time.Duration{faults.ended[message], faults.ended[lasting]} {
		first := op
		switch {
		case i == 0 && !faults.calm() || i == 1 && !refused:
			continue
		case i == 0:
			first = w.first(op, at)
		}
		if !held {
			long = max(long, w.vague[i].add(max(last, since), first, now, w.pause))
		}
		since = holding.After(max(since, w.until), w.dead) // a server may have given it to those in its queue that have crashed, one after the other
		if since >= now || op.Unknown() && !op.Open() {
			continue
		}
		f := &w.free[i]
		waited := f.add(since, first, now, w.pause)
		if refused {
			f.refuse++
		}
		if i == 0 {
			w.longest = max(w.longest, waited)
			w.counts["requests"]++
		}
		if waited >= w.bound && !w.free[0].told && !f.told {
			f.told = true
			w.stuck(f, op, faults, now)
		}
	}
	if w.bound >= ProgressBound && long >= w.bound && !w.doubted {
		w.doubted = true
		why := ""
		if w.endless != nil {
			why = fmt.Sprintf(": %s, which asked for it at %s without a lease, may have been granted it for ever", caller(w.Record(), w.endless), seconds(w.endless.Invoke.Time))
		}
		w.doubt("lock %q was asked for and not granted for longer than %s, until %s at least, and nothing shows that a client was in the way all that time%s", w.Name, say.Span(w.bound), seconds(now), why)
	}
}

// first is of a request that was answered now, and those for the same lock that are
// under way, the one that was sent first.
func (w *watch) first(op *holding.Op, at int64) *holding.Op {
	for _, other := range w.waiting {
		if other.Invoke.Time >= op.Invoke.Time {
			break
		}
		_, crashed := w.gone(other, at)
		if rightly, _ := w.rightly(other, op.Complete.Time); !crashed && !rightly {
			return other
		}
	}
	return op
}

// inTheWay reports whether a client held the lock for certain, or until its lease was over, in the
// way of a request; and when one did last.
func (w *watch) inTheWay(op *holding.Op, capacity int, at int64, now time.Duration) (is bool, last time.Duration) {
	if w.soonest < now { // those who are no longer in the way of a request for permits
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
	firm := w.firm[0]
	if op.Mode != holding.Read || slices.ContainsFunc(w.waiting, func(other *holding.Op) bool { return other.Mode != holding.Read }) {
		firm = max(firm, w.firm[1])
	}
	is = firm >= now || w.out > 0 && w.out+op.Amount() > capacity
	last = max(w.given, firm, min(w.perhaps, now))
	for _, other := range w.waiting { // granted, perhaps, and never told
		if crash, crashed := w.gone(other, at); crashed && other.Lease > 0 {
			end := holding.After(w.arrived(crash).Time, other.Lease)
			is, last = is || end >= now, max(last, min(end, now))
		}
	}
	behind := w.out > 0 && len(w.waiting) > 0 && w.waiting[0].Invoke.Index < op.Invoke.Index // one that asks for more
	return is || w.perhaps >= now || behind, last
}

// stuck says that the lock was.
func (w *watch) stuck(f *chain, op *holding.Op, faults *calm, now time.Duration) {
	tries, hindered, asking := "and no request was answered", "was in effect", "asked for it"
	switch f.refuse {
	case 0:
	case 1:
		tries = "and 1 request was refused"
	default:
		tries = "and " + say.Count(f.refuse, "request") + " were refused"
	}
	switch {
	case f.since < faults.ended[message] || !faults.calm():
		hindered = "of more than one message was in effect"
	case faults.active[sparing] > 0 || faults.ended[sparing] > f.since:
		hindered = "of more than a minority of the servers was in effect"
	}
	if f.first.Invoke.Time < f.asked {
		asking = "had asked for it"
	}
	w.add(violation(Stuck, w.Name, holding.Span{From: f.asked, Until: now}, events(f.first.Invoke.Index, op.Invoke.Index),
		"no client can have held %q since %s, and no fault %s, but from %s, when %s %s, until %s no client was granted it, %s",
		w.Name, seconds(f.since), hindered, seconds(f.asked), caller(w.Record(), f.first), asking, seconds(now), tries))
}

// left are the refused requests that left the lock with their owner: a master had it for a request
// that was refused, so that no client holds the lock and none can acquire it. A request during
// which a server may have forgotten, or not yet known, that it was withdrawn is left out, and so is one
// of which a copy may have been under way.
func left(ev *evidence) []Violation {
	var all []Violation
	for i := range ev.Faults {
		e := &ev.Faults[i]
		at := strings.LastIndexByte(e.Value, ' ')
		if e.Op != history.Observe || e.What != history.ObserveLeft || at < 0 {
			continue
		}
		op := refusedBefore(ev, e.Value[:at], e.Value[at+1:], e.Index)
		if op == nil || unsettled(ev, e.Node, op.Invoke.Index, e.Index) || promoted(ev, e.Node, op.Invoke.Index, e.Index) {
			continue
		}
		all = append(all, violation(Stuck, e.Value[:at], holding.Span{From: op.Complete.Time, Until: e.Time}, events(op.Invoke.Index, op.Complete.Index, e.Index),
			"%s was refused, and holds: the refusal of %q was answered at %s, and at %s %s has the lock for that request",
			caller(ev.Record, op), e.Value[:at], seconds(op.Complete.Time), seconds(e.Time), e.Node))
	}
	return all
}

// refusedBefore is the acquire of an owner that was refused before an event; nil if there is none, or
// another one of the owner may be under way or granted.
func refusedBefore(ev *evidence, lock, owner string, before int64) *holding.Op {
	l := ev.Lock(lock)
	if l == nil {
		return nil
	}
	requests := holding.Filter(l.Ops, func(op *holding.Op) bool { return isAcquire(op) && ev.Name(op.Owner) == owner })
	if len(requests) == 0 || slices.ContainsFunc(requests, func(op *holding.Op) bool { return !op.Failed() || op.Complete.Index > before }) {
		return nil
	}
	return requests[len(requests)-1]
}

// serverName is how topologies name servers.
var serverName = regexp.MustCompile(`[a-z]+-[0-9]+`)

// unsettling reports whether a fault may have a server forget that a request was withdrawn, or a copy
// of the request arrive there after that: messages that are late on links to other servers don't, nor do replies.
func unsettling(e *history.Event, server string) bool {
	if e.Op != history.Inject || e.Type != history.Invoke {
		return false
	}
	harmless := e.Fault == "delay-reply" || e.Fault == "hold-reply" || // the server has carried out the request then
		serverName.MatchString(e.Target) && !slices.Contains(serverName.FindAllString(e.Target, -1), server)
	for _, effect := range e.Effects {
		switch effect {
		case history.ShiftsClock:
			if serverName.MatchString(e.Target) {
				return true
			}
		case history.Loses, history.Cuts, history.Disconnects, history.Refuses, history.StopsClient:
		case history.Delays, history.Stalls:
			if !harmless {
				return true
			}
		default:
			return true
		}
	}
	return len(e.Effects) == 0 && !harmless
}

// endsFault reports whether a fault is over with an event.
func endsFault(e *history.Event) bool {
	return e.Op == history.Heal && e.Type == history.OK || e.Op == history.Inject && e.Type == history.Fail
}

// unsettled reports whether at some time between two events a fault was in effect that is unsettling.
func unsettled(ev *evidence, server string, from, until int64) bool {
	for i := range ev.Faults {
		e := &ev.Faults[i]
		ends := func(x history.Event) bool {
			return endsFault(&x) && x.Index < from && x.Fault == e.Fault && x.Target == e.Target
		}
		if e.Index <= until && unsettling(e, server) && !slices.ContainsFunc(ev.Faults[i:], ends) {
			return true
		}
	}
	return false
}

// promoted reports whether a server may have become the master between two events, at the second of which it is: a
// failover goes on when the fault is over that began it, and the server may know a request and not that it was withdrawn.
func promoted(ev *evidence, server string, from, until int64) bool {
	replica := false // as was seen last
	for i := range ev.Faults {
		e := &ev.Faults[i]
		if e.Op != history.Observe || e.What != history.ObserveRole || e.Node != server || e.Index > until {
			continue
		}
		if replica && e.Value == "master" && e.Index > from {
			return true
		}
		replica = e.Value == "replica"
	}
	return replica
}
