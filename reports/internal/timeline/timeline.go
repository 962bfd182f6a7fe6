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
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/draw"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/reports/internal/story"
)

const (
	// maxDetail is how many requests and accesses the block has one by one. Of more it has those around the
	// violation, and how much of the time each lock was held.
	maxDetail = 60_000
	// around is how far from the violation operations are kept if there are too many.
	around = 10 * time.Second
	// coverParts is into how many parts a cover divides the whole: fewer where there are many locks.
	coverParts = 1500
	// maxMarks bounds the rarer marks of each lane, and maxLabels the accesses of a resource that have a label.
	maxMarks, maxLabels = 1000, 200
)

// A kind of request, in [lane.Requests]. One with a hold has its start after the answer, its length plus 1 or 0 for no
// end, and the distance of its token from the one before.
const (
	refused = iota
	unknown
	granted // and nothing is certain of its hold
	held    // plus the index of the servers that granted it, from 1
)

// A kind of access, in [resource.Accesses].
const (
	used = iota
	usedRefused
	usedUnknown
	usedBad // it proves a violation
)

type block struct {
	End        int64       `json:"end"`
	From       int64       `json:"from"` // the window to begin with
	To         int64       `json:"to"`
	Moment     int64       `json:"moment"`
	Lock       string      `json:"lock"`             // the lock to begin with; empty for all
	Detail     *[2]int64   `json:"detail,omitempty"` // the only part with operations one by one
	Granters   []string    `json:"granters"`
	Locks      []lock      `json:"locks"`
	Clients    []string    `json:"clients"`
	Lanes      []*lane     `json:"lanes"`
	Resources  []*resource `json:"resources"`
	Servers    []server    `json:"servers"`
	Keys       []*key      `json:"keys"`
	Faults     []fault     `json:"faults"`
	Violations []violation `json:"violations"`
	Steps      []int64     `json:"steps"`

	locks, clients map[string]int
}

// Each digit of a cover is of one of its equal parts of the whole: how much of it holds
// covered, from 0 to 4, plus 5 if a request was refused, plus 10 if one had no known
// outcome.
type lock struct {
	Name  string `json:"name"`
	Cover string `json:"cover,omitempty"`
}

type lane struct {
	Lock   int        `json:"lock"`
	Client int        `json:"client"`
	Late   [][2]int64 `json:"late,omitempty"`   // used after it was entitled to
	Beyond [][2]int64 `json:"beyond,omitempty"` // held beyond the lease
	Extend []int64    `json:"extend,omitempty"`
	// Requests are for each its instant, as the distance from the one before, the time until its answer, and its kind.
	Requests []int64 `json:"requests"`
}

type resource struct {
	Name   string  `json:"name"`
	Locks  []int   `json:"locks"` // under which it was used
	Labels []label `json:"labels,omitempty"`
	// Accesses are for each its instant, as the distance from the one before, and its kind.
	Accesses []int64 `json:"accesses"`
}

type label struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
	Bad  bool   `json:"bad,omitempty"`
}

type server struct {
	Name string `json:"name"`
	Life []life `json:"life"`
}

type life struct {
	From    int64  `json:"from"`
	To      int64  `json:"to"`
	State   string `json:"state"`
	Changed bool   `json:"changed,omitempty"`
}

// A key is what one server had of the key of a lock.
type key struct {
	Lock   string    `json:"lock"`
	Server string    `json:"server"`
	Spans  []keySpan `json:"spans,omitempty"`
	Empty  []int64   `json:"empty,omitempty"` // looks that found none
}

type keySpan struct {
	Name  string  `json:"name"`
	From  int64   `json:"from"`
	To    int64   `json:"to"`
	Copy  bool    `json:"copy,omitempty"` // it was seen there, and another server granted it
	Looks []int64 `json:"looks,omitempty"`
}

type fault struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	OK    bool   `json:"ok"`
}

