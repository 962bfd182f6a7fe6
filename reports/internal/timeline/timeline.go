// Package timeline makes what the script of a page draws the timeline from: one block of JSON, compressed by gzip and
// written in base64, so that nothing in it can leave its place in the page. All times in it are microseconds.
package timeline

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/reports/internal/story"
)

const (
	// maxDetail is how many requests and accesses the block has. Of more it has those around the violation.
	maxDetail = 60_000
	// around is how far from the violation operations are kept if there are too many.
	around = 10 * time.Second
	// maxMarks bounds the rarer marks of each lane, and maxLabels the accesses of a resource that have a label.
	maxMarks, maxLabels = 1000, 200
)

// The kinds of requests. One with a hold has its start after the answer, its length plus 1 or 0 for no
// end, and the distance of its token from the one before.
const (
	refused = iota
	unknown
	granted // and nothing is certain of its hold
	held    // plus the index of the servers that granted it, from 1
)

// The kinds of accesses.
const (
	used = iota
	usedRefused
	usedUnknown
	usedBad // it proves a violation
)

// An object is one of JSON.
type object map[string]any

// A block is what the script draws from, and what of it has numbers.
type block struct {
	object

	granters, clients, locks names
}

// Names have the numbers in which they came.
type names struct {
	list []string
	of   map[string]int
}

func (n *names) index(name string) int {
	i, known := n.of[name]
	if !known {
		i, n.list = len(n.list), append(n.list, name)
		n.of[name] = i
	}
	return i
}

func micros(t time.Duration) int64 { return t.Microseconds() }

// moment is the instant that a page shows first: that of the violation, else that of the first fault.
func moment(r *facts.Facts) time.Duration {
	if v := r.Told; v != nil {
		return v.From
	}
	for i := range r.Faults {
		if r.Faults[i].OK {
			return r.Faults[i].At()
		}
	}
	return 0
}

// Block is what the script of a page draws the timeline of a run from, whose story has been told.
func Block(r *facts.Facts, told story.Story) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := cmp.Or(json.NewEncoder(z).Encode(blockOf(r, told).object), z.Close()); err != nil {
		return "", fmt.Errorf("write timeline: %w", err)
	}
	return base64.RawStdEncoding.EncodeToString(b.Bytes()), nil
}

func blockOf(r *facts.Facts, told story.Story) *block {
	whole, v := r.Whole(), r.Told
	focus := facts.Window{To: min(whole.To, 2*around)}
	b := &block{object: object{"end": micros(whole.To), "from": int64(0), "to": micros(whole.To), "moment": micros(moment(r)), "lock": ""}}
	b.granters.of, b.clients.of, b.locks.of = map[string]int{}, map[string]int{}, map[string]int{}
	lanes, first, lock := slices.Clone(r.Lanes()), []*facts.Lane(nil), ""
	if v != nil {
		focus, first, lock = focusOf(r, v, told), r.LanesOf(v), v.Lock
		b.object["from"], b.object["to"], b.object["lock"] = micros(focus.From), micros(focus.To), lock
	}
	detail := detailOf(r, focus)
	if detail != whole {
		b.object["detail"] = [2]int64{micros(detail.From), micros(detail.To)}
		concerned := map[*facts.Lane]bool{}
		for _, v := range r.Violations {
			for _, l := range r.LanesOf(v) {
				concerned[l] = true
			}
		}
		lanes = slices.DeleteFunc(lanes, func(l *facts.Lane) bool { return !concerned[l] && !l.Shows(detail) })
	}
	slices.SortFunc(lanes, func(a, b *facts.Lane) int { // the lock of the violation first, all lanes of a lock together
		if a.Lock != b.Lock {
			return cmp.Or(slices.Index([]string{lock}, b.Lock)-slices.Index([]string{lock}, a.Lock), say.Natural(a.Lock, b.Lock))
		}
		return cmp.Or(place(first, a)-place(first, b), say.Natural(a.Client, b.Client))
	})
	at, drawn := map[*facts.Lane]int{}, []object{}
	for i, l := range lanes {
		at[l] = i
		drawn = append(drawn, b.lane(r, l, detail))
	}
	b.object["lanes"], b.object["resources"] = drawn, b.resources(r, lanes, focus, detail)
	servers, injected, violations := []object{}, []object{}, []object{}
	for _, name := range r.Servers() {
		life := []object{}
		for _, part := range r.Life(name) {
			if part.To > part.From {
				life = append(life, object{"from": micros(part.From), "to": micros(part.To), "state": part.State, "changed": part.Changed})
			}
		}
		servers = append(servers, object{"name": name, "life": life})
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		title := fmt.Sprintf("%s, %s to %s: %s", f.Detail(), say.Instant(f.Start), say.Instant(f.End), f.Observed())
		injected = append(injected, object{"name": say.Shorten(f.Label(), 60), "title": title, "from": micros(f.Start), "to": micros(f.End), "ok": f.OK})
	}
	for _, u := range r.Violations {
		framed := []int{} // the lanes that a frame is drawn around
		for _, l := range r.LanesOf(u) {
			if i, shown := at[l]; shown {
				framed = append(framed, i)
			}
		}
		violations = append(violations, object{
			"words": story.Mark(r, u), "title": u.Explanation, "lock": u.Lock, "lanes": framed, "told": u == v,
			"from": micros(r.Since(u)), "to": micros(max(u.From, min(u.Until, r.End))),
		})
	}
	locks := []object{}
	for _, name := range b.locks.list {
		locks = append(locks, object{"name": name})
	}
	maps.Copy(b.object, object{
		"servers": servers, "faults": injected, "violations": violations, "locks": locks,
		"keys": keysOf(r, v, focus), "granters": append([]string{}, b.granters.list...), "clients": append([]string{}, b.clients.list...),
	})
	return b
}

