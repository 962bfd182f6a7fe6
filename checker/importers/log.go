package importers

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A Log is what clients have logged of their locks.
type Log struct {
	History *history.History
	Zero    time.Time // what the times of the history count from
	// Unit is the greatest unit of which all stamps are multiples. Each may be up to one of it before its time, so that
	// the clocks of several hosts are wrong by so much more than they say.
	Unit time.Duration
	// Notes say what was not read, and which lines contradict those before them.
	Notes []string

	kind  string          // what a line is called
	rows  []logRow        // in order
	times []time.Duration // of the rows in the history
}

// ReadLog reads what clients have logged of their locks, with wall clocks: a CSV file with a line of names, or JSON objects,
// one after another or in an array. docs/logs.md has the columns and events. Lines may be in any order; those of one stamp
// may have been written in any. Its errors name the line.
//
// Each attempt of a client to get a lock has an owner of its own, and each held is an access. What a log leaves out makes it
// prove less, and convicts no lock: a hold without a line that it is being released is certain until the last line that its
// client wrote of it, and no longer; or to the end of its lease, and the last line of its host, if other lines of its client
// say that it releases. A release by a client that does not hold the lock, as far as its lines say, is taken for one of a
// grant that was not logged: it is wrong if another client held the lock all the time. [checker.OfLogs] judge it.
func ReadLog(r io.Reader) (*Log, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	l := logReader{logRows: newLogRows(), hosts: map[string]time.Duration{}, releases: map[string]bool{}}
	if err := l.read(data); err != nil {
		return nil, err
	}
	slices.SortStableFunc(l.rows, func(a, b logRow) int { return cmp.Compare(a.at, b.at) })
	first := l.rows[0]
	l.first = first.at
	if end := l.rows[len(l.rows)-1]; end.at-first.at > logLongest {
		return nil, fmt.Errorf("%s: its time is decades after that of %s", l.where(end.line), l.where(first.line))
	}
	accesses := 0
	for i := range l.rows {
		if l.rows[i].event == held {
			accesses++
		}
	}
	l.events = make([]history.Event, 0, len(l.rows)+accesses+len(l.rows)/8)
	for _, lock := range l.locks {
		if lock.capacity > 0 {
			l.events = append(l.events, history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: lock.name, Kind: history.KindSemaphore, Capacity: int(lock.capacity)})
		}
	}
	slices.SortFunc(l.events, func(a, b history.Event) int { return strings.Compare(a.Lock, b.Lock) })
	kept := l.rows[:0]
	for from, to := 0, 0; from < len(l.rows); from = to {
		for to < len(l.rows) && l.rows[to].at == l.rows[from].at {
			to++
		}
		for _, row := range l.untied(l.rows[from:to]) {
			if err := l.takeRow(&row, row.at-first.at+logStart); err != nil {
				return nil, fmt.Errorf("%s: %w", l.where(row.line), err)
			}
			kept, l.times = append(kept, row), append(l.times, l.last)
		}
	}
	l.rows = kept
	if l.twice > 0 {
		l.note("%s: each is there before, and counts once", say.Count(l.twice, "line"))
	}
	l.finish()
	l.History, l.Zero, l.Unit = &history.History{Events: l.events}, time.Unix(0, int64(first.at-logStart)), l.unit
	return &l.Log, nil
}

// note adds to the notes, of which the first few are kept.
func (l *Log) note(format string, args ...any) {
	const most = 6
	switch l.Notes = append(l.Notes, fmt.Sprintf(format, args...)); {
	case len(l.Notes) > most:
		l.Notes = append(l.Notes[:most-1], "there is more of this kind")
	}
}

// Line says which line of the log an event is, and what that says; empty for an event that the log leaves out.
func (l *Log) Line(event int64) string {
	at := l.History.Events[event].Time
	if i, found := slices.BinarySearch(l.times, at); found {
		row := &l.rows[i]
		return fmt.Sprintf("%s %d: %s, %s %s", l.kind, row.line, time.Unix(0, int64(row.at)).UTC().Format("2006-01-02T15:04:05.999999999Z"), row.client.name, logEvents()[row.event])
	}
	return ""
}

