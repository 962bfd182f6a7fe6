package importers

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Log is what clients have logged of their locks.
type Log struct {
	History *history.History
	Zero    time.Time     // what the times of the history count from
	Unit    time.Duration // of which all stamps of a host are multiples, of the host with the coarsest
	Notes   []string      // say what was not read, and which lines contradict those before them

	// Refusals says that it has lines of requests that were refused, or of which the outcome is unknown.
	Refusals bool

	kind      string // what a line is called
	rows      []logRow
	hosts     map[string]*logHost
	locks     map[string]*logLock
	clients   map[[3]string]*logClient // by host, name and lock
	inOrder   []*logClient
	columns   []logColumn
	names     map[string]bool   // of the columns that there are
	text      map[string]string // the line that is read
	has       [2]bool           // the lines have a host, and a lock
	end       time.Duration     // its last line
	processes int
	lines     []*logRow // that the events are of; nil of those that it leaves out
}

// ReadLog reads what clients have logged of their locks, with wall clocks: a CSV file with a line of names, or JSON objects,
// one after another or in an array. docs/logs.md has the columns and events, and what each proves. Its errors name the line.
// [checker.OfLogs] judge the history.
//
// What a line tells of was in [stamp, stamp+unit). So an operation is invoked at the first instant and answered at the last at
// which it may have been; a hold is certain for what is left between its grant and its end, and the unit is the drift of its
// lease. What may have been otherwise if a line was lost is of unknown outcome.
func ReadLog(r io.Reader) (*Log, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	l := &Log{History: &history.History{}, hosts: map[string]*logHost{}, locks: map[string]*logLock{}, clients: map[[3]string]*logClient{}, columns: logColumns(), names: map[string]bool{}, text: map[string]string{}}
	if err := l.read(data); err != nil {
		return nil, err
	}
	for i := range l.rows {
		l.rows[i].at -= l.rows[i].at % l.rows[i].client.host.unit
	}
	slices.SortFunc(l.rows, func(a, b logRow) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.client.number, b.client.number), cmp.Compare(a.line, b.line))
	})
	l.Refusals = slices.ContainsFunc(l.rows, func(row logRow) bool { return row.event == refused || row.event == unknown })
	first, last := l.rows[0], l.rows[len(l.rows)-1]
	if last.at-first.at > logLongest {
		return nil, fmt.Errorf("%s: its time is decades after that of %s", l.where(&last), l.where(&first))
	}
	start := first.at - logStart
	l.Zero, l.end = time.Unix(0, int64(start)), last.at-start
	l.History.Events = make([]history.Event, 0, len(l.rows)+len(l.rows)/4) // a million lines take a half of the memory so
	l.declare()
	for from, to := 0, 0; from < len(l.rows); from = to {
		c, at := l.rows[from].client, l.rows[from].at
		for ; to < len(l.rows) && l.rows[to].client == c && l.rows[to].at == at; to++ {
			l.rows[to].at = at - start
		}
		if err := l.takeAll(c, l.rows[from:to]); err != nil {
			return nil, err
		}
	}
	for _, c := range l.inOrder {
		l.noAnswer(c)
		l.finish(c, nil)
	}
	events := l.History.Events
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	lines := make([]*logRow, len(events))
	for i := range events {
		lines[i], events[i].Index = l.lines[events[i].Index], int64(i)
	}
	l.lines = lines
	return l, nil
}

// note adds to the notes, of which the first few are kept.
func (l *Log) note(format string, args ...any) {
	const most = 6
	if l.Notes = append(l.Notes, fmt.Sprintf(format, args...)); len(l.Notes) > most {
		l.Notes = append(l.Notes[:most-1], "there is more of this kind")
	}
}

// Line says which line of the log an event is, and what that says; empty for an event that the log leaves out.
func (l *Log) Line(event int64) string {
	if row := l.lines[event]; row != nil {
		return fmt.Sprintf("%s: %s, %s %s", l.where(row), l.Zero.Add(row.at).UTC().Format("2006-01-02T15:04:05.999999999Z"), row.client.name, logEvents()[row.event])
	}
	return ""
}

// logStart is the stamp of the first line: what is not logged may have been before it.
const logStart = time.Millisecond

// A logHold is what a client asked for, and holds or held.
type logHold struct {
	owner string
	mode  history.Mode

	asked, granted *logRow       // nil where they were not logged
	lines          []*logRow     // of work and extensions
	last           time.Duration // of the lines that show that it was held, the last
	known          bool          // its lease is, or that it has none
	answered       time.Duration // the last answer in the history
	inner          bool          // it was granted again inside: which release ends it is not known
	ended          bool
	over           time.Duration // the line that told its end, after which no work may be; 0 for none
}

