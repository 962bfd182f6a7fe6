package reports

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// The page draws the timeline anew for every window that its reader chooses.
// What it draws from is one block: the length of a JSON header in four bytes
// (least significant first), the header, then a stream of varints for each
// lane. All of it is compressed by gzip and written in base64, so that nothing
// in it can leave its place in the page. All times in it are microseconds.
//
// In the stream of a lane each request for the lock is
//
//	invoke, as the distance from the one before · time until its answer · kind
//
// where the kind is one of the constants below. For a hold there follow
//
//	its start, from the answer · its length plus 1, or 0 for no end · its token,
//	as the zigzag distance from the one before
//
// and in the stream of a resource each access is its instant, as the distance
// from the one before, and its kind.
const (
	kindRefused = iota
	kindUnknown
	kindGranted // and nothing is certain of its hold
	kindHold    // plus the index of the server that granted it, from 1
)

const (
	kindAccess = iota
	kindAccessRefused
	kindAccessUnknown
	kindAccessBad // it proves a violation
)

// maxDetail is how many requests and accesses the block holds one by one, at
// about 8 bytes each. Of more it has those around the violation, and how much
// of each lane holds covered.
const maxDetail = 500_000

// aroundViolation is how far from the violation operations are kept if there
// are too many.
const aroundViolation = 10 * time.Second

// maxMarks bounds the rarer marks of each lane.
const maxMarks = 1000

// A timelineData is the header of the block.
type timelineData struct {
	End        int64              `json:"end"`
	From       int64              `json:"from"` // the window to begin with
	To         int64              `json:"to"`
	Moment     int64              `json:"moment"`
	Lock       string             `json:"lock"`             // the lock to begin with; empty for all
	Detail     *[2]int64          `json:"detail,omitempty"` // the only part with operations one by one
	Grantors   []string           `json:"grantors"`
	Lanes      []laneData         `json:"lanes"`
	Resources  []resourceData     `json:"resources"`
	Servers    []serverData       `json:"servers"`
	Keys       []keyData          `json:"keys,omitempty"` // by lock, then by server
	Faults     []faultData        `json:"faults"`
	Violations []violationData    `json:"violations"`
	More       map[string]int     `json:"more"` // lanes, resources: how many are left out
	Steps      []int64            `json:"steps"`
	streams    []*bytes.Buffer    // in the order of the lanes, then the resources
	indices    map[string]uint64  // of the grantors, from 1
	bad        map[int64]struct{} // accesses that prove a violation
}

type laneData struct {
	Lock   string     `json:"lock"`
	Name   string     `json:"name"`
	Bytes  int        `json:"bytes"`
	Late   [][2]int64 `json:"late,omitempty"`   // use after belief
	Beyond [][2]int64 `json:"beyond,omitempty"` // held beyond the lease
	Extend []int64    `json:"extend,omitempty"`
	Cover  string     `json:"cover,omitempty"` // of equal parts of the whole, 0 to 4
}

type resourceData struct {
	Name   string        `json:"name"`
	Locks  []string      `json:"locks"`
	Bytes  int           `json:"bytes"`
	Labels []accessLabel `json:"labels,omitempty"`
}

type accessLabel struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
	Bad  bool   `json:"bad,omitempty"`
}

type serverData struct {
	Name string       `json:"name"`
	Life []serverPart `json:"life"`
}

type serverPart struct {
	From    int64  `json:"from"`
	To      int64  `json:"to"`
	State   string `json:"state"`
	Changed bool   `json:"changed,omitempty"`
}

// A keyData is what one server had of the key of a lock.
type keyData struct {
	Lock   string     `json:"lock"`
	Server string     `json:"server"`
	Spans  []keyParts `json:"spans,omitempty"`
	Empty  []int64    `json:"empty,omitempty"` // looks that found none
}

type keyParts struct {
	Name  string  `json:"name"`
	From  int64   `json:"from"`
	To    int64   `json:"to"`
	Copy  bool    `json:"copy,omitempty"` // it was seen there, and another server granted it
	Looks []int64 `json:"looks,omitempty"`
}

