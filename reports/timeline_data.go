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
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// The page draws the timeline anew for every window that its reader chooses.
// What it draws from is one block: the length of a JSON header in four bytes
// (least significant first), the header, then varints: the lanes, then the
// resources. All of it is compressed by gzip and written in base64, so that nothing
// in it can leave its place in the page. All times in it are microseconds.
//
// A lane is the index of its lock, the index of its client, how many requests it has, and
// for each request
//
//	invoke, as the distance from the one before · time until its answer · kind
//
// where the kind is one of the constants below. For a hold there follow
//
//	its start, from the answer · its length plus 1, or 0 for no end · its token,
//	as the zigzag distance from the one before
//
// and a resource is for each access its instant, as the distance from the one before,
// and its kind.
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
// of each lane holds covered, or of each lock if there are many lanes. Of a run with
// more lanes than manyLanes it is maxCrowdDetail.
const (
	maxDetail      = 500_000
	maxCrowdDetail = 40_000
	manyLanes      = 64
)

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
	Locks      []lockData         `json:"locks"`
	Clients    []string           `json:"clients"`
	Lanes      int                `json:"lanes"`    // how many follow the header
	Requests   int                `json:"requests"` // of all lanes
	Marks      map[int]*laneMarks `json:"marks"`    // by the index of the lane
	Resources  []resourceData     `json:"resources"`
	Servers    []serverData       `json:"servers"`
	Keys       []keyData          `json:"keys,omitempty"` // by lock, then by server
	Faults     []faultData        `json:"faults"`
	Violations []violationData    `json:"violations"`
	Steps      []int64            `json:"steps"`
	stream     []byte             // the lanes, then the resources
	indices    map[string]uint64  // of the grantors, from 1
	locks      map[string]int     // the index of each
	clients    map[string]int     // the same
	bad        map[int64]struct{} // accesses that prove a violation
}

type lockData struct {
	Name  string `json:"name"`
	Cover string `json:"cover,omitempty"` // of all its lanes, as of a lane
}

// Each digit of a cover is of one of its equal parts of the whole: how much of it holds
// covered, from 0 to 4, plus 5 if a request was refused, plus 10 if one had no known
// outcome.
type laneMarks struct {
	Late   [][2]int64 `json:"late,omitempty"`   // use after belief
	Beyond [][2]int64 `json:"beyond,omitempty"` // held beyond the lease
	Extend []int64    `json:"extend,omitempty"`
	Cover  string     `json:"cover,omitempty"`
}