// until is the last instant at which what a line tells of may have been.
func (l *Log) until(row *logRow) time.Duration { return row.at + row.client.host.unit - 1 }

// declare says of each lock what it is, with the greatest unit of its hosts as drift.
func (l *Log) declare() {
	for _, c := range l.inOrder {
		l.Unit, c.lock.unit = max(l.Unit, c.host.unit), max(c.lock.unit, c.host.unit)
	}
	for _, name := range slices.Sorted(maps.Keys(l.locks)) {
		e := history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: name, Kind: history.KindMutex, Drift: l.locks[name].unit}
		if l.locks[name].modes {
			e.Kind = history.KindRW
		}
		l.History.Events, l.lines = append(l.History.Events, e), append(l.lines, nil)
	}
}

// takeAll takes the lines of a client that have one stamp, of which one that is there again counts once. They are in the order of
// the file, unless that is in none: then in the order of a hold, if they are of one.
func (l *Log) takeAll(c *logClient, rows []logRow) error {
	if c.host.shuffled {
		slices.SortFunc(rows, func(a, b logRow) int { return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(a.line, b.line)) })
	}
	grants := slices.ContainsFunc(rows, func(r logRow) bool { return r.event <= granted })
	rows = slices.DeleteFunc(rows, func(r logRow) bool { return grants && r.event == held }) // in that hold, or before
	lines, several := len(rows), false
	rows = slices.CompactFunc(rows, func(a, b logRow) bool {
		several = several || a.event == b.event && (a.token != b.token || a.lease != b.lease || a.mode != b.mode)
		return a.event == b.event
	})
	if c.host.shuffled {
		more, again := rows[len(rows)-1].event > granted, len(rows) < lines
		open := c.sent != nil || c.hold != nil && (!c.hold.ended || c.hold.inner && more) || again && (more || c.asked != nil)
		if several || len(rows) > 1 && grants && open {
			l.lose(c, &rows[0])
			c.token = slices.MaxFunc(rows, func(a, b logRow) int { return cmp.Compare(a.token, b.token) }).token
			return nil
		}
	}
	for i := range rows {
		if err := l.take(c, &rows[i]); err != nil {
			return fmt.Errorf("%s: %w", l.where(&rows[i]), err)
		}
		c.before = rows[i].at
	}
	return nil
}

// lose notes that nothing tells what a client holds from a line on, until it is granted what has another token.
func (l *Log) lose(c *logClient, row *logRow) {
	h := l.begin(c, nil, nil, row.at)
	l.op(c, history.Acquire, row.at, l.until(row), nil, nil, history.Event{Type: history.Info})
	h.ended, h.inner, c.before = true, true, row.at
}

func (l *Log) take(c *logClient, row *logRow) error {
	h := c.hold
	switch row.event {
	case request:
		l.noAnswer(c)
		c.asked = row
		return nil
	case granted:
		if row.lease > 0 && c.asked == nil {
			return errors.New("lease_ms is given with granted, and a lease counts from the request: log a line with the event request before, and write it there")
		}
		if h != nil && (h.inner || !h.ended || c.vague || !c.logs[request] || c.before == row.at) && row.token > 0 && row.token == c.token { // in its hold
			if h.inner, h.last = true, row.at; c.asked != nil {
				h.lines = append(h.lines, c.asked) // which may have prolonged the lease
			}
			c.asked = nil
			return nil
		}
		inner := h != nil && !h.ended && h.granted == nil // perhaps
		c.token = row.token
		l.begin(c, c.asked, row, row.at).inner = inner
		return nil
	case refused, unknown:
		l.answer(c, row)
		return nil
	default:
	}
	if c.asked != nil { // that it was granted was not logged
		h = l.begin(c, c.asked, nil, row.at)
	}
	switch {
	case h != nil && h.ended && h.inner:
		return nil
	case h != nil && h.ended && row.event == held:
		if h.over > 0 && row.at > h.over {
			l.work(c, row)
		}
		return nil
	case h == nil || h.ended: // of a hold whose grant was not logged
		if h != nil {
			l.note("%s: %s of %s: it does not hold the lock", l.where(row), logEvents()[row.event], c.name)
		}
		if h != nil && row.event != releasing {
			return nil
		}
		l.hold(c, nil, nil, c.before)
	}
	l.use(c, row)
	return nil
}

