package checker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// The budget of the search. It ends sooner if the context does.
const (
	// SearchTime is the most time that the search takes for a history.
	SearchTime = 20 * time.Second
	// SearchOperations is the most operations that are searched as one: it
	// takes n*n/8 bytes of memory, where all goes well.
	SearchOperations = 10_000
	// searchMemory bounds the memory where it does not, in bytes.
	searchMemory = 256 << 20
)

// Linearizability is the checker of "linearizability": some order of the
// operations on each lock explains all their results, with leases that may end
// at any time after their promised end. It is decided by a search with
// porcupine that knows nothing of the sweep behind [MutualExclusion],
// [Capacity] and [Ownership], as a second opinion; both take leases and accounts of owners
// from package holding.
//
// The likeliest order is tried before anything is searched; an order that the model allows is a proof.
// Locks are searched apart, within [SearchTime] and [SearchOperations]; what
// lies beyond is Unknown. One in which the sweep found a violation is searched
// around it first: without some of its holds, a legal history stays legal.
func Linearizability() Checker {
	return Checker{
		name: "linearizability", engine: "porcupine",
		judge: func(ctx context.Context, ev *evidence, _ []*holding.Lock, f *findings) {
			linearizable(ctx, ev, f)
			f.valid = fmt.Sprintf("an order of the operations explains every result, in %s of %s",
				say.Count(f.counts["operations"], "operation"), say.Count(f.counts["locks"], "lock"))
		},
	}
}

// A search is that of one lock for an order.
type search struct {
	*holding.Lock
	requests int
	verdict  Verdict
	why      string
	memory   int // that its states took, in bytes
}

func linearizable(ctx context.Context, ev *evidence, f *findings) {
	ctx, cancel := context.WithTimeoutCause(ctx, SearchTime, errors.New("the search for an order of its operations used up its time"))
	defer cancel()
	ev.searched = map[*holding.Lock]Verdict{}
	var all []*search
	for _, l := range ev.Locks() {
		if l.Semaphore() && l.Capacity == 0 {
			f.doubt(noCapacity, l.Name)
		} else {
			all = append(all, &search{Lock: l, verdict: Valid})
		}
	}
	swept := ev.sweep()
	side(len(all), func(i int) { all[i].run(ctx, swept[all[i].Lock].first) })
	for _, s := range all {
		if swept[s.Lock].first != nil && s.verdict == Valid && s.Unclear == "" && len(s.Declared) > 1 {
			s.verdict = Invalid // the search takes the greatest capacity
		}
		ev.searched[s.Lock] = s.verdict
		f.memory = max(f.memory, int64(s.memory*runtime.GOMAXPROCS(0)))
		f.counts["operations"] += s.requests
		switch s.verdict {
		case Unknown:
			f.doubt("lock %q: %s", s.Name, s.why)
		case Invalid:
			f.add(unexplained(ev, s.Lock))
		default:
		}
	}
	f.unclear(ev.Locks())
	f.counts["locks"] = len(ev.Locks())
	if len(all) == 0 {
		f.doubt("there was no lock to judge")
	}
}

// side calls a function with each number below n, on all processors.
func side(n int, call func(int)) {
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for at := range n {
		all.Go(func() error {
			call(at)
			return nil
		})
	}
	_ = all.Wait() // none of them fails
}

// run decides whether some order explains what was done with the lock.
func (s *search) run(ctx context.Context, found *Violation) {
	requests := requestsOf(s.Lock)
	s.requests = len(requests)
	if found != nil {
		for _, most := range [...]int{10, 25, 60} { // before it looks everywhere
			if near, entire := around(requests, *found, most); entire && s.explore(ctx, near) == Invalid {
				return
			}
		}
	}
	s.explore(ctx, requests)
}

// explore looks for an order that explains requests for the lock: the likeliest, then any with porcupine.
func (s *search) explore(ctx context.Context, requests []request) Verdict {
	switch {
	case len(requests) == 0 || likely(s.Lock, requests):
		s.verdict = Valid
	case len(requests) > SearchOperations:
		s.verdict, s.why = Unknown, fmt.Sprintf("the likeliest order of its operations explains nothing, and %d of them are more than are searched for another (%d)", len(requests), SearchOperations)
	case ctx.Err() != nil:
		s.verdict, s.why = Unknown, context.Cause(ctx).Error()
	default:
		s.any(ctx, requests)
	}
	return s.verdict
}

// any looks for any order of requests, with porcupine alone.
func (s *search) any(ctx context.Context, requests []request) {
	s.why, s.memory = "", 0
	steps := 0
	may := func() bool {
		if steps++; steps%1024 == 0 && ctx.Err() != nil {
			s.why = context.Cause(ctx).Error()
		}
		return s.why == ""
	}
	took := func(holders int) {
		if s.memory += len(requests)/8 + 64 + holders*int(unsafe.Sizeof(occupant{})); s.memory > searchMemory {
			s.why = "the search for an order of its operations used up its memory"
		}
	}
	switch result := porcupine.CheckOperationsTimeout(model(s.Lock, may, took), operations(requests), 0); {
	case result == porcupine.Ok:
		s.verdict = Valid
	case s.why != "":
		s.verdict = Unknown
	default:
		s.verdict = Invalid
	}
}