// logStart is the stamp of the first line: what is not logged may have been before it.
const logStart = time.Millisecond

// A logLock is what all lines say of a lock.
type logLock struct {
	name           string
	capacity       int32
	permits, modes bool // it is a semaphore; a read-write lock
	leases         bool // it has leases
}

// A logReader makes operations of lines.
type logReader struct {
	logRows

	events    []history.Event
	hosts     map[string]time.Duration // when each wrote its last line
	releases  map[string]bool          // by the name of a client: that they begin is logged
	first     time.Duration            // the stamp of the first line
	last      time.Duration            // of the last line
	twice     int                      // lines that are there twice
	processes int
}

// A logOp is an operation that has no answer yet.
type logOp struct {
	history.Event // its invoke

	stamp time.Duration // of its line; it may have been sent up to a unit later
	index int           // of its invoke
}

// A logHold is what a client holds, or held.
type logHold struct {
	history.Event // the answer that granted it

	grant   int           // the index of that
	token   int64         // that it was granted with
	last    time.Duration // of its last line
	until   time.Duration // when its lease may be over
	over    time.Duration // and when it is, by the stamps
	unasked bool          // no line says with which lease it was asked for
	inner   int           // grants that were given inside it, and not given back
	blur    bool          // which of its releases was the last is not known
	ended   int32         // the line that ended it; 0 for none
}

// A logClient is one client of one lock.
type logClient struct {
	name, host string
	lock       *logLock
	works      int // the process that uses what the lock protects; -1 before it does
	process    int
	attempts   int
	asks       bool          // it logs its requests
	began      bool          // it has a line before
	last       time.Duration // of its last event
	asked, op  logOp         // a request that has no answer yet; a release or an extension
	hold       *logHold
}

// holds reports whether a client holds the lock, as far as its lines say.
func (c *logClient) holds() bool { return c.hold != nil && c.hold.ended == 0 }

// lineGap is between the stamps of two lines at the least, as several lines may have one stamp: an answer or a request that
// was not logged was shortly before the line that tells of it.
const lineGap = 4

func (l *logReader) takeRow(row *logRow, stamp time.Duration) error {
	c, at := row.client, max(stamp, l.last+lineGap)
	l.last, l.hosts[c.host] = at, at
	if !c.began {
		c.process = l.newProcess()
	}
	if row.event == unknown && c.asked.Op == "" && c.op.Op == "" && c.began {
		l.contradicts(row, "no request waits for an answer")
	}
	if row.lease > 0 && row.event == granted && c.asked.Op == "" {
		return fmt.Errorf("lease_ms is given with granted, and a lease counts from the request: log a line with the event request before, and write it there")
	}
	switch row.event {
	case request:
		c.asks = true
		l.giveUp(c, &c.asked, at-2)
		if c.op.Op == history.Release || !c.holds() {
			l.giveUp(c, &c.op, at-2)
		}
		l.request(c, at, stamp, row.lease, row)
	case granted:
		l.granted(c, at, row)
	case refused, unknown:
		l.answered(c, at, row)
	case held, extending, extended:
		l.works(c, at, stamp, row)
	case releasing, released:
		l.release(c, at, stamp, row)
	case lost:
		switch {
		case c.holds() && c.hold.unasked && c.lock.leases: // which may have been over for long
			l.letGo(c)
		case c.holds(): // else it was told before, by a refusal
			e := c.hold.Event
			l.record(c, e, at, history.OK, history.Lost)
			c.hold.ended = row.line
		}
	}
	c.began = true
	return nil
}

