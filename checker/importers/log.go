package importers

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// Log reads what clients have logged of their locks, with wall clocks: a CSV file with a line of names, or JSON objects,
// one after another or in an array. It reads the columns time, client and event, which must be there, host, lock, lease_ms and
// token (docs/logs.md). Lines may be in any order; those of one stamp may have been written in any. Its errors name the line.
//
// What a log leaves out makes it prove less, and convicts no lock: a hold without a line that it is being released is certain
// until the last line that its client wrote of it, and no longer; or to the end of its lease, and the last line of its host, if
// other lines of its client say that it releases. [checker.OfLogs] judge it.
//
// Beside the history it returns what its stamps are worth.
func Log(r io.Reader) (*history.History, Stamps, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, Stamps{}, err
	}
	rows, err := logRows(data)
	if err != nil {
		return nil, Stamps{}, err
	}
	slices.SortStableFunc(rows, func(a, b logRow) int { return a.time.Compare(b.time) })
	l := logReader{clients: map[[2]string]*logClient{}, hosts: map[string]time.Duration{}, releases: map[string]bool{}, unit: unitOf(rows)}
	for from, to := 0, 0; from < len(rows); from = to {
		for to < len(rows) && rows[to].time.Equal(rows[from].time) {
			to++
		}
		at := rows[from].time.Sub(rows[0].time)
		if at > logLongest {
			return nil, Stamps{}, fmt.Errorf("%s: its time is decades after that of %s", rows[from].where, rows[0].where)
		}
		for _, row := range untied(rows[from:to]) {
			if err := l.take(&row, at+logStart); err != nil {
				return nil, Stamps{}, fmt.Errorf("%s: %w", row.where, err)
			}
		}
	}
	return &history.History{Events: l.history()}, Stamps{Zero: rows[0].time.Add(-logStart), Unit: l.unit}, nil
}

// Stamps are what the stamps of a log are worth.
type Stamps struct {
	Zero time.Time // what the times of the history count from
	// Unit is the greatest unit of which all stamps are multiples. Each may be up to one of it before its time, so that
	// the clocks of several hosts are wrong by so much more than they say.
	Unit time.Duration
}

// logStart is the stamp of the first line: what is not logged may have been before it.
const logStart = time.Millisecond

// unitOf is the greatest unit of which all stamps are multiples: those of a coarse clock tell no more of a lease.
func unitOf(rows []logRow) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if !slices.ContainsFunc(rows, func(r logRow) bool { return r.time.Nanosecond()%int(unit) != 0 }) {
			return unit
		}
	}
	return 1
}

// A logEvent is what a client notes of a lock.
type logEvent struct {
	name    string
	op      history.Op
	part    history.Type // of the operation
	follows string       // which events without an answer it may come after; "nothing" is none
}

func logEvents() []logEvent {
	return []logEvent{
		{"request", history.Acquire, history.Invoke, "nothing, request, extending, releasing"},
		{"granted", history.Acquire, history.OK, "nothing, request, extending, releasing"},
		{"refused", "", history.Fail, "nothing, request, extending, releasing"},
		{"unknown", "", history.Info, "request, extending, releasing"},
		{"extending", history.Extend, history.Invoke, "nothing, extending, releasing"},
		{"extended", history.Extend, history.OK, "extending"},
		{"held", "", "", "nothing, request, extending, releasing"},
		{"releasing", history.Release, history.Invoke, "nothing, extending, releasing"},
		{"released", history.Release, history.OK, "nothing, releasing"},
		{"lost", history.Lost, history.OK, "nothing, request, extending, releasing"},
	}
}

// A logRow is a line of a log.
type logRow struct {
	where              string // in the log
	time               time.Time
	stamp, form        string // its text, and what tells how that is to be read
	host, client, lock string
	event              logEvent
	lease              time.Duration
	token              int64
}

func (r *logRow) is(op history.Op, part history.Type) bool {
	return r.event.op == op && r.event.part == part
}

// name tells a client from all others, and key one of a lock.
func (r *logRow) name() string {
	escaped := func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "%", "%25"), "/", "%2F") }
	if r.host == "" {
		return escaped(r.client)
	}
	return escaped(r.host) + "/" + r.client
}

func (r *logRow) key() [2]string { return [2]string{r.name(), r.lock} }