type faultData struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	OK    bool   `json:"ok"`
}

type violationData struct {
	Words string `json:"words"`
	Title string `json:"title"`
	Lock  string `json:"lock"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	Lanes []int  `json:"lanes"` // that a frame is drawn around
	Told  bool   `json:"told,omitempty"`
}

func micros(t time.Duration) int64 { return t.Microseconds() }

// timelineBlock is what the page's script draws the timeline from.
func (d *digest) timelineBlock() (string, error) {
	t := d.timelineData()
	header, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("write timeline: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(header))) //nolint:gosec // far below 4 GB
	for _, part := range append([][]byte{head, header}, streamBytes(t.streams)...) {
		if _, err := z.Write(part); err != nil {
			return "", fmt.Errorf("write timeline: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("write timeline: %w", err)
	}
	return base64.RawStdEncoding.EncodeToString(b.Bytes()), nil
}

func streamBytes(streams []*bytes.Buffer) [][]byte {
	parts := make([][]byte, len(streams))
	for i, s := range streams {
		parts[i] = s.Bytes()
	}
	return parts
}

func (d *digest) timelineData() *timelineData {
	whole := d.whole()
	t := &timelineData{
		End: micros(whole.to), To: micros(whole.to), Moment: micros(d.moment()),
		Grantors: []string{}, Lanes: []laneData{}, Resources: []resourceData{}, Servers: []serverData{},
		Faults: []faultData{}, Violations: []violationData{}, More: map[string]int{}, Steps: d.steps(),
		indices: map[string]uint64{}, bad: map[int64]struct{}{},
	}
	for _, index := range d.badAccesses() {
		t.bad[index] = struct{}{}
	}
	focus := whole
	told := d.violation()
	if told != nil {
		focus = d.focus(told)
		t.From, t.To, t.Lock = micros(focus.from), micros(focus.to), told.Lock
	}
	detail := whole
	if d.drawable() > d.maxDetail {
		detail = window{from: max(0, focus.from-aroundViolation), to: min(whole.to, focus.to+aroundViolation)}
		if told == nil {
			detail = window{to: min(whole.to, 2*aroundViolation)}
		}
		t.Detail = &[2]int64{micros(detail.from), micros(detail.to)}
	}
	lanes, left := d.pageLanes(told, focus)
	t.More["lanes"] = left
	for _, l := range lanes {
		t.addLane(d, l, detail)
	}
	d.addResources(t, focus, detail)
	for _, name := range d.servers() {
		s := serverData{Name: name, Life: []serverPart{}}
		for _, part := range d.server(name) {
			if part.to > part.from {
				s.Life = append(s.Life, serverPart{micros(part.from), micros(part.to), part.state, part.changed})
			}
		}
		t.Servers = append(t.Servers, s)
	}
	for i := range d.faults {
		f := &d.faults[i]
		t.Faults = append(t.Faults, faultData{shorten(f.label(), 60), faultTitle(f), micros(f.Start), micros(f.End), f.OK})
	}
	d.addKeys(t)
	d.addViolations(t, told, lanes)
	return t
}

// addKeys writes which servers had whose key of the locks whose violations are told.
func (d *digest) addKeys(t *timelineData) {
	done := map[string]bool{}
	for i, c := range d.causesOf() {
		v := d.gravestOf(c.found)
		if i == maxToldCauses {
			break
		}
		if v.Lock == "" || done[v.Lock] {
			continue
		}
		done[v.Lock] = true
		spans := d.keySpans(v.Lock, d.keyWindow(v))
		for _, server := range d.servers() {
			k := keyData{Lock: v.Lock, Server: server}
			for _, s := range spans {
				if s.server == server {
					part := keyParts{Name: client(s.owner), From: micros(s.from), To: micros(s.until), Copy: !s.vote}
					for _, at := range s.looks {
						part.Looks = append(part.Looks, micros(at))
					}
					k.Spans = append(k.Spans, part)
				}
			}
			for _, at := range d.emptyLooks(v.Lock, server) {
				k.Empty = append(k.Empty, micros(at))
			}
			if len(k.Spans)+len(k.Empty) > 0 {
				t.Keys = append(t.Keys, k)
			}
		}
	}
}

// drawable counts the operations that a timeline draws.
func (d *digest) drawable() int {
	n := 0
	for i := range d.ops {
		if op := d.ops[i].Invoke.Op; op == history.Acquire || op == history.Access {
			n++
		}
	}
	return n
}

// pageLanes are the lanes that the page draws: those of the violation first.
func (d *digest) pageLanes(told *checker.Violation, focus window) (lanes []*lane, left int) {
	all := d.lanes()
	if told == nil {
		return capped(all, maxWholeLanes)
	}
	first, _ := d.focusLanes(told, focus)
	lanes = slices.Clone(first)
	for _, l := range all {
		if !slices.Contains(first, l) {
			lanes = append(lanes, l)
		}
	}
	slices.SortStableFunc(lanes, func(a, b *lane) int { // its lock first, all lanes of a lock together
		if (a.lock == told.Lock) != (b.lock == told.Lock) {
			return cmp.Compare(b2i(b.lock == told.Lock), b2i(a.lock == told.Lock))
		}
		return cmp.Compare(a.lock, b.lock)
	})
	return capped(lanes, maxWholeLanes)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// addLane writes the stream of a lane.
func (t *timelineData) addLane(d *digest, l *lane, detail window) {
	data := laneData{Lock: l.lock, Name: l.client}
	holds := make(map[int]*holding.Hold, len(l.holds))
	for _, h := range l.holds {
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
	var s bytes.Buffer
	put := func(n uint64) { s.Write(binary.AppendUvarint(nil, n)) }
	last, token := int64(0), int64(0)
	for _, op := range l.waits {
		h := holds[op.Ordinal()]
		if !detail.meets(op.Invoke.Time, op.Complete.Time) && (h == nil || !detail.meets(h.Start, h.End)) {
			continue
		}
		at, answered := micros(op.Invoke.Time), micros(op.Complete.Time)
		put(uint64(at - last))
		put(uint64(answered - at))
		last = at
		switch {
		case h != nil && h.End > h.Start:
			put(kindHold + t.indexOf(d.grantors(h)))
			put(uint64(max(0, micros(h.Start)-answered)))
			if h.End == history.Never {
				put(0)
			} else {
				put(uint64(micros(h.End)-max(micros(h.Start), answered)) + 1)
			}
			put(zigzag(h.Token - token))
			token = h.Token
		case op.OK():
			put(kindGranted)
		case op.Failed():
			put(kindRefused)
		default:
			put(kindUnknown)
		}
	}
	for _, op := range l.uses {
		if under := l.holdAt(op.Invoke); under != nil && !op.Failed() && believes(under) < op.Complete.Time {
			data.Late = appendSpan(data.Late, believes(under), op.Complete.Time)
		}
	}
	if t.Detail != nil {
		data.Cover = l.cover(d.whole())
	}
	data.Bytes = s.Len()
	t.Lanes = append(t.Lanes, data)
	t.streams = append(t.streams, &s)
}

func appendSpan(spans [][2]int64, from, to time.Duration) [][2]int64 {
	if len(spans) == maxMarks {
		return spans
	}
	return append(spans, [2]int64{micros(from), micros(to)})
}

// zigzag maps a signed number to one that is small if it is.
func zigzag(n int64) uint64 { return uint64(n)<<1 ^ uint64(n>>63) }

// indexOf is the index of a server that granted, from 1; 0 for none.
func (t *timelineData) indexOf(server string) uint64 {
	if server == "" {
		return 0
	}
	if _, known := t.indices[server]; !known {
		t.Grantors = append(t.Grantors, server)
		t.indices[server] = uint64(len(t.Grantors))
	}
	return t.indices[server]
}

// cover says of each of this many equal parts of a window how much of it holds
// covered: a digit from 0 to 4.
func (l *lane) cover(w window) string {
	const parts = 1500
	var covered [parts + 1]float64
	unit := float64(w.length()) / parts
	for _, h := range l.holds {
		from, to := float64(h.Start)/unit, float64(min(h.End, w.to))/unit
		for at := int(from); at <= int(to) && at < parts; at++ {
			covered[at] += math.Min(to, float64(at+1)) - math.Max(from, float64(at))
		}
	}
	var b strings.Builder
	for _, c := range covered[:parts] {
		b.WriteByte(byte('0' + min(4, int(math.Ceil(c*4-0.001)))))
	}
	return b.String()
}

// maxLabels bounds the accesses of a resource that have a label.
const maxLabels = 200

// addResources writes the streams of the protected resources.
func (d *digest) addResources(t *timelineData, focus, detail window) {
	const most = 8
	locks := d.locksOfResources()
	names := d.resources()
	if told := d.violation(); told != nil { // what it damaged comes first
		slices.SortStableFunc(names, func(a, b string) int {
			concerns := func(name string) int { return b2i(name == told.Resource || slices.Contains(locks[name], told.Lock)) }
			return concerns(b) - concerns(a)
		})
	}
	t.More["resources"] = max(0, len(names)-most)
	for _, name := range names[:min(len(names), most)] {
		var ops []*history.Operation
		for _, op := range d.accessesOf()[name] {
			if detail.meets(op.Complete.Time, op.Complete.Time) {
				ops = append(ops, op)
			}
		}
		slices.SortStableFunc(ops, func(a, b *history.Operation) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
		data := resourceData{Name: name, Locks: locks[name]}
		var s bytes.Buffer
		last := int64(0)
		for _, op := range ops {
			at := micros(op.Complete.Time)
			kind := uint64(kindAccess)
			_, bad := t.bad[op.Complete.Index]
			switch {
			case op.OK() && bad:
				kind = kindAccessBad
			case op.Failed():
				kind = kindAccessRefused
			case op.Unknown():
				kind = kindAccessUnknown
			}
			s.Write(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(at-last)), kind))
			last = at
			if op.OK() && focus.meets(op.Complete.Time, op.Complete.Time) && len(data.Labels) < maxLabels {
				if text := d.accessLabel(op); text != "" {
					data.Labels = append(data.Labels, accessLabel{at, shorten(text, 28), bad})
				}
			}
		}
		data.Bytes = s.Len()
		t.Resources = append(t.Resources, data)
		t.streams = append(t.streams, &s)
	}
}

// locksOfResources are the locks under which each resource was used.
func (d *digest) locksOfResources() map[string][]string {
	locks := map[string][]string{}
	for _, l := range d.lanes() {
		for _, op := range l.uses {
			if name := resourceOf(op); !slices.Contains(locks[name], l.lock) {
				locks[name] = append(locks[name], l.lock)
			}
		}
	}
	return locks
}

// addViolations lists the violations in order of time, with the lanes that each is
// about.
func (d *digest) addViolations(t *timelineData, told *checker.Violation, lanes []*lane) {
	for _, v := range d.distinct() {
		data := violationData{
			Words: d.markWords(v), Title: v.Explanation, Lock: v.Lock, Lanes: []int{},
			From: micros(d.since(v)), To: micros(max(v.From, min(v.Until, d.end))), Told: v == told,
		}
		for k, h := range d.holdsOf(v) {
			if k == 2 && v.Kind == checker.DoubleGrant {
				break
			}
			at := slices.IndexFunc(lanes, func(l *lane) bool { return l.lock == h.Lock && l.client == client(h.Owner) })
			if at >= 0 && !slices.Contains(data.Lanes, at) {
				data.Lanes = append(data.Lanes, at)
			}
		}
		for _, index := range v.Events { // of what is about no hold: a client that asks in vain
			e, ok := d.event(index)
			if len(d.holdsOf(v)) > 0 || !ok || e.Op != history.Acquire {
				continue
			}
			at := slices.IndexFunc(lanes, func(l *lane) bool { return l.lock == e.Lock && l.client == client(e.LockOwner()) })
			if at >= 0 && !slices.Contains(data.Lanes, at) {
				data.Lanes = append(data.Lanes, at)
			}
		}
		t.Violations = append(t.Violations, data)
	}
}