// contradicts notes that a line does not go with those before it.
func (l *logReader) contradicts(row *logRow, why string) {
	l.note("%s: %s of %s: %s", l.where(row.line), logEvents()[row.event], row.client.name, why)
}

func (l *logReader) newProcess() int {
	l.processes++
	return l.processes - 1
}

// record adds an event of the owner and process of another.
func (l *logReader) record(c *logClient, like history.Event, at time.Duration, part history.Type, op history.Op) *history.Event {
	c.last = max(c.last, at)
	e := history.Event{Time: at, Process: like.Process, Type: part, Op: op, Lock: c.lock.name, Clock: cmp.Or(c.host, "log"), Owner: like.Owner, Mode: like.Mode}
	if op != history.Access {
		e.Permits = like.Permits
	}
	l.events = append(l.events, e)
	return &l.events[len(l.events)-1]
}

// invoke begins an operation.
func (l *logReader) invoke(c *logClient, like history.Event, at, stamp time.Duration, op history.Op, lease time.Duration) logOp {
	if lease > 0 {
		lease = max(lease-lease%l.unit-(at-stamp), 1)
	}
	e := l.record(c, like, at, history.Invoke, op)
	e.Lease = lease
	return logOp{Event: *e, stamp: stamp, index: len(l.events) - 1}
}

// answer records how an operation ended.
func (l *logReader) answer(c *logClient, op *logOp, at time.Duration, part history.Type) {
	l.record(c, op.Event, at, part, op.Op)
	if part == history.Info { // what it asked for may happen still
		fresh := l.newProcess()
		if c.process == op.Process {
			c.process = fresh
		}
		if c.hold != nil && c.hold.Process == op.Process {
			c.hold.Process = fresh
		}
	}
	*op = logOp{}
}

// giveUp ends an operation whose answer was not logged, if there is one.
func (l *logReader) giveUp(c *logClient, op *logOp, at time.Duration) {
	if op.Op == history.Extend && c.hold != nil && op.Lease > 0 {
		c.hold.until = min(c.hold.until, op.Time+op.Lease)
	}
	if op.Op == history.Release && op.Owner != "" && c.hold != nil && c.hold.Owner == op.Owner && c.hold.ended == 0 {
		c.hold.ended = -1
	}
	if op.Owner == "" { // of an operation that is left out
		*op = logOp{}
	}
	if op.Op == history.Acquire { // it may have ended at any time since
		at = op.Time + 1
	}
	if op.Op != "" {
		l.answer(c, op, at, history.Info)
	}
}

// request begins an attempt to get the lock. A client that holds it still may try as well, and be refused.
func (l *logReader) request(c *logClient, at, stamp, lease time.Duration, row *logRow) {
	c.attempts++
	like := history.Event{Process: c.process, Owner: fmt.Sprintf("%s#%d", c.name, c.attempts)}
	if c.holds() {
		like.Process = l.newProcess()
	}
	l.setMode(c, row, &like)
	c.asked = l.invoke(c, like, at, stamp, history.Acquire, lease)
}

// setMode sets how the lock is asked for.
func (l *logReader) setMode(c *logClient, row *logRow, e *history.Event) {
	switch {
	case c.lock.permits:
		e.Mode, e.Permits = history.Permit, max(e.Permits, int(row.permits), 1)
	case row.mode != "":
		e.Mode = row.mode
	}
}

func (l *logReader) granted(c *logClient, at time.Duration, row *logRow) {
	asked := c.asked.Op != ""
	if !asked {
		l.giveUp(c, &c.op, at-2)
		l.request(c, at-1, at-1, 0, row)
	}
	l.setMode(c, row, &c.asked.Event)
	l.events[c.asked.index].Mode, l.events[c.asked.index].Permits = c.asked.Mode, c.asked.Permits
	if h := c.hold; c.holds() && row.token > 0 && row.token == h.token && at < h.until { // an inner grant, which has no hold of its own
		l.answer(c, &c.asked, at, history.Fail)
		h.inner, h.last = h.inner+1, at
		return
	}
	if c.op.Op == history.Extend {
		l.giveUp(c, &c.op, at-2)
	}
	l.letGo(c)
	token := row.token
	if shared := c.lock.permits || c.lock.modes; shared && !asked { // the order of such grants is that of requests
		token = 0
	}
	l.grant(c, at, token)
	if asked {
		l.prove(c)
		c.hold.unasked = false
	}
}

