package holding

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// An ownerState follows one owner of one lock.
type ownerState struct {
	holdings *Holdings
	key      owned
	id       int
	promise  history.Guarantees

	hold     *open                // what it holds now, if anything
	last     int                  // index in holdings.held of the latest hold that a release ended, plus 1
	gone     time.Duration        // when that release had taken effect at the latest
	lapse    time.Duration        // when the last lease of that hold ended
	unproven []*history.Operation // its acquires with an unknown outcome that nothing has proven yet
	pending  []time.Duration      // invokes of its releases with an unknown outcome
	renew    time.Duration        // the earliest end that an extend with an unknown outcome may have set
	renewBy  int64                // its invoke
	endless  time.Duration        // the first invoke of those that may have left a hold without a lease
	crashed  crashes
	carried  bool          // pending or renew were there before the hold began
	joined   int64         // since which entry it is cut; -1 if it is not
	cut      bool          // an acquire with an unknown outcome may be why a hold was over
	busy     int64         // index of the latest completion of an acquire or release
	asked    []granting    // its acquires that were not refused, in order of their invokes
	open     bool          // one of its operations is under way
	from     int64         // the first event since it was settled
	movable  time.Duration // when the first of the holds began that turn on what is under way, though they are over
	space    open          // for the hold
}

// open is a hold under construction.
type open struct {
	Hold
	least, most int           // the count of what it holds, without its pending releases
	alive       time.Duration // invoke of the last ok answer
	lease       lease
	blurred     bool          // lease is the lesser of two that were given at the same time
	told        time.Duration // completion of the operation that gave the lease
	old         int           // index in holdings.held, plus 1, of the hold that this may be still
	dropped     time.Duration // completion of the last release that was answered ok
	zeroAt      time.Duration // when the pending releases could first end it; [history.Never] if they cannot
	zeroBy      int64
}

func (a *ownerState) read(entries []entry) {
	for _, e := range entries {
		if e.op != nil && e.op.Invoke.Op == history.Extend { // else it does not matter
			a.ask(entries)
			break
		}
	}
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		if e.next = first(e); i+1 < len(entries) {
			e.next = min(e.next, entries[i+1].next)
		}
	}
	fresh, latest := true, int64(-1)
	for _, e := range entries {
		if fresh && latest < e.next { // and nothing before goes on beside what follows
			a.from = e.next
		}
		if e.op != nil {
			latest = max(latest, e.op.Complete.Index)
			if e.op.Complete.Index < 0 {
				latest = math.MaxInt64
			}
		}
		if e.lost != nil {
			continue // computeLeases has cut the lease
		}
		op := e.op
		a.cut = a.cut || a.joined >= 0 && e.at > a.joined
		switch op.Invoke.Op {
		case history.Acquire:
			a.acquire(op)
		case history.Release:
			a.release(op)
		case history.Extend:
			a.extend(op)
		default:
		}
		if a.cut && a.joined < 0 {
			a.joined = e.at
		}
		fresh = a.settled()
	}
}

// first is the index of the first event of an entry.
func first(e *entry) int64 {
	if e.lost != nil {
		return e.lost.Index
	}
	return e.op.Invoke.Index
}

// granting is an acquire that was not refused.
type granting struct {
	invoke   int64
	answered int64 // the latest completion of those up to it that were answered ok; -1 if none was
}

func (a *ownerState) ask(entries []entry) {
	for _, e := range entries {
		if e.op == nil || e.op.Invoke.Op != history.Acquire || e.op.Failed() {
			continue
		}
		g := granting{invoke: e.op.Invoke.Index, answered: -1}
		if e.op.OK() {
			g.answered = e.op.Complete.Index
		}
		a.asked = append(a.asked, g)
	}
	slices.SortFunc(a.asked, func(x, y granting) int { return cmp.Compare(x.invoke, y.invoke) })
	for i := 1; i < len(a.asked); i++ {
		a.asked[i].answered = max(a.asked[i].answered, a.asked[i-1].answered)
	}
}

// settled reports whether the owner stands as if it had never been.
func (a *ownerState) settled() bool {
	return a.hold == nil && len(a.unproven) == 0 && len(a.pending) == 0 && a.renew == history.Never && a.endless == history.Never
}

