package importers

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// The events of a log: what a client notes of a lock.
const (
	logRequest   = "request"   // it asks for the lock
	logGranted   = "granted"   // the answer is yes
	logRefused   = "refused"   // the answer is no, also to an extension or a release
	logUnknown   = "unknown"   // there was no answer, also to an extension or a release
	logExtending = "extending" // it asks for an extension
	logExtended  = "extended"  // the answer is yes
	logHeld      = "held"      // it still works with the lock
	logReleasing = "releasing" // it asks for the release
	logReleased  = "released"  // the release is done
	logLost      = "lost"      // it was told that it holds the lock no longer
)

func logEvents() []string {
	return []string{logRequest, logGranted, logRefused, logUnknown, logExtending, logExtended, logHeld, logReleasing, logReleased, logLost}
}

// Log reads what clients have logged of their locks, with wall clocks: a CSV file with a line of names, or JSON objects,
// one after another or in an array. The columns are
//
//	time      RFC 3339, or Unix time in seconds, milliseconds, microseconds or nanoseconds
//	client    who uses the lock: a worker, a thread, a task
//	event     request, granted, refused, unknown, extending, extended, held, releasing, released, lost
//	host      whose clock stamped the line; without it, all lines are of one clock
//	lock      its name; without it, all lines are of one lock
//	lease_ms  what a request or an extension asks for; without it, a hold has no lease
//	token     the fencing token of a grant
//
// and others are ignored. Lines may be in any order. What a log leaves out makes it prove less, and convicts no lock:
// a hold without a line that it is being released is certain until the last line that its client wrote of it, and no
// longer; or to the end of its lease, and the last line of its host, if other lines of its client
// say that it releases. Lines of one stamp may
// have been written in any order. [checker.OfLogs] judge it. Its errors name the line.
func Log(r io.Reader) (*history.History, error) {
	rows, err := logRows(r)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b logRow) int { return a.time.Compare(b.time) })
	rows = untied(rows)
	l := logReader{clients: map[[3]string]*logClient{}, hosts: map[string]time.Duration{}, releases: map[[2]string]bool{}, unit: unitOf(rows)}
	for i := range rows {
		if at := rows[i].time.Sub(rows[0].time); at > logLongest {
			return nil, fmt.Errorf("line %d: its time is decades after that of line %d", rows[i].line, rows[0].line)
		} else if err := l.take(&rows[i], at+logStart); err != nil {
			return nil, fmt.Errorf("line %d: %w", rows[i].line, err)
		}
	}
	return &history.History{Events: l.history()}, nil
}

// untied puts the lines of one stamp, of which any may have been the first, in the order that convicts the fewest locks: what
// ends a hold comes before all else, then one after another the holds that begin and end there, and last what begins a hold; but
// grants in the order of their tokens.
func untied(rows []logRow) (all []logRow) {
	for from, to := 0, 0; from < len(rows); from = to {
		to = from + 1
		for to < len(rows) && rows[to].time.Equal(rows[from].time) {
			to++
		}
		var keys [][3]string
		lines := map[[3]string][]logRow{}
		for _, row := range rows[from:to] {
			if lines[row.key()] == nil {
				keys = append(keys, row.key())
			}
			lines[row.key()] = append(lines[row.key()], row)
		}
		var begun [][]logRow // of each client, all from its first request or grant on
		for _, key := range keys {
			of := lines[key]
			first := slices.IndexFunc(of, logRow.begins)
			if first < 0 {
				first = len(of)
			}
			all = append(all, of[:first]...)
			begun = append(begun, of[first:])
		}
		for {
			begun = slices.DeleteFunc(begun, func(of []logRow) bool { return len(of) == 0 })
			if len(begun) == 0 {
				break
			}
			next := 0
			for i := range begun {
				if sooner(begun[i], begun[next]) {
					next = i
				}
			}
			n := len(oneHold(begun[next]))
			all, begun[next] = append(all, begun[next][:n]...), begun[next][n:]
		}
	}
	return all
}

// oneHold are the lines until the client asks for the lock again.
func oneHold(rows []logRow) []logRow {
	for i := 1; i < len(rows); i++ {
		if rows[i].begins() && rows[i-1].event != logRequest {
			return rows[:i]
		}
	}
	return rows
}