// grant begins a hold.
func (l *logReader) grant(c *logClient, at time.Duration, token int64) {
	ask := c.asked
	if c.process != ask.Process { // it asked beside what it held
		c.process = ask.Process
	}
	l.answer(c, &c.asked, at, history.OK)
	c.hold = &logHold{Event: ask.Event, grant: len(l.events) - 1, token: token, last: at, until: history.Never, over: history.Never}
	l.leased(c.hold, &ask)
	c.hold.unasked = true
}

// leased notes how long a lease is good that an acquire or an extension gave.
func (l *logReader) leased(h *logHold, op *logOp) {
	h.until, h.over = history.Never, history.Never
	if op.Lease > 0 {
		h.until, h.over = op.Time+op.Lease, op.stamp+op.Lease+4*l.unit+lineGap
	}
}

// prove makes the token of a hold count: else the grant may have been long before its answer, and over.
func (l *logReader) prove(c *logClient) { l.events[c.hold.grant].Token = c.hold.token }

// letGo notes that what a client holds may have been released at any time since its last line, as no line says so: it may
// have crashed.
func (l *logReader) letGo(c *logClient) {
	if c.holds() {
		e := c.hold.Event
		e.Process = l.newProcess()
		l.record(c, e, c.hold.last+1, history.Invoke, history.Release)
		c.hold.ended = -1
	}
}

// answered takes a refusal, or that there was no answer, for the one of what was asked last.
func (l *logReader) answered(c *logClient, at time.Duration, row *logRow) {
	part := history.Info
	if row.event == refused {
		part = history.Fail
	}
	if c.asked.Op == "" && c.op.Op == "" {
		if part == history.Fail {
			l.request(c, at-1, at-1, 0, row)
			l.answer(c, &c.asked, at, part)
		}
		return
	}
	if c.asked.Op != "" && (c.op.Op == "" || c.asked.Time > c.op.Time) {
		if c.hold == nil && part == history.Fail { // what it does as if it held the lock, it does without it
			c.hold = &logHold{Event: c.asked.Event, ended: row.line}
		}
		l.answer(c, &c.asked, at, part)
		return
	}
	op := c.op.Op
	left := c.op.Owner == ""
	if h := c.hold; op == history.Release && !left && part == history.Fail && h != nil && h.until == history.Never && h.Owner == c.op.Owner {
		e := &l.events[c.op.index] // its lease, which was not logged, was over at some time since its last line
		e.Process, e.Time = l.newProcess(), min(e.Time, h.last+2)
		c.op.Process = e.Process
	}
	if op == history.Release && !c.asks || c.holds() && c.hold.unasked { // of a request that was not logged; or the lease was over
		part = history.Info
	}
	if part == history.Info || left {
		if l.giveUp(c, &c.op, at); row.event == refused && op == history.Extend && !left {
			l.letGo(c)
		}
	} else if l.answer(c, &c.op, at, part); c.holds() {
		c.hold.ended = row.line
	}
}

