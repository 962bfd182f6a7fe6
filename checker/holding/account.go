package holding

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

const usedAgain = "owner %s was used again after an operation with an unknown outcome"

// An ownerState follows one account of a lock.
type ownerState struct {
	*Lock
	owner     int32
	id        int32
	reentrant bool // who reads may read again

	cutLeases map[*Op]lease // of operations, by notices of loss
	hold      *open         // what it holds now, if anything
	last      *Grant        // the latest hold, if a release ended it
	before    *Grant        // the latest hold
	gone      time.Duration // when that release had taken effect at the latest
	lapse     time.Duration // when the last lease of that hold ended
	unproven  []*Op         // its acquires with an unknown outcome that nothing has proven yet
	pending   []Stamp       // invokes of its releases with an unknown outcome
	renew     time.Duration // the earliest end that an extend with an unknown outcome may have set
	endless   time.Duration // the first invoke of those that may have left a hold without a lease
	carried   bool          // pending or renew were there before the hold began
	cut       bool          // an acquire with an unknown outcome may be why a hold was over
	busy      int64         // index of the latest completion of an acquire or release
	asked     []*Op         // its acquires that were not refused, in order of their invokes
	behind    []*Op         // its extends that were answered after others that were sent later
	refused   []*Op         // its releases that give up a hold, from this one on
	shorter   []Span        // from the invokes of what may have cut its lease, until when
	parts     []int         // the processes that may have part in what it holds
	space     open          // for the hold
}

// open is a hold under construction.
type open struct {
	*Grant
	least, most int           // the count of what it holds, without its pending releases
	alive       time.Duration // invoke of the last ok answer
	lease       lease
	blurred     bool          // lease is the lesser of two that were given at the same time
	told        time.Duration // completion of the operation that gave the lease
	old         *Grant        // the hold that this may be still
	dropped     time.Duration // completion of the last release that was answered ok
	zeroAt      time.Duration // when the pending releases could first end it; [history.Never] if they cannot
	zeroBy      int64
}

// follow goes through what happened to an account.
func (a *ownerState) follow(l *Lock, reads bool, ops []*Op) {
	if len(ops) == 0 {
		return
	}
	id := int32(len(l.Accounts)) //nolint:gosec // fewer than operations, which fit into memory
	l.Accounts = append(l.Accounts, reads)
	*a = ownerState{Lock: l, owner: ops[0].Owner, id: id, reentrant: l.Reentrant || reads, renew: history.Never, endless: history.Never, asked: a.asked[:0]}
	a.hearNotices(ops)
	a.behind = byAnswers(ops)
	for _, op := range ops {
		switch {
		case op.Verb == Lost:
			continue
		case op.Account < 0:
			op.Account = id
		default:
			l.Also[op] = append(l.Also[op], id)
		}
		switch {
		case op.Verb == Acquire && !op.Failed():
			a.asked = append(a.asked, op)
		case op.GivesUp():
			a.refused = append(a.refused, op)
		}
	}
	slices.SortFunc(a.asked, func(x, y *Op) int { return cmp.Compare(x.Invoke.Index, y.Invoke.Index) })
	for _, op := range ops {
		a.crashes(op)
		switch op.Verb {
		case Acquire:
			a.acquire(op)
		case Release:
			a.release(op)
		case Extend:
			a.extend(op)
		default: // hearNotices has cut the lease
		}
	}
	if a.hold != nil {
		a.endAt(a.earliest())
	}
}

// follows checks that op was sent after the acquires and releases of its owner before it were answered.
func (a *ownerState) follows(op *Op) {
	if op.Invoke.Index < a.busy {
		a.confused(a.owner, "the operations of owner %s overlap, so that their order is unknown")
	}
	if !op.Unknown() {
		a.busy = max(a.busy, op.Complete.Index)
	}
}

func (a *ownerState) acquire(op *Op) {
	if op.Failed() {
		return
	}
	a.follows(op)
	if op.Unknown() {
		a.unproven = append(a.unproven, op)
		if a.reentrant { // it may be an inner one, with a lease of its own
			a.joins(op)
			a.mayShorten(op)
		}
		return
	}
	most := 1
	if a.hold != nil {
		end, _, _ := a.earliest()
		if a.reentrant && end > op.Complete.Time {
			a.joins(op)
			a.confirm(op)
			a.hold.least++
			a.hold.most++
			a.count(op.Invoke)
			return
		}
		if a.reentrant {
			most = a.hold.most + 1 // or it is the old hold still, and counts on
		}
		a.endAt(a.earliest())
	}
	a.begin(op, op, most, most > 1)
}