type violation struct {
	Words string `json:"words"`
	Title string `json:"title"`
	Lock  string `json:"lock"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	Lanes []int  `json:"lanes"` // that a frame is drawn around
	Told  bool   `json:"told,omitempty"`
}

func micros(t time.Duration) int64 { return t.Microseconds() }

// Moment is the instant that a page shows first: that of the violation, else that of the first fault.
func Moment(r *facts.Facts) time.Duration {
	if v := r.Told(); v != nil {
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
	if err := cmp.Or(json.NewEncoder(z).Encode(blockOf(r, told)), z.Close()); err != nil {
		return "", fmt.Errorf("write timeline: %w", err)
	}
	return base64.RawStdEncoding.EncodeToString(b.Bytes()), nil
}

func blockOf(r *facts.Facts, told story.Story) *block {
	whole, v := r.Whole(), r.Told()
	b := &block{
		End: micros(whole.To), To: micros(whole.To), Moment: micros(Moment(r)),
		Granters: []string{}, Locks: []lock{}, Clients: []string{}, Lanes: []*lane{}, Resources: []*resource{}, Servers: []server{}, Keys: []*key{},
		Faults: []fault{}, Violations: []violation{}, locks: map[string]int{}, clients: map[string]int{},
	}
	focus := facts.Window{To: min(whole.To, 2*around)}
	lanes := slices.Clone(r.Lanes())
	var first []*facts.Lane
	if v != nil {
		focus = focusOf(r, v, told)
		b.From, b.To, b.Lock = micros(focus.From), micros(focus.To), v.Lock
		first = r.LanesOf(v)
		slices.SortStableFunc(lanes, func(a, b *facts.Lane) int { // its lock first, all lanes of a lock together
			if a.Lock != b.Lock {
				return slices.Index([]string{v.Lock}, b.Lock) - slices.Index([]string{v.Lock}, a.Lock)
			}
			return place(first, a) - place(first, b)
		})
	}
	detail := detailOf(r, focus)
	if detail != whole {
		b.Detail = &[2]int64{micros(detail.From), micros(detail.To)}
		concerned := map[*facts.Lane]bool{}
		for _, v := range r.Violations {
			for _, l := range r.LanesOf(v) {
				concerned[l] = true
			}
		}
		b.cover(lanes, whole)
		lanes = slices.DeleteFunc(lanes, func(l *facts.Lane) bool { return !concerned[l] && !l.Shows(detail) })
	}
	index := map[*facts.Lane]int{}
	for i, l := range lanes {
		index[l] = i
		b.addLane(r, l, detail)
	}
	b.addResources(r, lanes, focus, detail)
	for _, name := range r.Servers() {
		s := server{Name: name, Life: []life{}}
		for _, part := range r.Life(name) {
			if part.To > part.From {
				s.Life = append(s.Life, life{micros(part.From), micros(part.To), part.State, part.Changed})
			}
		}
		b.Servers = append(b.Servers, s)
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		title := fmt.Sprintf("%s, %s to %s: %s", f.Detail(), say.Instant(f.Start), say.Instant(f.End), f.Observed())
		b.Faults = append(b.Faults, fault{say.Shorten(f.Label(), 60), title, micros(f.Start), micros(f.End), f.OK})
	}
	b.addKeys(r, v, focus)
	for _, u := range r.Violations {
		data := violation{
			Words: story.Mark(r, u), Title: u.Explanation, Lock: u.Lock, Lanes: []int{}, Told: u == v,
			From: micros(r.Since(u)), To: micros(max(u.From, min(u.Until, r.End))),
		}
		for _, l := range r.LanesOf(u) {
			if at, shown := index[l]; shown {
				data.Lanes = append(data.Lanes, at)
			}
		}
		b.Violations = append(b.Violations, data)
	}
	for _, at := range draw.Changes(r) {
		b.Steps = append(b.Steps, micros(at))
	}
	for _, e := range told.Events {
		b.Steps = append(b.Steps, micros(e.At))
	}
	slices.Sort(b.Steps)
	b.Steps = slices.Compact(b.Steps)
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
	drawable := func(w facts.Window) int {
		n := 0
		for i := range r.Ops {
			if op := &r.Ops[i]; (op.Invoke.Op == history.Acquire || op.Invoke.Op == history.Access) && w.Meets(op.Invoke.Time, op.Complete.Time) {
				n++
			}
		}
		return n
	}
	detail := r.Whole()
	for margin := around; drawable(detail) > maxDetail && margin+focus.Length() > time.Millisecond; margin /= 2 {
		detail = facts.Window{From: max(0, focus.From-margin), To: min(r.Whole().To, focus.To+margin)}
		if margin < time.Millisecond { // the focus itself has too much
			focus.To = focus.From + focus.Length()/2
		}
	}
	return detail
}

func index(of map[string]int, name string, add func()) int {
	i, known := of[name]
	if !known {
		i = len(of)
		of[name] = i
		add()
	}
	return i
}

func (b *block) lock(name string) int {
	return index(b.locks, name, func() { b.Locks = append(b.Locks, lock{Name: name}) })
}

func (b *block) client(name string) int {
	return index(b.clients, name, func() { b.Clients = append(b.Clients, name) })
}

// granter is the index of servers that granted, from 1; 0 for none.
func (b *block) granter(names string) int64 {
	if names != "" && !slices.Contains(b.Granters, names) {
		b.Granters = append(b.Granters, names)
	}
	return int64(slices.Index(b.Granters, names) + 1)
}

// addLane writes a lane: its requests in the window.
func (b *block) addLane(r *facts.Facts, l *facts.Lane, detail facts.Window) {
	data := &lane{Lock: b.lock(l.Lock), Client: b.client(l.Client), Requests: []int64{}}
	b.Lanes = append(b.Lanes, data)
	holds := map[int]*holding.Hold{}
	for _, h := range l.Holds {
		if !detail.Meets(h.Start, h.End) && !detail.Meets(h.Acquire.Invoke.Time, h.Start) {
			continue
		}
		holds[h.Acquire.Ordinal()] = h
		for i := range h.Late {
			data.Beyond = appendSpan(data.Beyond, h.Late[i].From, h.Late[i].Until)
		}
		for i := range h.Extensions {
			if e := &h.Extensions[i]; e.OK() && len(data.Extend) < maxMarks {
				data.Extend = append(data.Extend, micros(e.Complete.Time))
			}
		}
	}
	last, token := int64(0), int64(0)
	for _, op := range l.Waits {
		h := holds[op.Ordinal()]
		if h == nil && !detail.Meets(op.Invoke.Time, op.Complete.Time) {
			continue
		}
		at, answered, kind := micros(op.Invoke.Time), micros(op.Complete.Time), int64(unknown)
		var hold []int64
		switch {
		case h != nil && h.End > h.Start:
			names, inferred := r.Granters(h)
			kind = held + b.granter(facts.Inferred(strings.Join(names, ", "), inferred))
			from, length := max(micros(h.Start), answered), int64(0)
			if h.End != history.Never {
				length = micros(h.End) - from + 1
			}
			hold = []int64{from - answered, length, h.Token - token}
			token = h.Token
		case op.OK():
			kind = granted
		case op.Failed():
			kind = refused
		}
		data.Requests = append(append(data.Requests, at-last, answered-at, kind), hold...)
		last = at
	}
	for _, op := range l.Uses {
		if !detail.Meets(op.Invoke.Time, op.Complete.Time) || op.Failed() {
			continue
		}
		if under := l.HoldAt(op.Invoke); under != nil && facts.Entitled(under) < op.Complete.Time {
			data.Late = appendSpan(data.Late, facts.Entitled(under), op.Complete.Time)
		}
	}
}

func appendSpan(spans [][2]int64, from, to time.Duration) [][2]int64 {
	if len(spans) == maxMarks {
		return spans
	}
	return append(spans, [2]int64{micros(from), micros(to)})
}

// cover writes how much each lock was held, in parts that become coarser with the number of locks.
func (b *block) cover(lanes []*facts.Lane, w facts.Window) {
	of := map[string][]*facts.Lane{}
	for _, l := range lanes {
		b.lock(l.Lock)
		of[l.Lock] = append(of[l.Lock], l)
	}
	parts := max(100, coverParts/max(1, len(of)/16))
	unit := float64(w.Length()) / float64(parts)
	for k := range b.Locks {
		covered, failed, open := make([]float64, parts+1), make([]bool, parts), make([]bool, parts)
		for _, l := range of[b.Locks[k].Name] {
			for _, h := range l.Holds {
				from, to := float64(h.Start)/unit, float64(min(h.End, w.To))/unit
				for at := int(from); at <= int(to) && at < parts; at++ {
					covered[at] += math.Min(to, float64(at+1)) - math.Max(from, float64(at))
				}
			}
			for _, op := range l.Waits {
				at := min(parts-1, int(float64(op.Complete.Time)/unit))
				failed[at], open[at] = failed[at] || op.Failed(), open[at] || op.Unknown()
			}
		}
		digits := make([]byte, parts)
		for i := range digits {
			digit := min(4, int(math.Ceil(covered[i]*4-0.001)))
			if failed[i] {
				digit += 5
			}
			if open[i] {
				digit += 10
			}
			digits[i] = "0123456789abcdefghij"[digit]
		}
		b.Locks[k].Cover = string(digits)
	}
}

// addResources writes the protected resources.
func (b *block) addResources(r *facts.Facts, lanes []*facts.Lane, focus, detail facts.Window) {
	bad, locks := map[int64]bool{}, map[string][]int{}
	for _, v := range r.Violations {
		for _, index := range v.Events {
			kind, _ := checker.KindOf(v.Kind)
			bad[index] = bad[index] || kind.ByAccess
		}
	}
	for _, l := range lanes {
		for _, op := range l.Uses {
			if name, at := facts.Resource(op), b.lock(l.Lock); !slices.Contains(locks[name], at) {
				locks[name] = append(locks[name], at)
			}
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.Accesses()), say.Natural) {
		ops := slices.DeleteFunc(slices.Clone(r.Accesses()[name]), func(op *history.Operation) bool { return !detail.Meets(op.Complete.Time, op.Complete.Time) })
		slices.SortStableFunc(ops, func(a, b *history.Operation) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
		data := &resource{Name: name, Locks: append([]int{}, locks[name]...), Accesses: []int64{}}
		last := int64(0)
		for _, op := range ops {
			e := op.Complete
			at, kind := micros(e.Time), int64(used)
			switch {
			case op.OK() && bad[e.Index]:
				kind = usedBad
			case op.Failed():
				kind = usedRefused
			case op.Unknown():
				kind = usedUnknown
			}
			data.Accesses = append(data.Accesses, at-last, kind)
			last = at
			if op.OK() && e.Value != "" && focus.Meets(e.Time, e.Time) && len(data.Labels) < maxLabels {
				text := cmp.Or(r.ClientOf(op.Invoke), fmt.Sprintf("p%d", e.Process)) + ": " + strings.Replace(e.Value, ">", " → ", 1)
				data.Labels = append(data.Labels, label{at, say.Shorten(text, 28), kind == usedBad})
			}
		}
		b.Resources = append(b.Resources, data)
	}
}

// addKeys writes which servers had whose key of the lock whose violation is told: over the whole run, unless it has
// too many grants.
func (b *block) addKeys(r *facts.Facts, v *checker.Violation, focus facts.Window) {
	const few = 50
	if v == nil || v.Lock == "" {
		return
	}
	grants, w := 0, r.Whole()
	for i := range r.Holds {
		if r.Holds[i].Lock == v.Lock {
			grants++
		}
	}
	if grants > few {
		w = focus
	}
	keys := r.Keys(v.Lock, w)
	for _, name := range r.Servers() {
		k := &key{Lock: v.Lock, Server: name}
		for _, s := range keys {
			if s.Server != name {
				continue
			}
			span := keySpan{Name: facts.Inferred(facts.Client(s.Owner), s.Inferred), From: micros(s.From), To: micros(s.Until), Copy: s.Copy}
			for _, at := range s.Looks {
				span.Looks = append(span.Looks, micros(at))
			}
			k.Spans = append(k.Spans, span)
		}
		for _, l := range r.Looks(v.Lock) {
			if l.Server == name && l.Owner == "" {
				k.Empty = append(k.Empty, micros(l.At))
			}
		}
		if len(k.Spans)+len(k.Empty) > 0 {
			b.Keys = append(b.Keys, k)
		}
	}
}