// place is that of a lane among those that come first.
func place(first []*facts.Lane, l *facts.Lane) int {
	if i := slices.Index(first, l); i >= 0 {
		return i
	}
	return len(first)
}

// focusOf is the window of what the story tells, with a margin.
func focusOf(r *facts.Facts, v *checker.Violation, told story.Story) facts.Window {
	w := facts.Window{From: v.From, To: v.From}
	for _, e := range told.Events {
		if e.At <= r.End {
			w.From, w.To = min(w.From, e.At), max(w.To, e.At)
		}
	}
	lead := max(w.Length(), 50*time.Millisecond)
	if v.Kind == checker.Stuck { // its length is what there is to see
		lead = max(lead, r.Lasted(v))
	}
	w.To = max(w.To, min(v.Until, r.End, v.From+lead))
	margin, whole := w.Length()/14, r.Whole()
	w = facts.Window{From: max(0, w.From-margin), To: min(whole.To, w.To+margin)}
	if w.Length() > whole.Length()*3/5 {
		return whole // what is left out would not be worth a second look
	}
	return w
}

// detailOf is the part of the run of which the page has every operation: all of it, or what is around the focus.
func detailOf(r *facts.Facts, focus facts.Window) facts.Window {
	tooMuch := func(w facts.Window) bool {
		n := 0
		for i := 0; i < len(r.Ops) && n <= maxDetail; i++ {
			if op := r.Ops[i]; (op.Verb == holding.Acquire || op.Verb == holding.Access) && w.Meets(op.Invoke.Time, op.Complete.Time) {
				n++
			}
		}
		return n > maxDetail
	}
	detail := r.Whole()
	for margin := around; tooMuch(detail) && margin+focus.Length() > time.Millisecond; margin /= 2 {
		detail = facts.Window{From: max(0, focus.From-margin), To: min(r.Whole().To, focus.To+margin)}
		if margin < time.Millisecond { // the focus itself has too much
			focus.To = focus.From + focus.Length()/2
		}
	}
	return detail
}

// lane is a lane: its requests in the window, each with its instant as the distance from the one before, the time until
// its answer, and its kind; when it was used after its client was entitled to, held beyond its lease, and extended.
func (b *block) lane(r *facts.Facts, l *facts.Lane, detail facts.Window) object {
	requests, late, beyond, extended := []int64{}, [][2]int64{}, [][2]int64{}, []int64{}
	holds := map[*holding.Op]*holding.Grant{}
	for _, h := range l.Holds {
		if !detail.Meets(h.Start, h.End) && !detail.Meets(h.Acquire.Invoke.Time, h.Start) {
			continue
		}
		holds[h.Acquire] = h
		for i := range h.Late {
			beyond = appendSpan(beyond, h.Late[i].From, h.Late[i].Until)
		}
		for _, e := range h.Extensions {
			if e.OK() && len(extended) < maxMarks {
				extended = append(extended, micros(e.Complete.Time))
			}
		}
	}
	last, token := int64(0), int64(0)
	for _, op := range l.Waits {
		h := holds[op]
		if h == nil && !detail.Meets(op.Invoke.Time, op.Complete.Time) {
			continue
		}
		at, answered, kind := micros(op.Invoke.Time), micros(op.Complete.Time), int64(unknown)
		var hold []int64
		switch {
		case h != nil && h.End > h.Start:
			names, inferred := r.Granters(h)
			kind = held
			if len(names) > 0 {
				kind += int64(b.granters.index(facts.Inferred(strings.Join(names, ", "), inferred)) + 1)
			}
			from, length := max(micros(h.Start), answered), int64(0)
			if h.End != history.Never {
				length = micros(h.End) - from + 1
			}
			hold = []int64{from - answered, length, h.Token() - token}
			token = h.Token()
		case op.OK():
			kind = granted
		case op.Failed():
			kind = refused
		}
		requests = append(append(requests, at-last, answered-at, kind), hold...)
		last = at
	}
	for _, op := range l.Uses {
		if !detail.Meets(op.Invoke.Time, op.Complete.Time) || op.Failed() {
			continue
		}
		if under := l.HoldAt(op); under != nil && facts.Entitled(under) < op.Complete.Time {
			late = appendSpan(late, facts.Entitled(under), op.Complete.Time)
		}
	}
	return object{
		"lock": b.locks.index(l.Lock), "client": b.clients.index(l.Client), "requests": requests, "late": late, "beyond": beyond, "extend": extended,
	}
}