// read reads the columns of a line. It returns the first one that it can't read, and what there should be; none if it can.
func (r *logRow) read(columns map[string]string) (column, want string) {
	var events []string
	for _, e := range logEvents() {
		events = append(events, e.name)
	}
	event := slices.Index(events, strings.ToLower(columns["event"]))
	ms, err := strconv.ParseFloat(cmp.Or(columns["lease_ms"], "0"), 64)
	r.host, r.client, r.lock, r.stamp = columns["host"], columns["client"], cmp.Or(columns["lock"], JepsenLock), columns["time"]
	r.event, r.lease = logEvents()[max(event, 0)], time.Duration(ms*float64(time.Millisecond))
	switch {
	case !r.readTime():
		return "time", "RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds"
	case r.client == "":
		return "client", "a name"
	case event < 0:
		return "event", "one of " + strings.Join(events, ", ")
	case err != nil || !(ms >= 0 && ms < float64(logLongest/time.Millisecond)):
		return "lease_ms", "milliseconds"
	}
	if r.token, err = strconv.ParseInt(cmp.Or(columns["token"], "0"), 10, 64); err != nil || r.token < 0 {
		return "token", "a whole number"
	}
	return "", ""
}

// logLongest is the longest time that is taken for one, between two lines and as a lease.
const logLongest = history.MaxTime / 2

// readTime reads a wall clock. The size of a number tells its unit, as Unix time is of our days; of a smaller one, which
// counts from the start of a program, nothing does.
func (r *logRow) readTime() (ok bool) {
	whole, fraction, _ := strings.Cut(r.stamp, ".")
	unit := map[int]time.Duration{10: time.Second, 13: time.Millisecond, 16: time.Microsecond, 19: time.Nanosecond}[len(whole)]
	n, err1 := strconv.ParseInt(whole, 10, 64)
	part, err2 := strconv.ParseFloat("0."+fraction+"0", 64)
	digits := strings.Trim(whole+fraction, "0123456789") == "" // no sign or exponent
	if unit > 0 && digits && err1 == nil && err2 == nil && n < math.MaxInt64/int64(unit) {
		r.form, r.time = unit.String(), time.Unix(0, n*int64(unit)+int64(math.Round(part*float64(unit))))
		return true
	}
	for _, r.form = range []string{"T15:04:05.999999999Z07:00", " 15:04:05.999999999Z07:00", " 15:04:05.999999999Z07", " 15:04:05.999999999"} {
		if t, err := time.Parse(time.DateOnly+r.form, r.stamp); err == nil {
			r.time = t
			return true
		}
	}
	return false
}

// logRows reads CSV or JSON.
func logRows(data []byte) (rows []logRow, err error) {
	cut := !bytes.HasSuffix(data, []byte("\n"))                      // the last token of a CSV file may go on
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff"))) // spreadsheets write it
	read := csvRecords
	if bytes.HasPrefix(data, []byte("{")) || bytes.HasPrefix(data, []byte("[")) {
		read, cut = jsonRecords, false
	}
	err = read(data, func(where string, names, texts []string) error {
		row, columns := logRow{where: where}, map[string]string{}
		for i, name := range names {
			name = strings.ToLower(strings.TrimSpace(name))
			if _, twice := columns[name]; twice && name != "" {
				return fmt.Errorf("%s: there are two columns %q", where, name)
			}
			columns[name] = strings.TrimSpace(texts[i])
		}
		column, want := row.read(columns)
		if text, is := columns[column]; is {
			return fmt.Errorf("%s: %s is %q: give %s; the columns are %s", where, column, text, want, strings.Join(names, ", "))
		} else if column != "" {
			return fmt.Errorf("%s has no column %q: give %s; the columns are %s", where, column, want, strings.Join(names, ", "))
		}
		if rows = append(rows, row); row.form != rows[0].form { // stamps of several units: what one of them is worth is not told
			return fmt.Errorf("%s: time is %q, and %q in %s: give one form of stamps in a log", where, row.stamp, rows[0].stamp, rows[0].where)
		}
		return nil
	})
	if n := len(rows); cut && n > 0 {
		rows[n-1].token = 0
	}
	if err == nil && len(rows) == 0 {
		err = errors.New("the log is empty: give lines with the columns time, client and event")
	}
	return rows, err
}

