package checker

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
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
// operations around a violation in what was judged: which partial orders work, and where none
// goes on. It draws whole holds only (a hold that is left out keeps a legal
// history legal), those of the violation first and then the nearest in time,
// with at most [PictureOperations] operations. The row "held" shows what was
// certain of each hold.
//
// The page places operations by rank and not by time.
func Picture(w io.Writer, r *holding.Record, v Violation) error {
	l := r.Lock(v.Lock)
	if l == nil || l.Semaphore() && l.Capacity == 0 {
		return fmt.Errorf("draw %s of lock %q: %w", v.Kind, v.Lock, ErrNoPicture)
	}
	requests, _ := around(requestsOf(l), v, PictureOperations)
	if len(requests) == 0 {
		return fmt.Errorf("draw %s of lock %q: %w: it has no operations", v.Kind, v.Lock, ErrNoPicture)
	}
	end := r.End + time.Millisecond
	ops := operations(requests)
	var clients []int
	for i := range ops { // rows in order, and an end for what has none
		if !slices.Contains(clients, ops[i].ClientId) {
			clients = append(clients, ops[i].ClientId)
		}
		ops[i].ClientId = slices.Index(clients, ops[i].ClientId)
		ops[i].Return = min(ops[i].Return, int64(end))
	}
	model := drawn(l)
	_, info := porcupine.CheckOperationsVerbose(model, ops, 10*time.Second)
	var held []porcupine.Annotation
	for _, h := range l.Holds {
		if h.Certain() && slices.ContainsFunc(requests, func(of request) bool { return of.op == h.Acquire }) {
			held = append(held, porcupine.Annotation{
				Tag: "held", Start: int64(h.Start), End: int64(min(h.End, end)),
				Description: html.EscapeString(r.Name(h.Owner())),
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

// drawn is the model of a lock, with short labels, "acquire a ok #7", and states that say who holds it. Porcupine's page
// takes its texts for HTML.
func drawn(l *holding.Lock) porcupine.Model {
	m := model(l, func() bool { return true }, func(int) {})
	m.DescribeOperation = func(in, _ any) string {
		r, is := in.(*request)
		if !is {
			return ""
		}
		typ := r.op.Outcome()
		if r.done {
			typ = history.OK
		}
		return html.EscapeString(fmt.Sprintf("%s %s %s #%d", r.op.Verb, l.Record().Name(r.op.Owner), typ, r.op.Invoke.Index))
	}
	m.DescribeState = func(state any) string {
		s, is := state.(*holders)
		if !is || len(s.by) == 0 {
			return "free"
		}
		var names []string
		for _, account := range slices.Sorted(maps.Keys(s.by)) {
			h := s.by[account]
			text := l.Record().Name(h.owner)
			if h.lease != history.Never {
				text += " until " + seconds(h.lease)
			}
			names = append(names, html.EscapeString(text))
		}
		return "held by " + strings.Join(names, ", ")
	}
	return m
}

// around picks whole accounts, with so many requests at the most: those of the
// violation, then the nearest. It tells whether none of them had to be cut.
func around(requests []request, v Violation, most int) (picked []request, entire bool) {
	distance := func(r *request) time.Duration { return max(v.From-r.op.Complete.Time, r.op.Invoke.Time-v.Until, 0) }
	nearest := map[int32]time.Duration{} // by account; negative if the violation names one of its requests
	var accounts []int32
	for i := range requests {
		r := &requests[i]
		before, more := nearest[r.account]
		if !more {
			accounts, before = append(accounts, r.account), history.Never
		}
		if nearest[r.account] = min(before, distance(r)); v.names(r.op) {
			nearest[r.account] = -1
		}
	}
	slices.SortStableFunc(accounts, func(a, b int32) int { return cmp.Compare(nearest[a], nearest[b]) })
	entire = true
	for _, account := range accounts[:min(len(accounts), most)] {
		list, space := holding.Filter(requests, func(r request) bool { return r.account == account }), most-len(picked)
		if len(list) > space {
			if nearest[account] >= 0 {
				break
			}
			// An account with more operations than fit: those nearest in time.
			slices.SortStableFunc(list, func(a, b request) int { return cmp.Compare(distance(&a), distance(&b)) })
			list, entire = list[:space], false
		}
		picked = append(picked, list...)
	}
	slices.SortStableFunc(picked, func(a, b request) int { return cmp.Compare(a.op.Invoke.Index, b.op.Invoke.Index) })
	return picked, entire
}