// use takes a line of a client that holds.
func (l *Log) use(c *logClient, row *logRow) {
	h, sent := c.hold, c.sent
	extends := sent != nil && sent.event == extending
	// An extension prolongs a lease for a time that is not known, if it does not say for how long, or since when.
	vague := c.lock.leases && (row.event == extended && !extends || row.event == extending && row.lease == 0 && (h.asked == nil || h.asked.lease > 0))
	switch {
	case h.inner && (row.event == releasing || row.event == released), vague:
		if row.event == releasing {
			h.last = row.at
		}
		l.lose(c, row)
	case row.event == held:
		if sent == nil || extends {
			h.last = row.at
		}
		h.lines = append(h.lines, row)
	case row.event == extending:
		if l.noAnswer(c); !h.ended { // else it is beside the release
			h.lines, c.sent = append(h.lines, row), row
		}
	case row.event == extended && extends:
		sent.answer, h.last, h.known, c.sent = row, max(h.last, sent.at), h.known || sent.lease > 0, nil
	case row.event == extended:
	case row.event == releasing:
		l.noAnswer(c)
		c.sent = row
	default: // released, lost
		if extends {
			c.sent = nil
		}
		l.finish(c, row)
	}
}

// begin ends what a client has sent and holds, and begins a hold.
func (l *Log) begin(c *logClient, asked, granted *logRow, at time.Duration) *logHold {
	c.asked = nil
	l.noAnswer(c)
	l.finish(c, nil)
	return l.hold(c, asked, granted, at)
}

func (l *Log) hold(c *logClient, asked, granted *logRow, at time.Duration) *logHold {
	c.attempts++
	h := &logHold{owner: fmt.Sprintf("%s#%d", c.name, c.attempts), asked: asked, granted: granted, last: at, known: asked != nil || c.lock.leaseless()}
	for _, row := range []*logRow{asked, granted} {
		if row != nil {
			h.mode = cmp.Or(row.mode, h.mode)
		}
	}
	if c.lock.modes {
		h.mode = cmp.Or(h.mode, history.Read) // which claims the least
	}
	c.hold = h
	return h
}

// noAnswer ends what a client has sent and got no answer for.
func (l *Log) noAnswer(c *logClient) {
	if c.asked != nil {
		l.answer(c, c.asked)
	}
	if c.sent != nil && c.sent.event == releasing {
		l.finish(c, nil)
	}
	c.sent = nil
}

// answer takes a refusal, or that there was no answer, for the one of what was asked last. A request without an answer has
// itself for one: no line tells how long it waited.
func (l *Log) answer(c *logClient, row *logRow) {
	before, sent := c.hold, c.sent
	switch {
	case c.asked != nil:
		e := history.Event{Type: history.Info, Lease: c.asked.good()}
		if row.event == refused {
			e.Type = history.Fail
		}
		c.vague = c.vague || row.event != refused
		h := l.hold(c, c.asked, nil, 0)
		l.op(c, history.Acquire, c.asked.at, l.until(row), c.asked, row, e)
		if h.ended, c.asked = true, nil; before != nil {
			c.hold = before
		} else if e.Type == history.Fail { // what it does as if it held the lock, it does without it
			h.over = row.at
		}
	case sent == nil:
	case sent.event == releasing:
		l.finish(c, row)
	default:
		if sent.answer, c.sent = row, nil; row.event == refused {
			if c.logs[releasing] { // it had not released it before
				before.last = max(before.last, sent.at)
			}
			l.finish(c, row)
		}
	}
}