func appendSpan(spans [][2]int64, from, to time.Duration) [][2]int64 {
	if len(spans) == maxMarks {
		return spans
	}
	return append(spans, [2]int64{micros(from), micros(to)})
}

// resources are the protected resources, with their accesses: each with its instant as the distance from the one before,
// and its kind.
func (b *block) resources(r *facts.Facts, lanes []*facts.Lane, focus, detail facts.Window) []object {
	all := []object{}
	bad, locks := map[int64]bool{}, map[string][]int{}
	for _, v := range r.Violations {
		for _, index := range v.Events {
			kind, _ := checker.KindOf(v.Kind)
			bad[index] = bad[index] || kind.ByAccess
		}
	}
	for _, l := range lanes {
		at := b.locks.index(l.Lock)
		for _, op := range l.Uses {
			if name := r.Resource(op); !slices.Contains(locks[name], at) {
				locks[name] = append(locks[name], at)
			}
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.Accesses()), say.Natural) {
		var ops []*holding.Op
		for _, op := range r.Accesses()[name] {
			if detail.Meets(op.Complete.Time, op.Complete.Time) {
				ops = append(ops, op)
			}
		}
		slices.SortStableFunc(ops, func(a, b *holding.Op) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
		accesses, labels := []int64{}, []object{}
		last := int64(0)
		for _, op := range ops {
			at, kind := micros(op.Complete.Time), int64(used)
			switch {
			case op.OK() && bad[op.Complete.Index]:
				kind = usedBad
			case op.Failed():
				kind = usedRefused
			case op.Unknown():
				kind = usedUnknown
			}
			accesses = append(accesses, at-last, kind)
			last = at
			if value := r.Answer(op).Value; op.OK() && value != "" && focus.Meets(op.Complete.Time, op.Complete.Time) && len(labels) < maxLabels {
				text := cmp.Or(r.ClientOf(r.Asked(op)), fmt.Sprintf("p%d", op.Process)) + ": " + strings.Replace(value, ">", " → ", 1)
				labels = append(labels, object{"at": at, "text": say.Shorten(text, 28), "bad": kind == usedBad})
			}
		}
		all = append(all, object{"name": name, "locks": append([]int{}, locks[name]...), "labels": labels, "accesses": accesses})
	}
	return all
}

// keysOf are which servers were seen to have whose key of the lock whose violation is told, and when they had none: over the
// whole run, unless it has too many looks.
func keysOf(r *facts.Facts, v *checker.Violation, focus facts.Window) []object {
	const few = 400
	all := []object{}
	if v == nil || v.Lock == "" {
		return all
	}
	looks := r.Looks(v.Lock)
	if len(looks) > few {
		looks = slices.DeleteFunc(slices.Clone(looks), func(l facts.Look) bool { return !focus.Meets(l.At, l.At) })
	}
	for _, server := range r.Servers() {
		spans, empty := []object{}, []int64{}
		last := facts.Look{}
		for _, l := range looks {
			switch {
			case l.Server != server:
				continue
			case l.Owner == "":
				empty = append(empty, micros(l.At))
			case l.Owner == last.Owner:
				spans[len(spans)-1]["to"] = micros(l.At)
			default:
				spans = append(spans, object{"name": facts.Client(l.Owner), "from": micros(l.At), "to": micros(l.At)})
			}
			last = l
		}
		if len(spans)+len(empty) > 0 {
			all = append(all, object{"lock": v.Lock, "server": server, "spans": spans, "empty": empty})
		}
	}
	return all
}