// begin begins a hold. It may be again the one that was there before.
func (a *ownerState) begin(acquire, proof *Op, most int, again bool) {
	h := kept(&a.record.grants, Grant{Acquire: acquire, Proof: proof, Account: a.id, Start: proof.Complete.Time, EndEvent: -1, Again: again && a.before != nil})
	a.carried = len(a.pending) > 0 || a.renew != history.Never
	a.shorter = a.shorter[:0] // what was sent before leaves the hold in doubt
	for len(a.refused) > 0 && a.refused[0].Complete.Index < acquire.Invoke.Index {
		a.refused = a.refused[1:]
	}
	a.space = open{Grant: h, least: 1, most: most, alive: proof.Invoke.Time, zeroAt: history.Never, told: proof.Complete.Time}
	a.hold = &a.space
	a.joins(acquire)
	if proof != acquire { // one of those that are not proven, it is not known which
		for _, op := range append(slices.Clip(a.unproven), acquire) {
			a.parts = append(a.parts, op.Process)
		}
	}
	if a.hold.lease = a.lease(proof); proof.Verb == Release {
		a.hold.lease = lease{certain: history.Never, validity: history.Never, lost: -1}
	}
	if len(a.pending) > 0 {
		a.hold.zeroAt, a.hold.zeroBy = a.pending[len(a.pending)-1].Time, -1
	}
	if again {
		a.hold.old = a.before
	}
}

// count notes when the pending releases could first end the hold.
func (a *ownerState) count(by Stamp) {
	h := a.hold
	switch {
	case h.least > len(a.pending):
		h.zeroAt = history.Never
	case h.zeroAt == history.Never:
		h.zeroAt, h.zeroBy = by.Time, by.Index
	}
}

// confirm takes note that op, an extend or inner acquire, was answered ok.
func (a *ownerState) confirm(op *Op) {
	h := a.hold
	h.prove(op)
	l := a.lease(op)
	h.late(op, op.Complete.Time)
	if op.Invoke.Time <= h.told { // at the same time as another: either may have been last
		l.certain = min(l.certain, h.lease.certain)
		if h.blurred {
			a.doubt(a.owner, "the extends of owner %s overlap one another")
		}
		h.blurred = true
	} else {
		h.blurred = false
	}
	if l.lost < 0 { // until it was answered, what had been said before it held
		l.validity = max(l.validity, min(h.lease.validity, op.Complete.Time))
	}
	before := h.lease.validity
	if n := len(h.Belief); n > 0 && h.least > len(a.pending) && op.Invoke.Time >= h.Belief[n-1].Until { // a refusal had ended it
		before = min(before, h.Belief[n-1].Until)
	}
	if l.lost >= 0 { // which may have come before the answer
		before = min(before, l.validity)
	}
	if op.Complete.Time > before {
		h.endBelief(before)
		h.Belief = append(h.Belief, Span{From: op.Complete.Time, Until: history.Never})
	}
	h.lease = l
	h.told = max(h.told, op.Complete.Time)
	h.alive = max(h.alive, op.Invoke.Time)
	if op.Invoke.Time > h.dropped { // else it may have come before the release
		a.continued()
		h.least = max(h.least, 1)
	}
	h.Extensions = append(h.Extensions, op)
	a.count(op.Invoke)
}

// prove makes op the proof of the hold where it is a better witness of an
// acquire with an unknown outcome.
func (g *Grant) prove(op *Op) {
	if op.Complete.Time < g.Start {
		g.Start, g.Proof = op.Complete.Time, op
	}
}

// late notes the time that only op, confirmed after the lease, accounts for.
func (h *open) late(op *Op, until time.Duration) {
	if op.Invoke.Time > h.lease.certain {
		from := max(h.lease.certain, h.alive, h.Start)
		h.Late = append(h.Late, Late{Span: Span{From: from, Until: max(from, until)}, By: op})
	}
}

// cut makes the hold end no later than end.
func (g *Grant) cut(end time.Duration) {
	g.End = min(g.End, end)
	for i := range g.Late {
		g.Late[i].Until = min(g.Late[i].Until, end)
	}
}

// maybe is the first acquire with an unknown outcome that may explain why op was answered ok; nil if there is none.
func (a *ownerState) maybe(op *Op) *Op {
	if len(a.unproven) == 0 || a.unproven[0].Invoke.Time > op.Complete.Time {
		return nil
	}
	return a.unproven[0]
}

