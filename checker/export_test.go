package checker

import (
	"context"

	"github.com/lockchaos/lockchaos/workload/history"
)

// Compare gives the verdicts of the two engines on one lock, and whether both
// are exact there.
func Compare(ctx context.Context, h *history.History, lock string) (sweep, searched Verdict, exact bool) {
	ev := newEvidence(h)
	sweep = Valid
	if _, bad := ev.swept().invalid[lock]; bad {
		sweep = Invalid
	}
	book := ev.book()
	requests := reduce(book, lock, ev.operations())
	searched, _ = search(ctx, part{requests: requests})
	return sweep, searched, book.Unclear[lock] == "" && !ties(ev)[lock]
}

// CompareSegments gives the verdicts of the search on a whole lock and on its
// segments, for a history that the sweep found legal, and how many cuts were
// made.
func CompareSegments(ctx context.Context, h *history.History, lock string) (whole, parts Verdict, cuts int) {
	ev := newEvidence(h)
	book := ev.book()
	if _, bad := ev.swept().invalid[lock]; bad || book.Unclear[lock] != "" {
		return Valid, Valid, 0
	}
	requests := reduce(book, lock, ev.operations())
	whole, _ = search(ctx, part{requests: requests})
	parts = Valid
	cutUp := segments(book, lock, requests)
	for _, p := range cutUp {
		v, _ := search(ctx, p)
		parts = Worst(parts, v)
	}
	return whole, parts, len(cutUp) - 1
}

// Disagreement is what a report says if the engines differ on the lock.
func Disagreement(ctx context.Context, h *history.History, lock string) (Result, bool) {
	ev := newEvidence(h)
	linearizable(ctx, ev)
	ev.searched[lock] = Invalid
	return agreement(ev)
}

// PlainSearch searches a whole lock without any cuts.
func PlainSearch(ctx context.Context, h *history.History, lock string) Verdict {
	v, _ := search(ctx, part{requests: reduce(h.Book(), lock, h.Operations())})
	return v
}

// Sum is the verdict of several results.
func Sum(results []Result, differ bool) Verdict { return sum(results, differ) }
