package checker

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// FencingOrder is the checker of "fencing-order": every grant of a fenced lock
// has a token of its own, and the grants can be placed in order of their
// tokens, each between its invoke and its answer. Inner grants share their hold's token.
//
// The greedy placement as early as possible is exact for one holder: where a grant was
// answered before all with a smaller token can have ended, the later of the two has the smaller token
// (fence-regress). Two holds that overlap for certain are a double grant, and no evidence about their order. Grants
// that may be held together are in order only where one was answered before the other was asked for.
func FencingOrder() Checker {
	return Checker{
		name: "fencing-order", engine: "greedy placement",
		of: func(l *holding.Lock) bool {
			return l.Fenced && slices.ContainsFunc(l.Ops, func(op *holding.Op) bool { return op.Verb == holding.Acquire && op.OK() && op.Token != 0 })
		},
		judge: func(_ context.Context, _ *evidence, locks []*holding.Lock, f *findings) {
			f.unclear(locks)
			for _, l := range locks {
				grants := slices.DeleteFunc(slices.Clone(l.Holds), func(h *holding.Grant) bool { return h.Token() == 0 || !h.Acquire.OK() })
				for _, h := range grants {
					grants = append(grants, innerReads(h)...)
				}
				f.counts["grants"] += len(grants)
				f.place(l, grants)
			}
			f.valid = "the tokens of " + say.Count(f.counts["grants"], "grant") + " are distinct and in order"
		},
	}
}

// innerReads are the inner grants of a reader that have another token than its hold. A lock
// may give each read a token of its own: such a grant has a place of its own in the order.
func innerReads(h *holding.Grant) (grants []*holding.Grant) {
	for _, op := range h.Extensions {
		if h.Reads() && op.Verb == holding.Acquire && op.OK() && op.Token != 0 && op.Token != h.Token() {
			grants = append(grants, &holding.Grant{Acquire: op, Proof: op, Account: h.Account, Start: op.Complete.Time, EndEvent: -1, Again: true})
		}
	}
	return grants
}

// place puts the grants of one lock as early as their tokens allow. Those of a
// lock that several may hold take up no time. Grants with the same token are
// compared with each other and with those before, but have no order of their own.
func (f *findings) place(l *holding.Lock, holds []*holding.Grant) {
	byToken := func(a, b *holding.Grant) int { return cmp.Compare(a.Token(), b.Token()) }
	slices.SortStableFunc(holds, byToken)
	var (
		invoked *holding.Grant // of those with a smaller token, which was invoked last
		before  rivals         // those with a smaller token
	)
	var placed []*holding.Grant // of those with the same token, without the duplicates
	for from, to := 0, 0; from < len(holds); from = to {
		placed = placed[:0]
		for to = from; to < len(holds) && holds[to].Token() == holds[from].Token(); to++ {
			h := holds[to]
			if !mayShare(placed, h) {
				f.add(duplicate(l, holds[to-1], h))
				continue
			}
			if slices.ContainsFunc(placed, func(b *holding.Grant) bool { return mayGoOn(b, h) }) {
				f.doubt("lock %q: owner %s was given token %d twice, and nothing tells whether a release ended the hold", l.Name, l.Record().Name(h.Owner()), h.Token())
			}
			if h.Cuts != 0 && h.Cuts != h.Token() {
				f.doubt("lock %q: owner %s was granted it with token %d when its hold with token %d may have run out, and nothing tells whether that cut the hold short",
					l.Name, l.Record().Name(h.Owner()), h.Token(), h.Cuts)
			}
			if l.Kind == history.KindRW && slices.ContainsFunc(placed, func(b *holding.Grant) bool { return b.Account == h.Account && (h.Again || b.Kept) }) {
				continue // it may be part of that hold, which others may have shared since
			}
			placed = append(placed, h)
			switch {
			case invoked != nil && h.Start < invoked.Acquire.Invoke.Time:
				f.add(regress(l, h, invoked))
			case l.Kind == history.KindMutex:
				if b := before.against(h); b != nil {
					f.add(regress(l, h, b))
				}
			}
		}
		for _, h := range placed {
			if invoked == nil || h.Acquire.Invoke.Time > invoked.Acquire.Invoke.Time {
				invoked = h
			}
			before.add(h)
		}
	}
}