// again reports whether op, which was answered ok, may belong to an acquire with
// an unknown outcome rather than to the hold that is there: that can have ended
// by then. The account takes the acquire for granted, which claims less.
func (a *ownerState) again(op *Op) bool {
	acquire, most := a.maybe(op), 1
	if acquire == nil {
		return false
	}
	if a.hold != nil {
		for _, x := range a.behind {
			if x.mayPrecede(op) { // and then it cut the lease to its own
				a.mayShorten(x)
			}
		}
		if end, _, _ := a.earliest(); end > op.Complete.Time || a.hold.Acquire == acquire {
			return false
		}
		most = a.hold.most + 1
		a.endAt(a.earliest())
	}
	// What comes next may belong to either.
	a.confused(a.owner, "an acquire with an unknown outcome may have granted it to owner %s again")
	a.unproven = a.unproven[1:]
	a.begin(acquire, op, most, true)
	return true
}

// mayPrecede reports whether o may have been carried out before another operation though it was answered after it.
func (o *Op) mayPrecede(other *Op) bool {
	return o.Invoke.Index < other.Complete.Index && other.Complete.Index < o.Complete.Index
}

// continued notes that the hold was confirmed although its own count is used
// up: only the old hold, which then never ended, can account for that.
func (a *ownerState) continued() {
	if a.hold.old != nil && a.hold.least == 0 {
		a.doubt(a.owner, "owner %s acquired again when its lease may have run out, and counted on")
	}
}

// endBelief ends what its owner believes. An answer that came later was valid at its
// instant.
func (g *Grant) endBelief(until time.Duration) {
	if len(g.Belief) == 0 {
		g.Belief = []Span{{From: g.Start, Until: history.Never}}
	}
	for i := len(g.Belief) - 1; i >= 0; i-- {
		s := &g.Belief[i]
		if s.Until = max(min(s.Until, until), s.From); s.From <= until {
			return // what was believed before ended before it
		}
	}
}

// earliest is when the hold can first have ended, as far as is known, why, and
// by which event.
func (a *ownerState) earliest() (end time.Duration, why End, by int64) {
	h := a.hold
	end, why, by = max(h.lease.certain, h.alive), EndExpired, -1
	switch {
	case end == history.Never:
		why = EndOpen
	case h.lease.lost >= 0 && end == h.lease.validity:
		why, by = EndLost, h.lease.lost
	}
	good := end // but for what may have been done after a release was sent
	if h.zeroAt != history.Never && max(h.zeroAt, h.alive) < end {
		end, why, by = max(h.zeroAt, h.alive), EndUnknown, h.zeroBy
	}
	if a.renew != history.Never && max(a.renew, h.alive) < end {
		end, why, by = max(a.renew, h.alive), EndUnknown, -1
	}
	for _, op := range a.refused { // its owner gave it up, and a client that sends a request again is refused for what the first one did
		if op.Invoke.Time >= end {
			break
		}
		from, is := op.Invoke.Time, good <= op.Complete.Time
		for _, s := range a.shorter {
			if at := max(op.Invoke.Time, s.From); s.Until <= op.Complete.Time && (!is || at < from) {
				from, is = at, true
			}
		}
		if from = max(from, h.alive); is && from < end {
			if end, by = from, op.Invoke.Index; why == EndExpired {
				why = EndLost
			}
		}
	}
	return end, why, by
}

// endAt closes the hold at an instant at which it can have ended.
func (a *ownerState) endAt(end time.Duration, why End, by int64) {
	if a.carried && why == EndUnknown {
		a.doubt(a.owner, usedAgain)
	}
	if a.reentrant && len(a.unproven) > 0 { // by its lease, or by the crash of its process
		a.cut = true
	}
	a.close(end, why, by)
}

func (a *ownerState) close(end time.Duration, why End, by int64) {
	h := a.hold
	if h.Proof.Verb != Release { // else the owner never knew that it held
		h.endBelief(h.lease.validity)
	}
	h.End, h.Ended, h.EndEvent = end, why, by
	h.cut(end)
	if old := h.old; old != nil && end <= h.Start {
		// It was granted too late to tell: if it is the old hold still, then
		// it may have cut the old lease to its own.
		if end < old.End {
			h.Cuts = old.Token()
		}
		old.cut(end)
	}
	a.Holds = more(a.Holds, h.Grant)
	a.hold, a.last, a.before = nil, nil, h.Grant
}