// operations is what porcupine judges.
func operations(requests []request) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(requests))
	for i := range requests {
		r := &requests[i]
		ops[i] = porcupine.Operation{ClientId: r.op.Process, Input: r, Call: int64(r.op.Invoke.Time), Return: int64(r.until)}
	}
	return ops
}

// unexplained points at why no order works: at what the sweep has found, else at all that was done.
func unexplained(ev *evidence, l *holding.Lock) Violation {
	var v Violation
	if found := ev.sweep()[l].first; found != nil {
		v = *found
		v.Explanation = ": " + v.Explanation
	} else {
		first, last := l.Ops[0], l.Ops[len(l.Ops)-1]
		v.From, v.Until, v.Events = first.Invoke.Time, last.Complete.Time, events(first.Invoke.Index, last.Invoke.Index)
	}
	v.Kind, v.Lock, v.Explanation = NotLinearizable, l.Name, fmt.Sprintf("no order of the operations on %q explains their results", l.Name)+v.Explanation
	return v
}

// disagreements compares the two engines where both are exact.
func disagreements(f *findings, ev *evidence) {
	for _, l := range ev.Locks() {
		searched, judged := ev.searched[l]
		swept := Valid
		if ev.sweep()[l].first != nil {
			swept = Invalid
		}
		if judged && searched != Unknown && l.Unclear == "" && len(l.Declared) < 2 && searched != swept {
			f.doubt("a defect of the checker: on lock %q the sweep says %s and the search says %s; trust neither, and report this history", l.Name, swept, searched)
		}
	}
}

// requestsOf makes requests of what can matter to the order of one lock, in order of
// their invokes. Owners whose account is unclear are left out: without them, a
// legal history stays legal.
//
// An acquire that failed, or whose outcome is unknown and that nothing proves,
// is optional and left out (but one by a holder may have cut its lease); so are
// the releases and extends of owners that were never granted the lock, unless
// they were confirmed. An unknown acquire that a later confirmation proves
// happened before that confirmation.
func requestsOf(l *holding.Lock) []request {
	granted := make([]bool, len(l.Accounts))
	proofs, proving := map[*holding.Op]time.Duration{}, map[*holding.Op]bool{}
	for _, h := range l.Holds {
		granted[h.Account] = true
		if h.Proof != h.Acquire {
			proofs[h.Acquire], proving[h.Proof] = h.Proof.Complete.Time, true
		}
	}
	requests := make([]request, 0, len(l.Ops))
	grants := map[int32]int{} // of permits, by account: how often each is confirmed later
	add := func(op *holding.Op, account int32) {
		r := request{
			op: op, until: op.Complete.Time, done: op.OK(), account: account, again: l.Reentrant || l.Accounts[account], proves: proving[op],
		}
		switch {
		case op.OK():
		case op.Verb == holding.Acquire && op.Unknown():
			at, proven := proofs[op]
			if !proven && (!granted[account] || !r.again || r.op.Ends == history.Never) {
				return
			}
			if r.done, r.until = proven, history.Never; proven {
				r.until = at
			}
		case op.Verb == holding.Acquire || !granted[account]:
			return
		case op.Unknown():
			r.until = history.Never
		}
		if l.Semaphore() && r.grants() {
			grants[account] = len(requests)
		} else if of, is := grants[account]; is && r.done {
			requests[of].pinned++
		}
		requests = append(requests, r)
	}
	for _, op := range l.Ops {
		if l.Doubtful[op.Owner] != "" {
			continue
		}
		if op.Account >= 0 {
			add(op, op.Account)
		}
		for _, account := range l.Also[op] {
			add(op, account)
		}
	}
	return requests
}

// likely reports whether one order of the requests, the likeliest, explains them: a yes is a
// proof by the same rules that the search uses, and takes no search. In that order grants come
// as late as they can, and whatever ends a hold as early as it can. Each request has its turn within
// its interval, so that the order respects which were answered before others were invoked.
func likely(l *holding.Lock, requests []request) bool {
	type turn struct {
		at   time.Duration
		asks int32 // which of the requests it is
		rank uint8 // at the same instant
	}
	turns := make([]turn, len(requests))
	for i := range requests {
		r := &requests[i]
		t := turn{at: r.until, rank: 3, asks: int32(i)} //nolint:gosec // fewer than events, which fit into memory
		switch {
		case r.until == history.Never, r.done && !r.grants() && !r.proves:
			t.at, t.rank = r.op.Invoke.Time, 0
		case r.grants() && r.op.Unknown():
			t.rank = 1 // right before what proves it
		case r.done && !r.grants():
			t.rank = 2
		}
		turns[i] = t
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
	s := newHolders(l)
	return !slices.ContainsFunc(turns, func(t turn) bool { return !s.step(&requests[t.asks]) })
}
