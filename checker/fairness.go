package checker

import (
	"context"
	"fmt"

	"github.com/lockchaos/lockchaos/workload/history"
)

// Fairness is the checker of "fairness": a lock that was declared fair grants
// requests in the order in which it queued them. It applies where grants of a
// lock that was declared fair say what place they had in its queue.
//
// Who asked first proves nothing: a request may take longer than a later one to
// arrive. So the order is that of the Queued numbers, which the service gave.
// That a grant came before another is proven where both holds have a certain
// extent and exclude each other: then the one that begins first was granted
// first. A request that was granted after one that was queued later was
// overtaken.
//
// It is Unknown for fair semaphores, whose grants exclude nothing and so have no
// order.
func Fairness() Checker {
	return &property{
		name: "fairness", engine: "interval sweep",
		applies: func(ev *evidence) bool {
			return ev.sees(func(e *history.Event) bool { return e.Queued != 0 && ev.book().Promises[e.Lock].Fair })
		},
		judge: func(_ context.Context, ev *evidence, f *findings) { fairness(ev, f) },
		conclude: func(f *findings) {
			f.valid = plural(f.counts["grants"], "grant") + " came in the order in which they were queued"
		},
	}
}

// queued is the place in the queue that a hold was granted from; 0 if it is not
// known.
func queued(h *history.Hold) int64 { return h.Acquire.Complete.Queued }

func fairness(ev *evidence, f *findings) {
	book := ev.book()
	type queue struct {
		latest, latestWrite *history.Hold // of those granted so far, the one that was queued last
	}
	queues := map[string]*queue{}
	for i := range book.Holds {
		h := &book.Holds[i]
		promise := book.Promises[h.Lock]
		if !promise.Fair {
			continue
		}
		if isSemaphore(promise.Kind) {
			f.doubt("lock %q gives permits, whose grants have no order that a history can prove", h.Lock)
			continue
		}
		if queued(h) == 0 || h.End <= h.Start {
			continue
		}
		if ev.fresh(&h.Proof) {
			f.counts["grants"]++
		}
		q := queues[h.Lock]
		if q == nil {
			q = &queue{}
			queues[h.Lock] = q
		}
		before := q.latest
		read := h.Mode == history.Read
		if read {
			before = q.latestWrite
		}
		if before != nil && queued(before) > queued(h) {
			f.add(overtaken(before, h))
		}
		if q.latest == nil || queued(h) > queued(q.latest) {
			q.latest = h
		}
		if !read && (q.latestWrite == nil || queued(h) > queued(q.latestWrite)) {
			q.latestWrite = h
		}
	}
	unclear(f, ev, func(string) bool { return len(queues) > 0 })
}

func overtaken(by, h *history.Hold) Violation {
	return Violation{
		Kind: Overtaken, Lock: h.Lock, From: by.Start, Until: h.Start,
		Events: events(by.Acquire.Complete.Index, h.Acquire.Complete.Index),
		Explanation: fmt.Sprintf("%s was granted %q at %s from place %d of the queue, %s before %s, which had place %d",
			holder(by), h.Lock, seconds(by.Start), queued(by), seconds(h.Start-by.Start), holder(h), queued(h)),
	}
}