// works takes note of a client that says that it holds the lock.
func (l *logReader) works(c *logClient, at, stamp time.Duration, row *logRow) {
	switch {
	case c.hold == nil && c.asked.Op != "": // that it was granted was not logged
		l.grant(c, at-2, 0)
	case c.hold == nil && row.event == extending: // of a hold that the log begins in, if it is there still
		l.giveUp(c, &c.op, at-2)
		c.op.Op = history.Extend
		return
	case c.hold == nil: // the log begins in the hold
		l.request(c, at-3, at-3, 0, row)
		l.grant(c, at-2, 0)
	case c.asked.Op != "": // of the hold before, or of one that it asked for and whose grant was not logged
		if c.holds() {
			c.hold.over = history.Never
		} else {
			l.contradicts(row, "it does not hold the lock, and waits for an answer")
		}
		if row.event == extending {
			l.giveUp(c, &c.op, at-2)
			c.op.Op = history.Extend
		}
		return
	case row.event != held && c.op.Op == history.Release: // a renewal beside the release, or after one whose answer was not logged
		if row.event == extending {
			l.giveUp(c, &c.op, at-2)
			c.op.Op = history.Extend
		}
		return
	}
	h := c.hold
	ended := h.ended > 0
	if ended && row.event != held { // a renewal that was late
		l.giveUp(c, &c.op, at-2)
		if row.event == extending {
			c.op.Op = history.Extend
		}
		l.contradicts(row, "it does not hold the lock"+l.since(h))
		return
	}
	if at < h.until && !ended {
		l.prove(c)
		h.last = at
	}
	switch row.event {
	case extending:
		l.giveUp(c, &c.op, at-2)
		l.extend(c, at, stamp, row.lease)
	case extended:
		logged := c.op.Op == history.Extend && c.op.Owner != ""
		if !logged {
			l.giveUp(c, &c.op, at-2)
			l.extend(c, c.last+1, c.last+1, 0) // its lease counts from an instant that is not known
		}
		op := c.op
		l.answer(c, &c.op, at, history.OK)
		l.leased(h, &op)
		h.unasked = !logged
		h.last, h.ended = at, 0
	default:
		if !ended && h.until <= at+l.unit && stamp <= h.over {
			return // in time or not
		}
		if c.works < 0 {
			c.works = l.newProcess()
		}
		e := h.Event
		e.Process = c.works
		l.record(c, e, at, history.Invoke, history.Access)
		l.record(c, e, at+1, history.OK, history.Access)
	}
}

// extend begins an extension, after which the lease may last longer.
func (l *logReader) extend(c *logClient, at, stamp, lease time.Duration) {
	over := c.hold.over
	c.op = l.invoke(c, c.hold.Event, at, stamp, history.Extend, lease)
	c.hold.over = history.Never
	if lease > 0 {
		c.hold.over = max(over, stamp+lease+4*l.unit+lineGap)
	}
}

// since names the line that ended a hold.
func (l *logReader) since(h *logHold) string {
	if h.ended > 0 {
		return ", which " + l.where(h.ended) + " ended"
	}
	return ""
}

func (l *logReader) release(c *logClient, at, stamp time.Duration, row *logRow) {
	if row.event == releasing {
		l.releases[c.name] = true // with the answer alone, one may be under way
	}
	if h := c.hold; c.holds() && h.inner > 0 { // of an inner grant
		if row.event == releasing || c.op.Op != history.Release {
			h.inner--
		}
		h.blur = true
		if l.giveUp(c, &c.op, at-2); row.event == releasing {
			c.op.Op = history.Release
		}
		return
	}
	if row.event == released && c.op.Op == history.Release {
		l.released(c, at, row)
		return
	}
	again := c.op.Op == history.Release && c.op.Owner != ""
	owner := c.op.Event
	l.giveUp(c, &c.op, at-3)
	from := at // it may have asked at any time since its last line, if it did not log that
	if row.event == released {
		from = c.last + 3
	}
	switch {
	case again: // it is sent once more
		owner.Process = l.newProcess()
		c.op = l.invoke(c, owner, from, stamp, history.Release, 0)
	case c.holds() && from < c.hold.until:
		if c.hold.unasked && c.lock.leases { // it may have been over by then
			from = min(from, c.hold.last+2)
		} else if row.event == releasing {
			l.prove(c)
		}
		c.op = l.invoke(c, c.hold.Event, from, stamp, history.Release, 0)
	default:
		if c.holds() {
			c.hold.ended = row.line // its lease is over
		} else if c.hold != nil && c.asked.Op == "" {
			l.contradicts(row, "it does not hold the lock"+l.since(c.hold))
		}
		if c.asked.Op == "" { // it was granted it at some time, of which no line tells
			begin := c.last
			if begin > 0 {
				begin++
			}
			l.request(c, begin, begin, 0, row)
		}
		like := c.asked.Event
		l.giveUp(c, &c.asked, at)
		like.Process = l.newProcess()
		c.op = l.invoke(c, like, from, stamp, history.Release, 0)
	}
	if row.event == released {
		l.released(c, at, row)
	}
}

