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

	"github.com/lockchaos/lockchaos/checker/holding"
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
	ev := evidenceOf(h)
	l := ev.Lock(v.Lock)
	if l == nil || l.Semaphore() && l.Capacity == 0 {
		return fmt.Errorf("draw %s of lock %q: %w", v.Kind, v.Lock, ErrNoPicture)
	}
	requests, _ := around(requestsOf(l), v, PictureOperations)
	if len(requests) == 0 {
		return fmt.Errorf("draw %s of lock %q: %w: it has no operations", v.Kind, v.Lock, ErrNoPicture)
	}
	end := time.Duration(0)
	clients := map[int]int{}
	for i := range requests {
		r := &requests[i]
		if r.until != history.Never {
			end = max(end, r.until)
		}
		end = max(end, r.op.Invoke.Time)
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
	model := drawn(l)
	_, info := porcupine.CheckOperationsVerbose(model, ops, 10*time.Second)
	var held []porcupine.Annotation
	for _, h := range l.Holds {
		if h.Start <= end && h.Certain() && slices.ContainsFunc(requests, func(r request) bool { return r.op.Owner == h.Owner() }) {
			held = append(held, porcupine.Annotation{
				Tag: "held", Start: int64(h.Start), End: int64(min(h.End, end)),
				Description: html.EscapeString(ev.Name(h.Owner())),
				Details:     html.EscapeString(fmt.Sprintf("%s held it for certain from %s until %s", holder(l, h), seconds(h.Start), seconds(h.End))),
			})
		}
	}
	info.AddAnnotations(held)
	if err := porcupine.Visualize(model, info, w); err != nil {
		return fmt.Errorf("draw %s of lock %q: %w", v.Kind, v.Lock, err)
	}
	return nil
}

// drawn is the model of a lock, with states that say who holds it.
func drawn(l *holding.Lock) porcupine.Model {
	m := model(capacityOf(l), func() bool { return true }, func(int) {})
	m.DescribeOperation = func(in, _ any) string {
		if r, is := in.(*request); is {
			return r.describe(l.Record())
		}
		return ""
	}
	m.DescribeState = func(state any) string {
		s, is := state.(*holders)
		if !is || len(s.list) == 0 {
			return "free"
		}
		var names []string
		for i := range s.list {
			text := l.Record().Name(s.list[i].owner)
			if lease := s.list[i].lease; lease != history.Never {
				text += " until " + seconds(lease)
			}
			names = append(names, html.EscapeString(text))
		}
		return "held by " + strings.Join(names, ", ")
	}
	return m
}

// around picks whole owners, with so many requests at the most: those of the
// violation, then the nearest. It tells whether none of them had to be cut.
func around(requests []request, v Violation, most int) (picked []request, entire bool) {
	entire = true
	type group struct {
		requests []*request
		named    bool
		distance time.Duration
	}
	groups := map[int32]*group{}
	var order []*group
	for i := range requests {
		r := &requests[i]
		g := groups[r.account]
		if g == nil {
			g = &group{distance: history.Never}
			groups[r.account] = g
			order = append(order, g)
		}
		g.requests = append(g.requests, r)
		g.named = g.named || slices.Contains(v.Events, r.op.Invoke.Index) || slices.Contains(v.Events, r.op.Complete.Index)
		g.distance = min(g.distance, max(v.From-r.op.Complete.Time, r.op.Invoke.Time-v.Until, 0))
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
				return cmp.Compare(max(v.From-a.op.Complete.Time, a.op.Invoke.Time-v.Until, 0), max(v.From-b.op.Complete.Time, b.op.Invoke.Time-v.Until, 0))
			})
			g.requests = g.requests[:most-len(picked)]
			entire = false
		}
		for _, r := range g.requests {
			picked = append(picked, *r)
		}
	}
	slices.SortStableFunc(picked, func(a, b request) int { return cmp.Compare(a.op.Invoke.Index, b.op.Invoke.Index) })
	return picked, entire
}