// stands is the state of the account.
func (a *ownerState) stands(now time.Duration) Account {
	s := Account{
		Lock: a.key.lock, Owner: a.key.owner, Read: a.key.read, From: a.from, Hold: -1, Settled: a.settled() && !a.open, Busy: a.open, Open: a.open, Since: history.Never,
		Cut: -1, Joined: -1,
	}
	if !a.open {
		s.Joined = a.joined
	}
	if min(a.renew, a.endless) != history.Never {
		s.Cut = a.renewBy
	}
	switch {
	case a.open:
		s.Hold = a.from
	case a.hold != nil:
		s.Hold = a.hold.Acquire.Invoke.Index
		if a.hold.old > 0 {
			s.Hold = a.from // the older one may be the same
		}
	}
	if a.hold != nil {
		if end, _, _ := a.earliest(); end >= now {
			s.Open = true
		}
		if s.Open {
			s.Since = a.hold.Start
		}
	}
	s.Since = min(s.Since, a.movable)
	return s
}

// doubt says why the account of the lock is incomplete.
func (a *ownerState) doubt(why string) {
	a.holdings.doubts = append(a.holdings.doubts, doubt{key: a.key, open: a.open, why: why})
}

// follows checks that the acquires and releases of one owner do not overlap.
func (a *ownerState) follows(op *history.Operation) {
	a.sentAfter(op)
	a.busy = max(a.busy, op.Complete.Index)
}

// sentAfter checks that op was sent after the acquires and releases before it
// were answered.
func (a *ownerState) sentAfter(op *history.Operation) {
	if op.Invoke.Index < a.busy {
		a.doubt("the operations of owner " + a.key.owner + " overlap, so that their order is unknown")
		a.holdings.disordered = append(a.holdings.disordered, a.key)
	}
}

func (a *ownerState) acquire(op *history.Operation) {
	switch {
	case op.Failed():
		return
	case op.Unknown():
		a.sentAfter(op)
		a.unproven = append(a.unproven, op)
		if a.promise.Reentrant { // it may be an inner one, with a lease of its own
			a.joins(op)
			a.mayShorten(op)
		}
		return
	}
	a.follows(op)
	most := 1
	if a.hold != nil {
		end, _, _ := a.earliest()
		if a.promise.Reentrant {
			if end > op.Complete.Time {
				a.joins(op)
				a.confirm(op)
				a.hold.least++
				a.hold.most++
				a.count(op.Invoke)
				return
			}
			most = a.hold.most + 1 // or it is the old hold still, and counts on
		}
		a.end()
	}
	a.begin(op, op, most)
	if most > 1 {
		a.hold.old, a.hold.Again = len(a.holdings.held), true
	}
}

func (a *ownerState) begin(acquire, proof *history.Operation, most int) {
	e := acquire.Invoke
	h := Hold{
		Lock: e.Lock, Owner: a.key.owner, Process: e.Process, Account: a.id, Mode: e.Mode, Permits: e.Amount(),
		first: e.Index, Token: acquire.Complete.Token, Acquire: *acquire, Proof: *proof, Start: proof.Complete.Time, EndEvent: -1,
	}
	if h.Mode == "" {
		h.Mode = history.Exclusive
	}
	if h.perhaps = acquire.Complete.Index < 0 && a.holdings.unfinished; h.perhaps {
		a.doubt("an acquire of owner " + a.key.owner + " is under way")
		a.movable = min(a.movable, h.Start)
	}
	a.carried = len(a.pending) > 0 || a.renew != history.Never
	a.space = open{Hold: h, least: 1, most: most, alive: proof.Invoke.Time, zeroAt: history.Never, told: proof.Complete.Time}
	a.hold = &a.space
	a.joins(acquire)
	if proof.Invoke.Op != history.Release {
		a.hold.lease = a.holdings.leases[proof.Ordinal()]
	} else {
		a.hold.lease = lease{certain: history.Never, validity: history.Never, lost: -1}
	}
	if len(a.pending) > 0 {
		a.hold.zeroAt, a.hold.zeroBy = a.pending[len(a.pending)-1], -1
	}
}

// count notes when the pending releases could first end the hold.
func (a *ownerState) count(by *history.Event) {
	h := a.hold
	switch {
	case h.least > len(a.pending):
		h.zeroAt = history.Never
	case h.zeroAt == history.Never:
		h.zeroAt, h.zeroBy = by.Time, by.Index
	}
}