type resourceData struct {
	Name   string        `json:"name"`
	Locks  []int         `json:"locks"` // under which it was used
	Count  int           `json:"count"`
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
func (m *model) timelineBlock() (string, error) {
	t := m.timelineData()
	header, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("write timeline: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(header))) //nolint:gosec // far below 4 GB
	for _, part := range [][]byte{head, header, t.stream} {
		if _, err := z.Write(part); err != nil {
			return "", fmt.Errorf("write timeline: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("write timeline: %w", err)
	}
	return base64.RawStdEncoding.EncodeToString(b.Bytes()), nil
}

func (m *model) timelineData() *timelineData {
	whole := m.whole()
	t := &timelineData{
		End: micros(whole.to), To: micros(whole.to), Moment: micros(m.moment()),
		Grantors: []string{}, Locks: []lockData{}, Clients: []string{}, Marks: map[int]*laneMarks{}, Resources: []resourceData{}, Servers: []serverData{},
		Faults: []faultData{}, Violations: []violationData{}, Steps: m.steps(),
		indices: map[string]uint64{}, locks: map[string]int{}, clients: map[string]int{}, bad: map[int64]struct{}{},
	}
	for _, index := range m.badAccesses() {
		t.bad[index] = struct{}{}
	}
	focus := window{to: min(whole.to, 2*aroundViolation)}
	told := m.violation()
	if told != nil {
		focus = m.focus(told)
		t.From, t.To, t.Lock = micros(focus.from), micros(focus.to), told.Lock
	}
	lanes := m.pageLanes(told)
	most := m.maxDetail
	if len(lanes) > manyLanes {
		most = min(most, maxCrowdDetail)
	}
	crowd := len(lanes) > maxWholeLanes
	detail := m.detailWindow(told, focus, most)
	if detail != whole {
		t.Detail = &[2]int64{micros(detail.from), micros(detail.to)}
	}
	if crowd && t.Detail != nil {
		concerned := map[*lane]bool{}
		for _, v := range m.distinct() {
			for _, l := range m.lanesOf(v) {
				concerned[l] = true
			}
		}
		t.coverLocks(lanes, whole)
		lanes = slices.DeleteFunc(lanes, func(l *lane) bool { return !concerned[l] && !l.shows(detail) })
	}
	index := make(map[*lane]int, len(lanes))
	for i, l := range lanes {
		index[l] = i
		t.addLane(m, l, detail, t.Detail != nil && !crowd)
	}
	m.addResources(t, focus, detail)
	for _, name := range m.servers() {
		s := serverData{Name: name, Life: []serverPart{}}
		for _, part := range m.server(name) {
			if part.to > part.from {
				s.Life = append(s.Life, serverPart{micros(part.from), micros(part.to), part.state, part.changed})
			}
		}
		t.Servers = append(t.Servers, s)
	}
	for i := range m.faults {
		f := &m.faults[i]
		t.Faults = append(t.Faults, faultData{say.Shorten(f.label(), 60), faultTitle(f), micros(f.Start), micros(f.End), f.OK})
	}
	m.addKeys(t)
	m.addViolations(t, told, index)
	return t
}

// addKeys writes which servers had whose key of the lock whose violation is told.
func (m *model) addKeys(t *timelineData) {
	v := m.violation()
	if v == nil || v.Lock == "" {
		return
	}
	spans := m.keySpans(v.Lock, m.keyWindow(v))
	for _, server := range m.servers() {
		k := keyData{Lock: v.Lock, Server: server}
		for _, s := range spans {
			if s.server == server {
				part := keyParts{Name: inferred(client(s.owner), s.inferred), From: micros(s.from), To: micros(s.until), Copy: !s.vote}
				for _, at := range s.looks {
					part.Looks = append(part.Looks, micros(at))
				}
				k.Spans = append(k.Spans, part)
			}
		}
		for _, at := range m.emptyLooks(v.Lock, server) {
			k.Empty = append(k.Empty, micros(at))
		}
		if len(k.Spans)+len(k.Empty) > 0 {
			t.Keys = append(t.Keys, k)
		}
	}
}

// detailWindow is the part of the run of which the page has every operation: all of it,
// or what is around the violation that is told.
func (m *model) detailWindow(told *checker.Violation, focus window, most int) window {
	whole := m.whole()
	detail := whole
	margin := aroundViolation
	if told == nil {
		margin = 0
	}
	for m.drawable(detail) > most && margin+focus.length() > time.Millisecond {
		detail = window{from: max(0, focus.from-margin), to: min(whole.to, focus.to+margin)}
		if margin = margin * 3 / 4; margin < time.Millisecond { // the focus itself has too much
			focus.to = focus.from + focus.length()*3/4
		}
	}
	return detail
}

// drawable counts the operations of a window that a timeline draws.
func (m *model) drawable(w window) int {
	n := 0
	for i := range m.ops {
		if op := &m.ops[i]; (op.Invoke.Op == history.Acquire || op.Invoke.Op == history.Access) && w.meets(op.Invoke.Time, op.Complete.Time) {
			n++
		}
	}
	return n
}

// pageLanes are the lanes that the page draws: those of the violation first.
func (m *model) pageLanes(told *checker.Violation) []*lane {
	lanes := slices.Clone(m.lanes())
	if told == nil {
		return lanes
	}
	first := m.lanesOf(told)
	place := make(map[*lane]int, len(first))
	for i, l := range first {
		place[l] = i - len(first)
	}
	slices.SortStableFunc(lanes, func(a, b *lane) int { // its lock first, all lanes of a lock together
		if a.lock != b.lock {
			return b2i(b.lock == told.Lock) - b2i(a.lock == told.Lock)
		}
		return place[a] - place[b]
	})
	return lanes
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lock is the index of a lock, and client that of a client.
func (t *timelineData) lock(name string) int {
	i, known := t.locks[name]
	if !known {
		i = len(t.Locks)
		t.Locks = append(t.Locks, lockData{Name: name})
		t.locks[name] = i
	}
	return i
}

func (t *timelineData) client(name string) int {
	i, known := t.clients[name]
	if !known {
		i = len(t.Clients)
		t.Clients = append(t.Clients, name)
		t.clients[name] = i
	}
	return i
}

func (t *timelineData) put(n uint64) { t.stream = binary.AppendUvarint(t.stream, n) }

// coverLocks writes how much each lock was held, in parts that become coarser with the
// number of locks.
func (t *timelineData) coverLocks(lanes []*lane, whole window) {
	of := map[string][]*lane{}
	for _, l := range lanes {
		t.lock(l.lock)
		of[l.lock] = append(of[l.lock], l)
	}
	for i := range t.Locks {
		t.Locks[i].Cover = cover(of[t.Locks[i].Name], whole, max(100, coverParts/max(1, len(of)/16)))
	}
}

// addLane writes a lane: its requests in the window, and how much of the whole it was
// held, if that is asked for.
func (t *timelineData) addLane(m *model, l *lane, detail window, covered bool) {
	data := laneMarks{}
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
	var shown []*history.Operation
	for _, op := range l.waits {
		if h := holds[op.Ordinal()]; detail.meets(op.Invoke.Time, op.Complete.Time) || h != nil && detail.meets(h.Start, h.End) {
			shown = append(shown, op)
		}
	}
	t.put(uint64(t.lock(l.lock)))
	t.put(uint64(t.client(l.client)))
	t.put(uint64(len(shown)))
	t.Requests += len(shown)
	last, token := int64(0), int64(0)
	for _, op := range shown {
		h := holds[op.Ordinal()]
		at, answered := micros(op.Invoke.Time), micros(op.Complete.Time)
		t.put(uint64(at - last))
		t.put(uint64(answered - at))
		last = at
		switch {
		case h != nil && h.End > h.Start:
			t.put(kindHold + t.indexOf(m.grantors(h)))
			t.put(uint64(max(0, micros(h.Start)-answered)))
			if h.End == history.Never {
				t.put(0)
			} else {
				t.put(uint64(micros(h.End)-max(micros(h.Start), answered)) + 1)
			}
			t.put(zigzag(h.Token - token))
			token = h.Token
		case op.OK():
			t.put(kindGranted)
		case op.Failed():
			t.put(kindRefused)
		default:
			t.put(kindUnknown)
		}
	}
	for _, op := range l.uses {
		if under := l.holdAt(op.Invoke); under != nil && !op.Failed() && believes(under) < op.Complete.Time {
			data.Late = appendSpan(data.Late, believes(under), op.Complete.Time)
		}
	}
	if covered {
		data.Cover = cover([]*lane{l}, m.whole(), coverParts)
	}
	if data.Late != nil || data.Beyond != nil || data.Extend != nil || data.Cover != "" {
		t.Marks[t.Lanes] = &data
	}
	t.Lanes++
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

// coverParts is into how many parts a cover divides the whole, where it is of few lanes.
const coverParts = 1500

// cover says of each of this many equal parts of a window how much of it the holds of
// lanes cover, and what was refused or had no known outcome: one digit for each, as
// [laneMarks] explains.
func cover(lanes []*lane, w window, parts int) string {
	covered, refused, unknown := make([]float64, parts+1), make([]bool, parts), make([]bool, parts)
	unit := float64(w.length()) / float64(parts)
	for _, l := range lanes {
		for _, h := range l.holds {
			from, to := float64(h.Start)/unit, float64(min(h.End, w.to))/unit
			for at := int(from); at <= int(to) && at < parts; at++ {
				covered[at] += math.Min(to, float64(at+1)) - math.Max(from, float64(at))
			}
		}
		for _, op := range l.waits {
			at := min(parts-1, int(float64(op.Complete.Time)/unit))
			refused[at] = refused[at] || op.Failed()
			unknown[at] = unknown[at] || op.Unknown()
		}
	}
	b := make([]byte, parts)
	for i := range b {
		digit := min(4, int(math.Ceil(covered[i]*4-0.001))) + 5*b2i(refused[i]) + 10*b2i(unknown[i])
		b[i] = "0123456789abcdefghij"[digit]
	}
	return string(b)
}

// maxLabels bounds the accesses of a resource that have a label.
const maxLabels = 200

// addResources writes the protected resources.
func (m *model) addResources(t *timelineData, focus, detail window) {
	locks := m.locksOfResources()
	for _, name := range m.resources() {
		var ops []*history.Operation
		for _, op := range m.accessesOf()[name] {
			if detail.meets(op.Complete.Time, op.Complete.Time) {
				ops = append(ops, op)
			}
		}
		slices.SortStableFunc(ops, func(a, b *history.Operation) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
		data := resourceData{Name: name, Locks: []int{}, Count: len(ops)}
		for _, lock := range locks[name] {
			data.Locks = append(data.Locks, t.lock(lock))
		}
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
			t.put(uint64(at - last))
			t.put(kind)
			last = at
			if op.OK() && focus.meets(op.Complete.Time, op.Complete.Time) && len(data.Labels) < maxLabels {
				if text := m.accessLabel(op); text != "" {
					data.Labels = append(data.Labels, accessLabel{at, say.Shorten(text, 28), bad})
				}
			}
		}
		t.Resources = append(t.Resources, data)
	}
}

// locksOfResources are the locks under which each resource was used.
func (m *model) locksOfResources() map[string][]string {
	if m.guards == nil {
		m.guards = map[string][]string{}
		known := map[[2]string]bool{}
		for _, l := range m.lanes() {
			for _, op := range l.uses {
				pair := [2]string{resourceOf(op), l.lock}
				if !known[pair] {
					known[pair] = true
					m.guards[pair[0]] = append(m.guards[pair[0]], l.lock)
				}
			}
		}
	}
	return m.guards
}

// addViolations lists the violations in order of time, with the lanes that each is
// about.
func (m *model) addViolations(t *timelineData, told *checker.Violation, index map[*lane]int) {
	for _, v := range m.distinct() {
		data := violationData{
			Words: m.markWords(v), Title: v.Explanation, Lock: v.Lock, Lanes: []int{},
			From: micros(m.since(v)), To: micros(max(v.From, min(v.Until, m.end))), Told: v == told,
		}
		for _, l := range m.lanesOf(v) {
			if at, ok := index[l]; ok {
				data.Lanes = append(data.Lanes, at)
			}
		}
		t.Violations = append(t.Violations, data)
	}
}

// lanesOf are the lanes that a violation is about.
func (m *model) lanesOf(v *checker.Violation) []*lane {
	var lanes []*lane
	add := func(lock, client string) {
		if l := m.laneAt(lock, client); l != nil && !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	holds := m.holdsOf(v)
	for k, h := range holds {
		if k == 2 && v.Kind == checker.DoubleGrant {
			break
		}
		add(h.Lock, client(h.Owner))
	}
	for _, index := range v.Events { // of what is about no hold: a client that asks in vain
		if e, ok := m.event(index); ok && len(holds) == 0 && e.Op == history.Acquire {
			add(e.Lock, client(e.LockOwner()))
		}
	}
	return lanes
}