// rivals are the grants of a mutex that stand for all with a smaller token: if a
// later one is in order with these, it is with all. One that ended last is not
// enough: where it overlaps the later grant, another one may not.
type rivals struct {
	ended *holding.Grant // the one that ended last
	began *holding.Grant // of those that held it for certain, the one that began last
	brief *holding.Grant // of those that were answered too late, the one that ended last
}

func (r *rivals) add(h *holding.Grant) {
	keep := func(last **holding.Grant, later bool) {
		if *last == nil || later {
			*last = h
		}
	}
	if keep(&r.ended, r.ended != nil && h.End > r.ended.End); h.Certain() {
		keep(&r.began, r.began != nil && h.Start > r.began.Start)
	} else {
		keep(&r.brief, r.brief != nil && h.End > r.brief.End)
	}
}

// against is a grant with a smaller token that ended after h was answered, and
// does not overlap it; nil if there is none.
func (r *rivals) against(h *holding.Grant) *holding.Grant {
	for _, before := range [...]*holding.Grant{r.ended, r.began, r.brief} {
		if before != nil && h.Start < before.End {
			if _, both := h.Span().Overlap(before.Span()); !both {
				return before
			}
		}
	}
	return nil
}

// mayShare reports whether a grant may have the token of the grants before it: of
// readers, or of one owner that may still hold what it was granted before.
func mayShare(before []*holding.Grant, h *holding.Grant) bool {
	return !slices.ContainsFunc(before, func(b *holding.Grant) bool {
		switch {
		case b.Reads() && h.Reads():
			return false
		case b.Owner() != h.Owner():
			return true
		case b.Account == h.Account:
			return !h.Again && !b.Kept
		default: // of a read-write lock it reads and writes; of a semaphore it has several grants
			return b.Mode() == holding.Permit || !mayOverlap(b, h)
		}
	})
}

// mayGoOn reports whether a grant goes on after the release that ended it if it is
// part of the hold of the same token before it, whose count it has then as well.
func mayGoOn(before, h *holding.Grant) bool {
	return before.Account == h.Account && !h.Reads() &&
		(h.Ended == holding.EndUnknown && h.EndEvent >= 0 || before.Kept && h.Ended == holding.EndReleased)
}

// mayOverlap reports whether two grants of one owner may have been held at the
// same time: neither was certainly given back before the other was asked for.
func mayOverlap(a, b *holding.Grant) bool {
	before := func(a, b *holding.Grant) bool {
		return a.Ended == holding.EndReleased && !a.Kept && a.Release != nil && a.Release.Complete.Time < b.Acquire.Invoke.Time
	}
	return !before(a, b) && !before(b, a)
}

func duplicate(l *holding.Lock, a, b *holding.Grant) Violation {
	if b.Start < a.Start {
		a, b = b, a
	}
	return violation(FenceDuplicate, l.Name, instant(b.Start), events(a.Acquire.Complete.Index, b.Acquire.Complete.Index),
		"%s was granted %q at %s with token %d, which %s had been given at %s",
		holder(l, b), l.Name, seconds(b.Start), b.Token(), holder(l, a), seconds(a.Start))
}

func regress(l *holding.Lock, earlier, later *holding.Grant) Violation {
	return violation(FenceRegress, l.Name, instant(later.Start), events(earlier.Acquire.Complete.Index, later.Acquire.Complete.Index),
		"%s was granted %q at %s with token %d, which is not greater than the token %d that %s had been given by %s",
		holder(l, later), l.Name, seconds(later.Start), later.Token(), earlier.Token(), holder(l, earlier), seconds(earlier.Start))
}
