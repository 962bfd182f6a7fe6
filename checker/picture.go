package checker

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/history"
)

// PictureOperations is the most operations that [Picture] draws.
const PictureOperations = 40

// ErrNoPicture says that there is no order to draw: the violation names no
// lock, or a lock that the search does not judge.
var ErrNoPicture = errors.New("no picture")

// Picture writes porcupine's own page, a whole HTML document, for the
// operations around a violation: which partial orders work, and where none
// goes on. It draws whole holds only (a hold that is left out keeps a legal
// history legal), those of the violation first and then the nearest in time,
// with at most [PictureOperations] operations. The row "held" shows what was
// certain of each hold.
//
// The page places operations by rank and not by time.
func Picture(w io.Writer, h *history.History, v Violation) error {
	ev := newEvidence(h)
	holdings := ev.holdings()
	promise, known := holdings.Guarantees[v.Lock]
	if !known || isSemaphore(promise.Kind) && promise.Capacity == 0 {
		return fmt.Errorf("draw %s of lock %q: %w", v.Kind, v.Lock, ErrNoPicture)
	}
	requests, _ := window(reduce(ev, v.Lock), v, PictureOperations)
	if len(requests) == 0 {
		return fmt.Errorf("draw %s of lock %q: %w: it has no operations", v.Kind, v.Lock, ErrNoPicture)
	}
	end := time.Duration(0)
	clients := map[int]int{}
	for _, r := range requests {
		if r.until != history.Never {
			end = max(end, r.until)
		}
		end = max(end, r.invoke)
	}
	end += time.Millisecond
	ops := operations(requests)
	for i := range ops { // rows in order, and an end for what has none
		p := ops[i].ClientId
		if _, ok := clients[p]; !ok {
			clients[p] = len(clients)
		}
		ops[i].ClientId = clients[p]
		ops[i].Return = min(ops[i].Return, int64(end))
	}
	model := drawnModel(whole(ev, v.Lock, requests))
	_, info := porcupine.CheckOperationsVerbose(model, ops, 10*time.Second)
	var held []porcupine.Annotation
	for i := range holdings.Holds {
		if hold := &holdings.Holds[i]; hold.Lock == v.Lock && hold.Start <= end && hold.End > hold.Start && drawnOwner(requests, hold.Owner) {
			held = append(held, porcupine.Annotation{
				Tag: "held", Start: int64(hold.Start), End: int64(min(hold.End, end)),
				Description: html.EscapeString(hold.Owner),
				Details:     html.EscapeString(fmt.Sprintf("%s held it for certain from %s until %s", holder(hold), seconds(hold.Start), seconds(hold.End))),
			})
		}
	}
	info.AddAnnotations(held)
	if err := porcupine.Visualize(model, info, w); err != nil {
		return fmt.Errorf("draw %s of lock %q: %w", v.Kind, v.Lock, err)
	}
	return nil
}

// drawnModel is the model of a part, with states that say who holds the lock.
func drawnModel(p part) porcupine.Model {
	always := func() bool { return true }
	held := func(owner string, lease time.Duration) string {
		text := owner
		if lease != history.Never {
			text += " until " + seconds(lease)
		}
		return html.EscapeString(text)
	}
	if p.shared != nil {
		model := sharedModel(p.shared, p.capacity, always, func(int) {})
		model.DescribeState = func(s any) string {
			at, ok := s.(*shared)
			if !ok || len(at.holders) == 0 {
				return "free"
			}
			var names []string
			for i := range at.holders {
				names = append(names, held(at.holders[i].owner, at.holders[i].lease))
			}
			return "held by " + strings.Join(names, ", ")
		}
		return model
	}
	names := map[int]string{}
	for _, r := range p.requests {
		names[r.owner] = r.op.Invoke.Owner
	}
	model := leaseModel(p.from, always, func() {})
	model.DescribeState = func(s any) string {
		at, ok := s.(state)
		if !ok || at.owner == 0 {
			return "free"
		}
		return "held by " + held(names[at.owner], at.lease)
	}
	return model
}

func drawnOwner(requests []*request, owner string) bool {
	return slices.ContainsFunc(requests, func(r *request) bool { return r.op.Invoke.Owner == owner })
}

// window picks whole owners, with so many requests at the most: those of the
// violation, then the nearest. It tells whether none of them had to be cut.
func window(requests []*request, v Violation, most int) (picked []*request, entire bool) {
	entire = true
	type group struct {
		requests []*request
		named    bool
		distance time.Duration
	}
	groups := map[int]*group{}
	var order []*group
	for _, r := range requests {
		g := groups[r.owner]
		if g == nil {
			g = &group{distance: history.Never}
			groups[r.owner] = g
			order = append(order, g)
		}
		g.requests = append(g.requests, r)
		g.named = g.named || slices.Contains(v.Events, r.op.Invoke.Index) || slices.Contains(v.Events, r.op.Complete.Index)
		g.distance = min(g.distance, max(v.From-r.op.Complete.Time, r.invoke-v.Until, 0))
	}
	slices.SortStableFunc(order, func(a, b *group) int {
		if a.named != b.named {
			if a.named {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.distance, b.distance)
	})
	for _, g := range order {
		if len(picked)+len(g.requests) > most {
			if !g.named {
				break
			}
			// An owner with more operations than fit: those nearest in time.
			slices.SortStableFunc(g.requests, func(a, b *request) int {
				return cmp.Compare(max(v.From-a.op.Complete.Time, a.invoke-v.Until, 0), max(v.From-b.op.Complete.Time, b.invoke-v.Until, 0))
			})
			g.requests = g.requests[:most-len(picked)]
			entire = false
		}
		picked = append(picked, g.requests...)
	}
	slices.SortStableFunc(picked, func(a, b *request) int { return cmp.Compare(a.op.Invoke.Index, b.op.Invoke.Index) })
	return picked, entire
}