// confirm takes note that op, an extend or inner acquire, was answered ok.
func (a *ownerState) confirm(op *history.Operation) {
	h := a.hold
	h.prove(op)
	l := a.holdings.leases[op.Ordinal()]
	h.late(op, op.Complete.Time)
	if op.Invoke.Time <= h.told { // at the same time as another: either may have been last
		l.certain = min(l.certain, h.lease.certain)
		if h.blurred {
			a.doubt("the extends of owner " + a.key.owner + " overlap one another")
		}
		h.blurred = true
	} else {
		h.blurred = false
	}
	if l.lost < 0 { // until it was answered, what had been said before it held
		l.validity = max(l.validity, min(h.lease.validity, op.Complete.Time))
	}
	before := h.lease.validity
	if l.lost >= 0 { // which may have come before the answer
		before = min(before, l.validity)
	}
	if op.Complete.Time > before {
		a.endValidity(before)
		h.Belief = append(h.Belief, Span{From: op.Complete.Time, Until: history.Never})
	}
	h.lease = l
	h.told = max(h.told, op.Complete.Time)
	h.alive = max(h.alive, op.Invoke.Time)
	if op.Invoke.Time > h.dropped { // else it may have come before the release
		a.continued()
		h.least = max(h.least, 1)
	}
	h.Extensions = append(h.Extensions, *op)
	a.count(op.Invoke)
}

// prove makes op the proof of the hold where it is a better witness of an
// acquire with an unknown outcome.
func (h *Hold) prove(op *history.Operation) {
	if op.Complete.Time < h.Start {
		h.Start, h.Proof = op.Complete.Time, *op
	}
}

// late notes the time that only op, confirmed after the lease, accounts for.
func (h *open) late(op *history.Operation, until time.Duration) {
	if op.Invoke.Time > h.lease.certain {
		from := max(h.lease.certain, h.alive, h.Start)
		h.Late = append(h.Late, LateSpan{Span: Span{From: from, Until: max(from, until)}, By: *op})
	}
}

// cut makes the hold end no later than end.
func (h *Hold) cut(end time.Duration) {
	h.End = min(h.End, end)
	for i := range h.Late {
		h.Late[i].Until = min(h.Late[i].Until, end)
	}
}

// again reports whether op, which was answered ok, may belong to an acquire with
// an unknown outcome rather than to the hold that is there: that can have ended
// by then. The account takes the acquire for granted, which claims less.
func (a *ownerState) again(op *history.Operation) bool {
	if len(a.unproven) == 0 || a.unproven[0].Invoke.Time > op.Complete.Time {
		return false
	}
	most := 1
	if a.hold != nil {
		if end, _, _ := a.earliest(); end > op.Complete.Time || a.hold.Acquire.Invoke.Index == a.unproven[0].Invoke.Index {
			return false
		}
		most = a.hold.most + 1
		a.end()
	}
	a.doubt("an acquire with an unknown outcome may have granted it to owner " + a.key.owner + " again")
	a.holdings.disordered = append(a.holdings.disordered, a.key) // what comes next may belong to either
	acquire := a.unproven[0]
	a.unproven = a.unproven[1:]
	a.begin(acquire, op, most)
	a.hold.old, a.hold.Again = len(a.holdings.held), true
	return true
}

// continued notes that the hold was confirmed although its own count is used
// up: only the old hold, which then never ended, can account for that.
func (a *ownerState) continued() {
	if a.hold.old > 0 && a.hold.least == 0 {
		a.doubt("owner " + a.key.owner + " acquired again when its lease may have run out, and counted on")
	}
}

// endValidity ends the validity. An answer that came later was valid at its
// instant.
func (a *ownerState) endValidity(until time.Duration) {
	h := a.hold
	if len(h.Belief) == 0 {
		// One array for the first spans of all holds: nearly every hold has one.
		b := a.holdings
		b.beliefs = append(b.beliefs, Span{From: h.Start, Until: history.Never})
		h.Belief = b.beliefs[len(b.beliefs)-1 : len(b.beliefs) : len(b.beliefs)]
	}
	for i := len(h.Belief) - 1; i >= 0; i-- {
		s := &h.Belief[i]
		if s.Until = max(min(s.Until, until), s.From); s.From <= until {
			return // what was believed before ended before it
		}
	}
}

// earliest is when the hold can first have ended, as far as is known, why, and
// by which event.
func (a *ownerState) earliest() (end time.Duration, why string, by int64) {
	h := a.hold
	end, why, by = max(h.lease.certain, h.alive), EndExpired, -1
	switch {
	case end == history.Never:
		why = EndOpen
	case h.lease.lost >= 0 && end == h.lease.validity:
		why, by = EndLost, h.lease.lost
	}
	if h.zeroAt != history.Never && max(h.zeroAt, h.alive) < end {
		end, why, by = max(h.zeroAt, h.alive), EndUnknown, h.zeroBy
	}
	if a.renew != history.Never && max(a.renew, h.alive) < end {
		end, why, by = max(a.renew, h.alive), EndUnknown, -1
	}
	return end, why, by
}