// released takes note that a release was confirmed.
func (l *logReader) released(c *logClient, at time.Duration, row *logRow) {
	if c.op.Owner == "" { // of an inner grant
		c.op = logOp{}
		return
	}
	mine := c.hold != nil && c.hold.Owner == c.op.Owner
	l.answer(c, &c.op, at, history.OK)
	if mine {
		c.hold.ended = cmp.Or(max(c.hold.ended, 0), row.line)
	}
}

// finish ends what is held at the end of the log, and puts the events in order.
func (l *logReader) finish() {
	for _, c := range l.inOrder {
		l.giveUp(c, &c.asked, 0) // no line tells how long it waited
		if !c.holds() || c.op.Op == history.Release && c.op.Owner != "" {
			continue
		}
		h := c.hold
		if h.until != history.Never && h.until > h.last && l.releases[c.name] && !h.blur { // it has crashed, unless its host wrote no more lines, or not all have arrived
			h.last = min(h.until, max(h.last, l.hosts[c.host]))
		}
		l.letGo(c)
	}
	slices.SortStableFunc(l.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range l.events {
		l.events[i].Index = int64(i)
	}
}

// untied puts the lines of one stamp, of which any may have been the first, in the order that convicts the fewest locks. A
// client goes on until it asks for the lock or is granted it; then the client comes whose next line is of the lowest rank, and
// of grants the one with the lowest token.
func (l *logReader) untied(rows []logRow) (all []logRow) {
	if len(rows) == 1 {
		return rows
	}
	var clients [][]logRow
	at := map[*logClient]int{}
	for _, row := range rows {
		n, ok := at[row.client]
		if !ok {
			n = len(clients)
			at[row.client], clients = n, append(clients, nil)
		}
		clients[n] = append(clients[n], row)
	}
	for i, of := range clients {
		clients[i] = l.inOrderOf(of[0].client, of)
	}
	rank := func(of []logRow) (rank int, token int64) {
		switch {
		case of[0].event == request:
			return 1, 0
		case of[0].event != granted:
			return 0, 0
		case slices.ContainsFunc(of, func(r logRow) bool { return r.event == releasing || r.event == released || r.event == lost }):
			return 2, of[0].token // the hold is over at this stamp
		default:
			return 3, of[0].token
		}
	}
	for len(clients) > 0 {
		next := 0
		for i := range clients {
			a, tokenA := rank(clients[i])
			b, tokenB := rank(clients[next])
			if tokenA > 0 && tokenB > 0 {
				a, b = cmp.Compare(tokenA, tokenB), 0
			}
			if a < b {
				next = i
			}
		}
		all = append(all, clients[next][0])
		if clients[next] = clients[next][1:]; len(clients[next]) == 0 {
			clients = slices.Delete(clients, next, next+1)
		}
	}
	return all
}

// A logState is what a client has asked for and holds, as far as it matters to the order of its lines.
type logState struct {
	holds bool
	open  history.Op
}

// after is the state after a line, and how well that goes with the one before: 2 well, 1 if what it answers was not logged,
// 0 not at all.
func (s logState) after(e logEvent) (next logState, fits int) {
	answers := func(op history.Op) int {
		switch {
		case s.open == op:
			return 2
		case s.open == "" && s.holds == (op != history.Acquire):
			return 1
		default:
			return 0
		}
	}
	well := func(is bool) int {
		if is {
			return 2
		}
		return 0
	}
	switch e {
	case request:
		return logState{s.holds, history.Acquire}, well(!s.holds && s.open == "")
	case granted:
		return logState{true, ""}, answers(history.Acquire)
	case refused, unknown:
		if s.open == "" {
			return s, 1
		}
		return logState{s.holds && s.open == history.Extend && e == unknown, ""}, 2
	case extending:
		return logState{s.holds, history.Extend}, well(s.holds && s.open == "")
	case extended:
		return logState{s.holds, ""}, answers(history.Extend)
	case releasing:
		return logState{s.holds, history.Release}, well(s.holds && s.open == "")
	case released:
		return logState{false, ""}, answers(history.Release)
	case lost:
		return logState{false, s.open}, well(s.holds)
	default:
		return s, well(s.holds && s.open != history.Release)
	}
}

// inOrderOf puts the lines of a client that have one stamp in an order that makes sense: that of the file, if it does. A line
// that is there again, where that makes no sense, counts once.
func (l *logReader) inOrderOf(c *logClient, rows []logRow) []logRow {
	if len(rows) == 1 {
		return rows
	}
	has := func(events ...logEvent) bool {
		return slices.ContainsFunc(rows, func(r logRow) bool { return slices.Contains(events, r.event) })
	}
	// What it says of a hold is of the one that begins at this stamp, if no line ends the one before; so it is of an inner grant.
	inner := func(r logRow) bool { return c.holds() && r.event == granted && r.token > 0 && r.token == c.hold.token }
	ends := has(releasing, released, lost) || !has(granted)
	begin := logState{holds: c.holds() && c.hold.until > rows[0].at-l.first+logStart && ends && !slices.ContainsFunc(rows, inner), open: c.asked.Op}
	switch op := c.op.Op; {
	case c.asked.Op != "" || op == "":
	case has(refused, unknown) || op == history.Release && has(released) || op == history.Extend && has(extended):
		begin.open = op
	default: // its answer was not logged
		begin.holds = begin.holds && op != history.Release
	}
	begins := []logState{begin}
	if !c.began { // or the log begins in a hold
		begins = append(begins, logState{holds: true})
	}
	for _, s := range begins {
		sense, token := true, int64(0)
		for _, row := range rows {
			var fits int
			s, fits = s.after(row.event)
			sense, token = sense && fits == 2 && (row.token == 0 || row.token > token), max(token, row.token)
		}
		if sense {
			return rows
		}
	}
	all, sense := inBestOrder(begins[0], rows)
	if !sense {
		once := slices.Clone(rows)
		for i := 0; i < len(once); i++ {
			same := func(r logRow) bool { return r.sum == once[i].sum && r.event == once[i].event }
			once = append(once[:i+1], slices.DeleteFunc(once[i+1:], same)...)
		}
		l.twice += len(rows) - len(once)
		all, _ = inBestOrder(begins[0], once)
	}
	return all
}

// inBestOrder takes of the lines that fit best the one that comes first by its event, and its token.
func inBestOrder(s logState, rows []logRow) (all []logRow, sense bool) {
	rows, sense = slices.Clone(rows), true
	for len(rows) > 0 {
		best := 0
		for i, row := range rows {
			_, fits := s.after(row.event)
			_, most := s.after(rows[best].event)
			if cmp.Or(cmp.Compare(most, fits), cmp.Compare(row.event, rows[best].event), cmp.Compare(row.token, rows[best].token)) < 0 {
				best = i
			}
		}
		var fits int
		s, fits = s.after(rows[best].event)
		sense = sense && fits > 0
		all, rows = append(all, rows[best]), slices.Delete(rows, best, best+1)
	}
	return all, sense
}