// crashes cuts what an acquire or extend without a lease gave where a process crashed that has part in the hold: one that
// sent an acquire that belongs to it, and was not refused. Where it is not known which of them renews it, the first that
// crashes may end it, of which its holder is not told.
func (a *ownerState) crashes(op *Op) {
	if len(a.record.Crashes) == 0 || op.Failed() || op.Verb != Acquire && op.Verb != Extend {
		return
	}
	if op.Verb == Acquire {
		if op.OK() && (!a.reentrant || a.hold == nil) {
			a.ended()
		}
		if op.OK() || a.reentrant || a.hold == nil { // else it has no part in what is held
			a.parts = append(a.parts, op.Process)
		}
	}
	parts := a.parts
	for _, x := range a.unproven {
		if a.hold == nil && op.Verb == Extend { // it may belong to any of them
			parts = append(slices.Clip(parts), x.Process)
		}
	}
	for _, process := range parts {
		if at, crashed := a.record.crash(process, op.Invoke.Time); crashed && op.Expires() == 0 {
			op.Ends = min(op.Ends, at)
		}
	}
}

// ended forgets who had part in a hold, unless an inner acquire with an unknown outcome may keep it alive.
func (a *ownerState) ended() {
	if !a.reentrant || len(a.unproven) == 0 {
		a.parts = nil
	}
}

func (a *ownerState) release(op *Op) {
	if op.Unknown() {
		a.pending = append(a.pending, op.Invoke)
		if a.hold != nil {
			a.hold.Release = op
			if a.hold.least <= len(a.pending) {
				a.hold.endBelief(op.Invoke.Time)
			}
			a.count(op.Invoke)
		}
		return
	}
	a.follows(op)
	if a.hold == nil {
		if a.before != nil && a.before.Acquire.Invoke.Index < op.Invoke.Index { // its owner had given it up, whatever was answered before
			a.before.endBelief(op.Invoke.Time)
			a.before.Release = cmp.Or(a.before.Release, op)
		}
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
			a.hold.endBelief(op.Invoke.Time)
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
		a.hold.endBelief(op.Invoke.Time)
	}
	if h.most == 0 {
		a.releasedBy(op)
		a.before.Kept = a.reentrant && len(a.unproven) > 0
		return
	}
	h.late(op, op.Invoke.Time)
	h.alive = max(h.alive, op.Invoke.Time)
}

// releasedBy closes the hold with a release that was answered ok.
func (a *ownerState) releasedBy(op *Op) {
	h := a.hold
	h.late(op, op.Invoke.Time)
	h.Release, a.lapse = op, h.lease.certain
	a.close(max(op.Invoke.Time, h.alive), EndReleased, op.Invoke.Index)
	a.last, a.gone = a.before, op.Complete.Time
	a.ended()
}

// denied judges the answer "not held", after which there is no hold.
func (a *ownerState) denied(op *Op, at time.Duration, by int64) {
	good, why, ender := a.earliest()
	for _, x := range a.behind {
		if cut := max(x.Invoke.Time, x.Ends, a.hold.alive); cut < good && x.mayPrecede(op) { // and then it cut the lease to its own
			good, why, ender = cut, EndUnknown, -1
		}
	}
	a.hold.endBelief(at)
	a.ended()
	if good <= op.Complete.Time {
		a.endAt(good, why, ender)
		return
	}
	a.close(max(at, a.hold.alive), EndLost, by)
	a.Denied = append(a.Denied, Denial{Operation: op, Hold: a.before, Good: good})
}

// inferGrant looks for the unknown acquire that explains why op was answered ok
// although the owner has no known hold. It is granted at the latest when op is
// answered.
func (a *ownerState) inferGrant(op *Op) {
	acquire := a.maybe(op)
	if acquire == nil {
		a.Uncovered = append(a.Uncovered, op)
		return
	}
	if a.cut { // an acquire that was part of a hold is no grant after it
		a.doubt(a.owner, usedAgain)
	}
	a.unproven = a.unproven[1:]
	if a.begin(acquire, op, 1, false); op.Verb == Release {
		a.releasedBy(op)
	}
}