// end closes the hold at the earliest instant at which it can have ended.
func (a *ownerState) end() { a.endAt(a.earliest()) }

func (a *ownerState) endAt(end time.Duration, why string, by int64) {
	if why == EndUnknown && a.open && a.holdings.unfinished {
		a.movable = min(a.movable, a.hold.Start)
	}
	if a.carried && why == EndUnknown {
		a.usedAgain()
	}
	if a.promise.Reentrant && len(a.unproven) > 0 { // by its lease, or by the crash of its process
		a.cut = true
	}
	a.close(end, why, by)
}

func (a *ownerState) usedAgain() {
	a.doubt("owner " + a.key.owner + " was used again after an operation with an unknown outcome")
}

func (a *ownerState) close(end time.Duration, why string, by int64) {
	h := a.hold
	if h.Proof.Invoke.Op != history.Release { // else the owner never knew that it held
		a.endValidity(h.lease.validity)
	}
	h.End, h.Ended, h.EndEvent = end, why, by
	if h.old > 0 {
		h.first = a.from
	}
	h.cut(end)
	if h.old > 0 && end <= h.Start {
		// It was granted too late to tell: if it is the old hold still, then
		// it may have cut the old lease to its own.
		old := &a.holdings.held[h.old-1]
		if end < old.End {
			h.Cuts = old.Token
		}
		old.cut(end)
	}
	a.holdings.held = append(a.holdings.held, h.Hold)
	a.hold, a.last = nil, 0
}

func (a *ownerState) release(op *history.Operation) {
	if op.Unknown() {
		a.pending = append(a.pending, op.Invoke.Time)
		if a.hold != nil {
			a.hold.Release = op
			if a.hold.least <= len(a.pending) {
				a.endValidity(op.Invoke.Time)
			}
			a.count(op.Invoke)
		}
		return
	}
	a.follows(op)
	if a.hold == nil {
		if op.OK() {
			a.inferGrant(op)
		}
		return
	}
	if op.OK() {
		a.again(op)
	}
	h := a.hold
	if op.Failed() {
		switch {
		case op.Invoke.Time > h.Start: // else it may have been answered before the hold began
			h.Release = op
			a.denied(op, op.Invoke.Time, op.Invoke.Index)
		case h.Acquire.Invoke.Index < op.Invoke.Index: // its owner had given the lock up
			a.endValidity(op.Invoke.Time)
		}
		return
	}
	h.Release = op
	h.prove(op)
	a.continued()
	h.least, h.most = max(h.least, 1)-1, h.most-1
	h.dropped, h.zeroBy = op.Complete.Time, op.Invoke.Index
	a.count(op.Invoke)
	if h.least == 0 {
		a.endValidity(op.Invoke.Time)
	}
	if h.most == 0 {
		a.releasedBy(op)
		return
	}
	h.late(op, op.Invoke.Time)
	h.alive = max(h.alive, op.Invoke.Time)
}

// releasedBy closes the hold with a release that was answered ok.
func (a *ownerState) releasedBy(op *history.Operation) {
	h := a.hold
	h.late(op, op.Invoke.Time)
	h.Kept = a.promise.Reentrant && len(a.unproven) > 0
	a.lapse = h.lease.certain
	a.close(max(op.Invoke.Time, h.alive), EndReleased, op.Invoke.Index)
	a.last, a.gone = len(a.holdings.held), op.Complete.Time
}

// denied judges the answer "not held", after which there is no hold. What is under
// way may explain it, or turn out not to: then the hold was lost as early as at.
func (a *ownerState) denied(op *history.Operation, at time.Duration, by int64) {
	good, why, ender := a.earliest()
	if good <= op.Complete.Time {
		a.endValidity(at)
		if lost := max(at, a.hold.alive); why == EndUnknown && lost < good && a.open && a.holdings.unfinished {
			good = lost
		}
		a.endAt(good, why, ender)
		return
	}
	a.endValidity(at)
	perhaps := a.hold.perhaps
	a.close(max(at, a.hold.alive), EndLost, by)
	if perhaps {
		return
	}
	a.holdings.Denied = append(a.holdings.Denied, Denial{Operation: *op, Hold: a.holdings.held[len(a.holdings.held)-1], Good: good})
}

