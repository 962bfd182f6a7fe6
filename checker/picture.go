package checker

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/workload/history"
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
	book := h.Book()
	if v.Lock == "" || book.Promises[v.Lock].Kind != history.KindMutex {
		return fmt.Errorf("draw %s of lock %q: %w", v.Kind, v.Lock, ErrNoPicture)
	}
	requests := window(reduce(book, v.Lock, h.Operations()), v)
	if len(requests) == 0 {
		return fmt.Errorf("draw %s of lock %q: %w: it has no operations", v.Kind, v.Lock, ErrNoPicture)
	}
	end := time.Duration(0)
	drawn := map[int]bool{}
	clients := map[int]int{}
	for _, r := range requests {
		drawn[r.owner] = true
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
	model := leaseModel(state{}, func() bool { return true }, func() {})
	names := map[int]string{}
	for _, r := range requests {
		names[r.owner] = r.name
	}
	model.DescribeState = func(s any) string {
		at, ok := s.(state)
		if !ok || at.owner == 0 {
			return "free"
		}
		text := fmt.Sprintf("held by %s", names[at.owner])
		if at.lease != history.Never {
			text += " until " + seconds(at.lease)
		}
		return html.EscapeString(text)
	}
	_, info := porcupine.CheckOperationsVerbose(model, ops, 10*time.Second)
	var held []porcupine.Annotation
	for i := range book.Holds {
		if hold := &book.Holds[i]; hold.Lock == v.Lock && hold.Start <= end && hold.End > hold.Start && drawnOwner(requests, hold.Owner) {
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

func drawnOwner(requests []*request, owner string) bool {
	return slices.ContainsFunc(requests, func(r *request) bool { return r.name == owner })
}

// window picks whole owners: those of the violation, then the nearest.
func window(requests []*request, v Violation) []*request {
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
	var picked []*request
	for _, g := range order {
		if len(picked)+len(g.requests) > PictureOperations {
			if !g.named {
				break
			}
			// An owner with more operations than fit: those nearest in time.
			slices.SortStableFunc(g.requests, func(a, b *request) int {
				return cmp.Compare(max(v.From-a.op.Complete.Time, a.invoke-v.Until, 0), max(v.From-b.op.Complete.Time, b.invoke-v.Until, 0))
			})
			g.requests = g.requests[:PictureOperations-len(picked)]
		}
		picked = append(picked, g.requests...)
	}
	slices.SortStableFunc(picked, func(a, b *request) int { return cmp.Compare(a.op.Invoke.Index, b.op.Invoke.Index) })
	return picked
}