// finish puts a hold into the history once it is known how it ended: by a line, or nil where none tells. Its grant is stated
//   - as it is, if a later stamp shows that it was held;
//   - as one that may have ended at its own stamp, if none does;
//   - as one of unknown outcome, which only a confirmed release or extension proves, if it or its lease was not logged.
func (l *Log) finish(c *logClient, by *logRow) {
	h, sent := c.hold, c.sent
	if c.sent = nil; h == nil || h.ended {
		return
	}
	h.ended, c.vague = true, c.vague || by == nil || by.event != released
	grant := history.Event{Type: history.OK, Lease: h.asked.good()}
	at, answer, notice := h.last, history.Type(""), false              // until when it was held for certain, if its lease lasted, and what ended it
	if sent != nil && (h.known || by != nil && by.event == released) { // else it may have been sent after the lease
		at = sent.at
	}
	switch {
	case by == nil:
	case by.event == released:
		answer = history.OK
	case sent != nil && (by.event == unknown || by.event == refused): // the line of a release before it may be lost
		answer = history.Info
	case by.event == lost && h.known && (len(h.lines) == 0 || h.lines[len(h.lines)-1].at < by.at):
		at, notice = by.at, true
	}
	first, next := cmp.Or(h.asked, h.granted), at
	extension := slices.IndexFunc(h.lines, func(r *logRow) bool { return r.event != held })
	if extension >= 0 {
		next = min(next, h.lines[extension].at)
	}
	firm := h.granted != nil && (h.asked != nil || c.lock.leaseless() || answer == history.OK)
	sure := firm && next > h.granted.at
	if firm && (h.asked != nil || !c.lock.modes) { // else the order of grants is not that of these lines
		grant.Token = h.granted.token
	}
	switch {
	case sure:
		l.op(c, history.Acquire, first.at, l.until(h.granted), first, h.granted, grant)
	case firm && extension < 0:
		grant.Expires = l.until(h.granted) + 1
		if grant.Lease > 0 {
			grant.Expires = min(grant.Expires, h.asked.at+grant.Lease)
		} else if grant.Lease = l.end; by != nil && (by.event == released || by.event == refused) {
			grant.Lease = max(by.at-h.granted.at, 1) // after that another client may have it
		}
		l.op(c, history.Acquire, first.at, l.until(h.granted), first, h.granted, grant)
		return
	case first == nil && extension < 0 && answer != history.OK:
		return
	default:
		from, to := next-2, next-1
		if first != nil {
			to = min(to, l.until(cmp.Or(h.granted, h.asked)))
			from = min(first.at, to-1)
		}
		l.op(c, history.Acquire, from, to, first, h.granted, history.Event{Type: history.Info, Lease: grant.Lease})
	}
	switch over := l.uses(c, sure); {
	case notice:
		l.record(c, by.at, by, history.Event{Process: c.process, Type: history.OK, Op: history.Lost})
	case answer == history.OK && at > over: // of another grant, perhaps
		l.hold(c, nil, nil, at)
		l.finish(c, by)
		c.hold = h
	case answer == "":
		l.op(c, history.Release, at, 0, sent, nil, history.Event{})
	default:
		l.op(c, history.Release, at, l.until(by), sent, by, history.Event{Type: answer})
	}
	if sure && by != nil && (by.event != refused || sent != nil) { // a refusal alone may answer an extension of the hold before
		h.over = by.at
	}
}

// uses puts the work and the extensions of a hold into the history, and returns when its lease was over at the latest. Work
// counts from the stamp after the grant on, and not while an extension may have prolonged the lease that was not answered.
func (l *Log) uses(c *logClient, sure bool) (over time.Duration) {
	h, open := c.hold, time.Duration(-1)
	over = h.asked.over()
	for _, row := range h.lines {
		answer, e := row.answer, history.Event{Type: history.Info, Lease: row.good()}
		switch {
		case row.event == held:
			if sure && row.at > h.granted.at && row.at > open {
				l.work(c, row)
			}
			continue
		case answer != nil && answer.event == extended:
			e.Type, over = history.OK, row.over()
		default:
			open, over = max(open, row.over()), max(over, row.over())
		}
		l.op(c, history.Extend, row.at, l.until(cmp.Or(answer, row)), row, answer, e)
	}
	return over
}

// work notes that a client used what the lock protects. If it does not log its requests, a grant of which a line was lost may
// have been before that.
func (l *Log) work(c *logClient, row *logRow) {
	if c.works < 0 {
		c.works, l.processes = l.processes, l.processes+1
	}
	if row.at > c.worked && c.logs[request] {
		c.worked = l.until(row) // what it does at the same stamp tells no more
		l.record(c, row.at, row, history.Event{Process: c.works, Type: history.Invoke, Op: history.Access})
		l.record(c, c.worked, row, history.Event{Process: c.works, Type: history.OK, Op: history.Access})
	}
}

// op notes an operation of the owner that holds, with its lines, and how it ended; it has no end if that has no type. Two answers
// to one owner must not have one stamp: of these one may as well have come later.
func (l *Log) op(c *logClient, op history.Op, from, to time.Duration, sent, got *logRow, e history.Event) {
	if c.process < 0 || from <= c.busy { // what had no answer may happen still
		c.process, l.processes = l.processes, l.processes+1
	}
	l.record(c, from, sent, history.Event{Process: c.process, Type: history.Invoke, Op: op, Lease: e.Lease})
	if c.busy = history.Never; e.Type == "" {
		return
	}
	if to <= c.hold.answered {
		to = c.hold.answered + c.host.unit
	}
	if c.hold.answered = to; e.Type != history.Info {
		c.busy = to
	}
	l.record(c, to, got, history.Event{Process: c.process, Type: e.Type, Op: op, Token: e.Token, Expires: e.Expires})
}

// record adds an event of the owner that holds.
func (l *Log) record(c *logClient, at time.Duration, row *logRow, e history.Event) {
	e.Time, e.Lock, e.Clock, e.Owner, e.Mode = at, c.lock.name, cmp.Or(c.host.name, "log"), c.hold.owner, c.hold.mode
	e.Index = int64(len(l.lines)) // until it has one
	l.History.Events, l.lines = append(l.History.Events, e), append(l.lines, row)
}