// inferGrant looks for the unknown acquire that explains why op was answered ok
// although the owner has no known hold. It is granted at the latest when op is
// answered.
func (a *ownerState) inferGrant(op *history.Operation) {
	if len(a.unproven) == 0 || a.unproven[0].Invoke.Time > op.Complete.Time {
		a.holdings.Uncovered = append(a.holdings.Uncovered, *op)
		return
	}
	if a.cut { // an acquire that was part of a hold is no grant after it
		a.usedAgain()
	}
	acquire := a.unproven[0]
	a.unproven = a.unproven[1:]
	a.begin(acquire, op, 1)
	if op.Invoke.Op == history.Release {
		a.hold.Release = op
		a.lapse = a.hold.lease.certain
		a.close(op.Invoke.Time, EndReleased, op.Invoke.Index)
		a.last, a.gone = len(a.holdings.held), op.Complete.Time
	}
}

func (a *ownerState) extend(op *history.Operation) {
	switch {
	case op.Unknown():
		a.mayShorten(op)
		switch {
		case a.hold != nil:
			a.hold.Extensions = append(a.hold.Extensions, *op)
		case op.Complete.Index < 0 && a.last > 0 && op.Invoke.Time <= a.gone: // it may be confirmed
			a.movable = min(a.movable, a.holdings.held[a.last-1].Start)
		}
	case op.Failed():
		switch {
		case a.grantedDuring(op):
			a.doubt("an extend of owner " + a.key.owner + " overlaps its acquire")
		case a.hold == nil:
			if a.last > 0 && op.Invoke.Time > a.holdings.held[a.last-1].Start {
				a.gone = min(a.gone, op.Complete.Time)
			}
		case op.Invoke.Time <= a.hold.Start:
			// It may have been answered before the hold began.
		default:
			a.hold.Extensions = append(a.hold.Extensions, *op)
			a.denied(op, op.Complete.Time, op.Complete.Index)
		}
	case a.grantedDuring(op):
		// It may belong to an earlier hold, or to this one.
		a.doubt("an extend of owner " + a.key.owner + " overlaps its acquire")
		a.mayShorten(op)
	case (a.hold != nil || a.last > 0 && op.Invoke.Time <= a.gone) && a.again(op):
	case a.hold == nil && a.last > 0 && op.Invoke.Time <= a.gone:
		// At the same time as the release that ended the hold, and before it.
		h := &a.holdings.held[a.last-1]
		h.prove(op)
		end := max(h.End, op.Invoke.Time)
		if op.Invoke.Time > a.lapse { // else its lease was there until then
			if n := len(h.Late); n > 0 && h.Late[n-1].Until == h.End {
				h.Late[n-1].Until = end
			} else {
				h.Late = append(h.Late, LateSpan{Span: Span{From: max(a.lapse, h.End), Until: end}, By: *op})
			}
		}
		a.lapse = max(a.lapse, a.holdings.leases[op.Ordinal()].certain)
		h.End = end
		h.Extensions = append(h.Extensions, *op)
	case a.hold == nil:
		a.inferGrant(op)
	default:
		a.confirm(op)
	}
}

// grantedDuring reports whether op, an extend, may have come before or after a
// grant: an acquire that was not refused was invoked, or one was answered ok,
// between its invoke and its completion.
func (a *ownerState) grantedDuring(op *history.Operation) bool {
	at := sort.Search(len(a.asked), func(i int) bool { return a.asked[i].invoke > op.Complete.Index })
	if at == 0 {
		return false
	}
	last := a.asked[at-1]
	return last.invoke > op.Invoke.Index || last.answered > op.Invoke.Index
}

// mayShorten notes that op may have cut a hold to its own lease.
func (a *ownerState) mayShorten(op *history.Operation) {
	if op.Expires() == 0 && op.Invoke.Time < a.endless {
		a.endless = op.Invoke.Time
		if a.renew == history.Never {
			a.renewBy = op.Invoke.Index
		}
	}
	if end := max(op.Invoke.Time, a.holdings.leases[op.Ordinal()].certain); end < a.renew {
		a.renew, a.renewBy = end, op.Invoke.Index
	}
}

// joins notes that the process of an acquire has part in what the owner holds: if
// an operation with an unknown outcome left that without a lease, whatever lease
// the acquire asked for, then the crash of the process may have ended it.
func (a *ownerState) joins(acquire *history.Operation) {
	if e := a.crashed.from(acquire.Invoke.Process, a.endless); e != nil && e.Time < a.renew {
		a.renew, a.carried = e.Time, true
	}
}