func csvRecords(data []byte, record func(where string, names, texts []string) error) error {
	table := csv.NewReader(bytes.NewReader(data))
	names, err := table.Read()
	for err == nil {
		var texts []string
		if texts, err = table.Read(); err == nil {
			line, _ := table.FieldPos(0)
			err = record(fmt.Sprint("line ", line), names, texts)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// jsonRecords numbers objects, as an array need not have lines.
func jsonRecords(data []byte, record func(where string, names, texts []string) error) error {
	values := json.NewDecoder(bytes.NewReader(data))
	values.UseNumber()
	array := data[0] == '['
	if array {
		_, _ = values.Token() // which it begins with
	}
	for n := 1; values.More(); n++ {
		var object map[string]any
		if err := values.Decode(&object); err != nil {
			return fmt.Errorf("object %d: %w", n, err)
		}
		var names, texts []string
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if v := object[name]; v != nil {
				names, texts = append(names, name), append(texts, fmt.Sprint(v))
			}
		}
		if err := record(fmt.Sprint("object ", n), names, texts); err != nil {
			return err
		}
	}
	if _, err := values.Token(); array && err != nil {
		return fmt.Errorf("the array does not end: %w", err)
	}
	return nil
}

// untied puts the lines of one stamp, of which any may have been the first, in the order that convicts the fewest locks. A
// client goes on until it asks for the lock or is granted it; then the client comes whose next line is of the lowest rank, and
// of grants the one with the lowest token.
func untied(rows []logRow) (all []logRow) {
	at := map[[2]string]int{}
	var clients [][]logRow
	for _, row := range rows {
		i, ok := at[row.key()]
		if !ok {
			i = len(clients)
			at[row.key()], clients = i, append(clients, nil)
		}
		clients[i] = append(clients[i], row)
	}
	rank := func(of []logRow) (rank int, token int64) {
		switch {
		case of[0].event.op != history.Acquire:
			return 0, 0
		case of[0].event.part == history.Invoke:
			return 1, 0
		case slices.ContainsFunc(of, func(r logRow) bool { return r.event.op == history.Release || r.event.op == history.Lost }):
			return 2, of[0].token // the hold is over at this stamp
		default:
			return 3, of[0].token
		}
	}
	for range rows {
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

// A logReader makes operations of lines.
type logReader struct {
	events    []history.Event
	clients   map[[2]string]*logClient // by name and lock
	inOrder   []*logClient
	hosts     map[string]time.Duration // when each wrote its last line
	releases  map[string]bool          // by the name of a client: that they begin is logged
	last      time.Duration            // of the last line
	unit      time.Duration            // of which all stamps are multiples
	processes int
}

// A logClient is one client of one lock.
type logClient struct {
	process  int
	row      *logRow // its first one
	attempts int
	last     time.Duration // of its last event
	open     history.Event // what has no answer yet, if it has an operation
	asks     bool          // it logs its requests
	holds    bool
	grant    int           // the answer that granted what it holds
	token    int64         // that it was granted with
	until    time.Duration // when its lease may be over; 0 for none
}

// lineGap is between the stamps of two lines at the least, as several lines may have one stamp: an answer or a request that
// was not logged was shortly before the line that tells of it.
const lineGap = 3

func (l *logReader) take(row *logRow, stamp time.Duration) error {
	c := l.clients[row.key()]
	if c == nil {
		c = &logClient{row: row, process: l.newProcess()}
		l.clients[row.key()], l.inOrder = c, append(l.inOrder, c)
	}
	at := max(stamp, l.last+lineGap)
	l.last, l.hosts[row.host] = at, at
	op, part, open := row.event.op, row.event.part, c.open.Op
	waits := map[history.Op]string{"": "nothing", history.Acquire: "request", history.Extend: "extending", history.Release: "releasing"}[open]
	switch {
	case c.attempts == 0 && op != history.Acquire && part != history.Fail, row.is("", "") && !c.holds:
		return fmt.Errorf("event is %q, and %s does not hold %q: log granted before", row.event.name, row.name(), row.lock)
	case !slices.Contains(strings.Split(row.event.follows, ", "), waits):
		return fmt.Errorf("event is %q, and %s waits for an answer to %s: this event comes after %s", row.event.name, row.name(), waits, row.event.follows)
	case row.lease > 0 && row.is(history.Acquire, history.OK) && open != history.Acquire:
		return errors.New("lease_ms is given with granted, and a lease counts from the request: log a line with the event request before, and write it there")
	}
	if c.holds && op != history.Acquire && (part == history.Invoke || part == "") {
		l.events[c.grant].Token = c.token // else the grant may have been long before its answer, and over
	}
	if open != "" && (part == history.Invoke || op == history.Acquire && open != history.Acquire) {
		l.answer(c, at-2, history.Info) // it had an answer, or gave up waiting for it, and did not log that
	}
	switch {
	case part == "": // it holds the lock
		c.last = at
	case op == history.Lost:
		if c.holds { // else it was told before, by a refusal
			l.record(c, at, history.OK, op)
			c.holds = false
		}
	case part == history.Invoke:
		c.asks = c.asks || op == history.Acquire
		l.releases[row.name()] = l.releases[row.name()] || op == history.Release // with the answer alone, one may be under way
		lease := row.lease
		if lease > 0 {
			lease = max(lease-lease%l.unit-(at-stamp), 1)
		}
		l.ask(c, at, op, lease)
	default:
		if c.open.Op == "" && op == history.Release { // it may have asked at any time since its last line
			l.ask(c, c.last+1, op, 0)
		} else if c.open.Op == "" {
			l.ask(c, at-1, history.Acquire, 0)
		}
		if part == history.Fail && open == history.Release && !c.asks { // of the release, or of a request that was not logged
			part = history.Info
		}
		l.answer(c, at, part)
		if op == history.Acquire {
			c.token = row.token
		}
		if op == history.Acquire && op == open {
			l.events[c.grant].Token = c.token
		}
	}
	return nil
}

func (l *logReader) ask(c *logClient, at time.Duration, op history.Op, lease time.Duration) {
	if op == history.Acquire {
		l.letGo(c)
		c.attempts++
	}
	e := l.record(c, at, history.Invoke, op)
	if op != history.Release {
		e.Lease = lease
	}
	c.open = *e
}

func (l *logReader) answer(c *logClient, at time.Duration, part history.Type) {
	op, lease := c.open.Op, c.open.Lease
	e := l.record(c, at, part, op)
	switch {
	case op == history.Acquire && part == history.OK:
		c.holds, c.grant, c.until = true, len(l.events)-1, 0
	case part == history.OK && (!c.holds || op == history.Release && c.until > 0 && at >= c.until):
		e.Type = history.Info // not every library tells whether the lock was still held
	}
	switch {
	case part == history.OK && lease > 0:
		c.until = c.open.Time + lease
	case part == history.OK && op == history.Extend: // it does not say for how long
		c.until = at
	case op == history.Release, op == history.Extend && part == history.Fail:
		c.holds = false
	}
	if c.open = (history.Event{}); e.Type == history.Info {
		c.process = l.newProcess() // what it asked for may happen still
	}
}

func (l *logReader) newProcess() int {
	l.processes++
	return l.processes - 1
}

func (l *logReader) record(c *logClient, at time.Duration, part history.Type, op history.Op) *history.Event {
	c.last = at
	l.events = append(l.events, history.Event{
		Time: at, Process: c.process, Type: part, Op: op, Lock: c.row.lock, Clock: c.row.host, Owner: fmt.Sprintf("%s#%d", c.row.name(), c.attempts),
	})
	return &l.events[len(l.events)-1]
}

// letGo notes that what a client held may have been released at any time since its last line, as no line says so: it may
// have crashed.
func (l *logReader) letGo(c *logClient) {
	if last := *c; c.holds {
		last.process = l.newProcess()
		l.record(&last, c.last+1, history.Invoke, history.Release)
		c.holds = false
	}
}

// history is what was read, in order.
func (l *logReader) history() []history.Event {
	for _, c := range l.inOrder {
		if c.open.Op == history.Release {
			continue
		}
		if c.until > c.last && l.releases[c.row.name()] { // it has crashed, unless its host wrote no more lines, or not all have arrived
			c.last = min(c.until, max(c.last, l.hosts[c.row.host]))
		}
		l.letGo(c)
	}
	slices.SortStableFunc(l.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range l.events {
		l.events[i].Index = int64(i)
	}
	return l.events
}