func (a *ownerState) extend(op *Op) {
	switch {
	case op.Unknown():
		a.mayShorten(op)
		if a.hold != nil {
			a.hold.Extensions = append(a.hold.Extensions, op)
		}
	case op.Failed():
		switch {
		case a.grantedDuring(op):
			a.doubt(a.owner, "an extend of owner %s overlaps its acquire")
		case a.hold == nil:
			if a.last != nil && op.Invoke.Time > a.last.Start {
				a.gone = min(a.gone, op.Complete.Time)
			}
		case op.Invoke.Time <= a.hold.Start:
			// It may have been answered before the hold began.
		default:
			a.hold.Extensions = append(a.hold.Extensions, op)
			a.denied(op, op.Complete.Time, op.Complete.Index)
		}
	case a.grantedDuring(op):
		// It may belong to an earlier hold, or to this one.
		a.doubt(a.owner, "an extend of owner %s overlaps its acquire")
		a.mayShorten(op)
	case (a.hold != nil || a.last != nil && op.Invoke.Time <= a.gone) && a.again(op):
	case a.hold == nil && a.last != nil && op.Invoke.Time <= a.gone:
		// At the same time as the release that ended the hold, and before it.
		h := a.last
		h.prove(op)
		end := max(h.End, op.Invoke.Time)
		if op.Invoke.Time > a.lapse { // else its lease was there until then
			h.Late = append(h.Late, Late{Span: Span{From: max(a.lapse, h.End), Until: end}, By: op})
		}
		a.lapse = max(a.lapse, op.Ends)
		h.End = end
		h.Extensions = append(h.Extensions, op)
	case a.hold == nil:
		a.inferGrant(op)
	default:
		a.confirm(op)
	}
}

// grantedDuring reports whether op, an extend, may have come before or after a
// grant: an acquire that was not refused was invoked, or one was answered ok,
// between its invoke and its completion.
func (a *ownerState) grantedDuring(op *Op) bool {
	at := sort.Search(len(a.asked), func(i int) bool { return a.asked[i].Invoke.Index > op.Complete.Index })
	for _, g := range slices.Backward(a.asked[:at]) {
		if g.OK() || g.Invoke.Index > op.Invoke.Index { // those before it were answered before it
			return max(g.Invoke.Index, g.Complete.Index) > op.Invoke.Index
		}
	}
	return false
}

// mayShorten notes that op may have cut a hold to its own lease.
func (a *ownerState) mayShorten(op *Op) {
	if op.Expires() == 0 {
		a.endless = min(a.endless, op.Invoke.Time)
	}
	a.renew = min(a.renew, max(op.Invoke.Time, op.Ends))
	a.shorter = append(a.shorter, Span{From: op.Invoke.Time, Until: max(op.Invoke.Time, op.Ends)})
}

// joins notes that the process of an acquire has part in what the owner holds: if
// an operation with an unknown outcome left that without a lease, whatever lease
// the acquire asked for, then the crash of the process may have ended it.
func (a *ownerState) joins(acquire *Op) {
	if at, crashed := a.record.crash(acquire.Process, a.endless); crashed && at < a.renew {
		a.renew, a.carried = at, true
		a.shorter = append(a.shorter, Span{From: a.endless, Until: at})
	}
}

// A lease is how long an acquire or extend that was not refused is good.
type lease struct {
	certain  time.Duration // less drift
	validity time.Duration // as the holder was told
	lost     int64         // index of the lost that cut it, else -1
}

// lease is the lease that an operation gave.
func (a *ownerState) lease(op *Op) lease {
	l, cut := a.cutLeases[op]
	if !cut {
		l = lease{validity: history.Never, lost: -1}
		if expires := op.Expires(); expires > 0 {
			l.validity = expires
		}
	}
	l.certain = op.Ends
	return l
}

// cutLease ends what the holder was told of a lease.
func (a *ownerState) cutLease(op *Op, at time.Duration, lost int64) {
	l := a.lease(op)
	l.validity, l.lost = min(l.validity, at), lost
	if a.cutLeases == nil {
		a.cutLeases = map[*Op]lease{}
	}
	a.cutLeases[op] = l
}

// hearNotices ends the leases of which a notice tells that they are lost.
func (a *ownerState) hearNotices(ops []*Op) {
	if len(a.Losts) == 0 {
		return
	}
	// A notice is about what was asked last, of the acquires that were answered ok before it and the extends that were
	// sent before it and answered ok. What its holder believed was the last answer: it had not heard of an extend that was under way.
	var asked, heard *Op
	var underWay []*Op
	for _, told := range ops {
		if told.OK() && (told.Verb == Acquire || told.Verb == Extend) {
			asked, underWay = told, append(underWay, told)
		}
		if told.Verb != Lost || asked == nil {
			continue
		}
		underWay = slices.DeleteFunc(underWay, func(op *Op) bool {
			answered := op.Complete.Index <= told.Invoke.Index
			if answered && (heard == nil || op.Complete.Index > heard.Complete.Index) {
				heard = op
			}
			return answered
		})
		if l := a.lease(asked); l.lost < 0 && told.Invoke.Time < l.validity {
			asked.Ends = min(asked.Ends, told.Invoke.Time)
			a.cutLease(asked, told.Invoke.Time, told.Invoke.Index)
		}
		if heard != nil {
			a.cutLease(heard, told.Invoke.Time, a.lease(heard).lost)
		}
	}
}
