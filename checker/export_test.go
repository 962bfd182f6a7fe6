package checker

import (
	"context"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// Doubted is the result of a property that could not be decided for these reasons.
func Doubted(reasons ...string) Result {
	var f findings
	for _, reason := range reasons {
		f.doubt("%s", reason)
	}
	return f.result()
}

// Likely reports whether the likeliest order explains what was done with the lock,
// and what the search says without it.
func Likely(ctx context.Context, h *history.History, lock string) (bool, Verdict) {
	p := Prepare(h, lock)
	return likely(p.lock, p.requests), p.Search(ctx)
}

// Disagreement is what a report says if the engines differ on the lock.
func Disagreement(ctx context.Context, h *history.History, lock string) (Result, bool) {
	ev := evidenceOf(h)
	linearizable(ctx, ev, newFindings())
	ev.searched[ev.Lock(lock)] = Invalid
	f := newFindings()
	disagreements(f, ev)
	r := f.result()
	r.Name = "engines-agree"
	return r, len(f.doubts) > 0
}

// Sum is the verdict of several results.
func Sum(results []Result, differ bool) Verdict { return sum(results, differ) }

// Prepared is a history of which it is known who held what: what both engines
// begin with.
type Prepared struct {
	ev       *evidence
	lock     *holding.Lock
	requests []request
}

// Prepare derives who held the lock.
func Prepare(h *history.History, lock string) *Prepared {
	ev := evidenceOf(h)
	l := ev.Lock(lock)
	return &Prepared{ev: ev, lock: l, requests: requestsOf(l)}
}

// Sweep decides by the sweep.
func (p *Prepared) Sweep() Verdict {
	if sweep(p.ev.Record)[p.lock].first != nil {
		return Invalid
	}
	return Valid
}

// Search decides by porcupine alone.
func (p *Prepared) Search(ctx context.Context) Verdict {
	s := search{Lock: p.lock}
	s.any(ctx, p.requests)
	return s.verdict
}

// CheckReaderWithin is [CheckReader] of so many operations at the most.
func CheckReaderWithin(ctx context.Context, r Source, most int64) (Report, error) {
	return checkReader(ctx, r, most, nil)
}