// sooner reports whether of two holds that begin at one stamp the first is to be taken for the first.
func sooner(a, b []logRow) bool {
	a, b = oneHold(a), oneHold(b)
	granted := func(r logRow) bool { return r.event == logGranted }
	if x, y := slices.ContainsFunc(a, granted), slices.ContainsFunc(b, granted); !x || !y {
		return y
	}
	if x, y := tokenOf(a), tokenOf(b); x != 0 && y != 0 {
		return x < y
	}
	return slices.ContainsFunc(a, logRow.ends) && !slices.ContainsFunc(b, logRow.ends)
}

// tokenOf is the token of the first grant; 0 if it has none.
func tokenOf(rows []logRow) int64 {
	if at := slices.IndexFunc(rows, func(r logRow) bool { return r.event == logGranted }); at >= 0 {
		return rows[at].token
	}
	return 0
}

// unitOf is the greatest unit of which all stamps are multiples: those of a coarse clock tell no more of a lease.
func unitOf(rows []logRow) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if !slices.ContainsFunc(rows, func(r logRow) bool { return r.time.Nanosecond()%int(unit) != 0 }) {
			return unit
		}
	}
	return 1
}

// logStart is the stamp of the first line: what is not logged may have been before it.
const logStart = time.Millisecond

// logLongest is the longest time that is taken for one, between two lines and as a lease.
const logLongest = history.MaxTime / 2

// A logRow is a line of a log.
type logRow struct {
	line                      int
	time                      time.Time
	host, client, lock, event string
	lease                     time.Duration
	token                     int64
}

// key tells a client of a lock from all others.
func (r logRow) key() [3]string { return [3]string{r.host, r.client, r.lock} }

func (r logRow) begins() bool { return r.event == logRequest || r.event == logGranted }

func (r logRow) ends() bool {
	return r.event == logReleasing || r.event == logReleased || r.event == logLost
}

func logRows(r io.Reader) ([]logRow, error) {
	read := bufio.NewReader(r)
	if mark, err := read.Peek(3); err == nil && string(mark) == "\ufeff" { // spreadsheets write it
		_, _ = read.Discard(3)
	}
	first, err := firstByte(read)
	if err != nil {
		return nil, err
	}
	var rows []logRow
	add := func(line int, field func(string) string) error {
		row, err := newLogRow(line, field)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		rows = append(rows, row)
		return nil
	}
	if first == '{' || first == '[' {
		return rows, jsonRows(read, add)
	}
	table := csv.NewReader(read)
	header, err := table.Read()
	if err != nil {
		return nil, fmt.Errorf("read the names of the columns: %w", err)
	}
	for i := range header {
		header[i] = strings.ToLower(strings.TrimSpace(header[i]))
	}
	for _, name := range []string{"time", "client", "event"} {
		if !slices.Contains(header, name) {
			return nil, fmt.Errorf("line 1: there is no column %q: name the columns time, client, event, and host, lock, lease_ms and token as far as there are some; found %s", name, strings.Join(header, ", "))
		}
	}
	for i, name := range header {
		if name != "" && slices.Contains(header[:i], name) {
			return nil, fmt.Errorf("line 1: there are two columns %q", name)
		}
	}
	for {
		record, err := table.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := table.FieldPos(0)
		err = add(line, func(name string) string {
			if at := slices.Index(header, name); at >= 0 {
				return strings.TrimSpace(record[at])
			}
			return ""
		})
		if err != nil {
			return nil, err
		}
	}
}

// firstByte looks at the first byte that is no space.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return 0, errors.New("the log is empty")
		case err != nil:
			return 0, err
		case !strings.ContainsRune(" \t\r\n", rune(b)):
			return b, r.UnreadByte()
		}
	}
}

// jsonRows numbers objects, as an array need not have lines.
func jsonRows(r io.Reader, add func(line int, field func(string) string) error) error {
	values, n := json.NewDecoder(r), 0
	values.UseNumber()
	for {
		var v any
		if err := values.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("after object %d: %w", n, err)
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			object, ok := v.(map[string]any)
			if n++; !ok {
				return fmt.Errorf("object %d is no JSON object", n)
			}
			fields := map[string]string{} // names are as in CSV, small and capital letters alike
			for name, v := range object {
				if v != nil {
					fields[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(fmt.Sprint(v))
				}
			}
			err := add(n, func(name string) string { return fields[name] })
			if err != nil {
				return err
			}
		}
	}
}

func newLogRow(line int, field func(string) string) (row logRow, err error) {
	row = logRow{line: line, host: field("host"), client: field("client"), lock: cmp.Or(field("lock"), JepsenLock), event: strings.ToLower(field("event"))}
	if row.client == "" {
		return row, errors.New("it names no client")
	}
	if !slices.Contains(logEvents(), row.event) {
		return row, fmt.Errorf("event is %q: give one of %s", row.event, strings.Join(logEvents(), ", "))
	}
	if row.time, err = logTime(field("time")); err != nil {
		return row, err
	}
	if text := field("lease_ms"); text != "" {
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ms >= 0 && ms < float64(logLongest/time.Millisecond)) {
			return row, fmt.Errorf("lease_ms is %q: give milliseconds", text)
		}
		row.lease = time.Duration(ms * float64(time.Millisecond))
	}
	if text := field("token"); text != "" {
		if row.token, err = strconv.ParseInt(text, 10, 64); err != nil || row.token < 0 {
			return row, fmt.Errorf("token is %q: give a whole number", text)
		}
	}
	return row, nil
}

// logTime reads a wall clock. The size of a number tells its unit: Unix time is of our days.
func logTime(text string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil && n >= 0 {
		unit := time.Second
		switch digits := len(whole); { // of our days: 10, 13, 16 and 19
		case digits >= 18:
			unit = time.Nanosecond
		case digits >= 15:
			unit = time.Microsecond
		case digits >= 12:
			unit = time.Millisecond
		}
		part, err := strconv.ParseFloat("0."+fraction+"0", 64)
		if err == nil && n <= math.MaxInt64/int64(unit) {
			return time.Unix(0, n*int64(unit)+int64(math.Round(part*float64(unit)))), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("time is %q: give RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time", text)
}

// A logReader makes operations of lines.
type logReader struct {
	events    []history.Event
	clients   map[[3]string]*logClient // by host, name and lock
	hosts     map[string]time.Duration // when each wrote its last line
	last      time.Duration            // of the last line
	unit      time.Duration            // of which all stamps are multiples
	processes int
	releases  map[[2]string]bool // by host and name: that they begin is logged
}

// A logClient is one client of one lock.
type logClient struct {
	process  int
	name     string
	who      [2]string // its host and name there
	attempts int
	last     time.Duration // of its last event
	open     *history.Event
	asks     bool // it logs its requests
	holds    bool
	grant    int           // the answer that granted what it holds
	until    time.Duration // when its lease may be over; 0 for none
	asked    bool          // the request for it was logged
	token    int64         // that it was granted with
	vague    bool          // it was extended, and its log does not say for how long
}

func (l *logReader) take(row *logRow, at time.Duration) error {
	c := l.clients[row.key()]
	if c == nil {
		c = &logClient{process: l.processes, who: [2]string{row.host, row.client}, name: logName(row)}
		l.clients[row.key()] = c
		l.processes++
	}
	stamp := at
	at = max(at, l.last+2) // several lines may have one stamp
	l.last, l.hosts[row.host] = at, at
	if row.event == logReleasing { // with the answer alone, a release may be under way
		l.releases[c.who] = true
	}
	record := func(time time.Duration, t history.Type, op history.Op) *history.Event {
		e := history.Event{Time: time, Process: c.process, Type: t, Op: op, Lock: row.lock, Clock: row.host, Owner: fmt.Sprintf("%s#%d", c.name, c.attempts)}
		l.events = append(l.events, e)
		c.last = time
		return &l.events[len(l.events)-1]
	}
	begin := func(time time.Duration, op history.Op) {
		e := record(time, history.Invoke, op)
		if row.lease > 0 && (row.event == logRequest || row.event == logExtending) {
			e.Lease = max(row.lease-row.lease%l.unit-(time-stamp), 1)
		}
		invoke := *e
		c.open = &invoke
	}
	answer := func(t history.Type) error {
		if c.open == nil {
			return fmt.Errorf("%s is %s, and has asked for nothing", c.name, row.event)
		}
		op, lease := c.open.Op, c.open.Lease
		held := c.holds
		e := record(at, t, op)
		switch {
		case op == history.Release && t != history.Fail, op != history.Acquire && t == history.Fail:
			c.holds = false
		case op == history.Acquire && t == history.OK:
			c.holds, c.grant, c.until, c.vague, c.token = true, len(l.events)-1, 0, false, row.token
			if c.asked {
				e.Token = row.token
			}
		}
		switch {
		case t == history.OK && lease > 0:
			c.until, c.vague = c.open.Time+lease, false
		case t == history.OK && op == history.Extend:
			c.until, c.vague = 0, true
		}
		if op != history.Acquire && t == history.OK && (!held || op == history.Release && (c.vague || c.until > 0 && at >= c.until)) {
			e.Type = history.Info // not every library tells whether the lock was still held
		}
		c.open = nil
		if e.Type == history.Info {
			c.process, c.holds = l.processes, c.holds && op == history.Extend
			l.processes++
		}
		return nil
	}
	if c.holds && (row.event == logHeld || row.event == logExtending || row.event == logReleasing) {
		l.events[c.grant].Token = c.token // else the grant may have been long before its answer, and over
	}
	// A client that asks for something else has had an answer, or gave up waiting for it, and did not log that.
	unheard := func() error {
		if c.open == nil {
			return nil
		}
		err := answer(history.Info)
		at += 2
		l.last, l.hosts[row.host] = at, at
		return err
	}
	switch row.event {
	case logRequest, logExtending, logReleasing:
		switch {
		case c.open != nil && c.open.Op == history.Acquire && row.event != logRequest:
			return fmt.Errorf("%s begins another request (%s) before the answer to its last one (%s)", c.name, row.event, c.open.Op)
		case row.event != logRequest && c.attempts == 0:
			return fmt.Errorf("%s is %s %q, which it was not granted", c.name, row.event, row.lock)
		}
		if err := unheard(); err != nil {
			return err
		}
		if row.event == logRequest {
			c.asks = true
			l.next(c)
			c.asked = true
		}
		begin(at, map[string]history.Op{logRequest: history.Acquire, logExtending: history.Extend, logReleasing: history.Release}[row.event])
		return nil
	case logGranted:
		if c.open == nil || c.open.Op != history.Acquire {
			if row.lease > 0 {
				return errors.New("a lease counts from the request: log a line with the event request before this one, and write lease_ms there")
			}
			if err := unheard(); err != nil {
				return err
			}
			l.next(c)
			begin(at-1, history.Acquire)
		}
		return answer(history.OK)
	case logExtended:
		if c.open == nil || c.open.Op != history.Extend {
			return fmt.Errorf("%s is extended, and did not ask for that: log a line with the event %s before, with lease_ms", c.name, logExtending)
		}
		return answer(history.OK)
	case logReleased:
		switch {
		case c.open == nil && c.attempts == 0:
			return fmt.Errorf("%s has released %q, which it was not granted", c.name, row.lock)
		case c.open == nil: // it may have asked at any time since its last line
			begin(c.last+1, history.Release)
		case c.open.Op != history.Release:
			return fmt.Errorf("%s has released %q, and its %s has no answer", c.name, row.lock, c.open.Op)
		}
		return answer(history.OK)
	case logRefused:
		if c.open == nil { // a request that was not logged
			l.next(c)
			begin(at-1, history.Acquire)
		}
		if c.open.Op == history.Release && !c.asks { // of the release, or of a request that was not logged
			return answer(history.Info)
		}
		return answer(history.Fail)
	case logUnknown:
		return answer(history.Info)
	case logHeld:
		if !c.holds {
			return fmt.Errorf("%s holds %q, which it was not granted", c.name, row.lock)
		}
		c.last = at
	default: // lost
		switch {
		case c.attempts == 0:
			return fmt.Errorf("%s has lost %q, which it was not granted", c.name, row.lock)
		case c.holds: // else it was told before, by a refusal
			record(at, history.OK, history.Lost)
			c.holds = false
		}
	}
	return nil
}

// logName is how a client is called, by a name that no other one has.
func logName(row *logRow) string {
	switch {
	case row.host == "" && !strings.Contains(row.client, "/"):
		return row.client
	case strings.Contains(row.host, "/"):
		return strconv.Quote(row.host) + "/" + row.client
	default:
		return row.host + "/" + row.client
	}
}

// next has a client ask for the lock. What it held before may have been released at any time since its last line, unless a
// line says so: it may have crashed.
func (l *logReader) next(c *logClient) {
	if c.holds {
		e := l.events[c.grant]
		l.events = append(l.events, history.Event{Time: c.last + 1, Process: l.processes, Type: history.Invoke, Op: history.Release, Lock: e.Lock, Clock: e.Clock, Owner: e.Owner})
		l.processes++
		c.holds = false
	}
	c.asked = false
	c.attempts++
}

// history is what was read, in order.
func (l *logReader) history() []history.Event {
	for _, c := range l.clients {
		if c.open != nil && c.open.Op == history.Release {
			continue
		}
		crashed := c.until > 0 && l.releases[c.who]
		if crashed { // it has crashed, unless its host wrote no more lines, or not all have arrived
			c.last = max(c.last, l.hosts[c.who[0]])
		}
		if !crashed || c.last < c.until {
			l.next(c)
		}
	}
	slices.SortStableFunc(l.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range l.events {
		l.events[i].Index = int64(i)
	}
	return l.events
}
