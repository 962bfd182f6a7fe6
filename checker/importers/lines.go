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
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A logEvent is what a client notes of a lock, in the order of a hold.
type logEvent uint8

const (
	request logEvent = iota
	granted
	held
	extending
	extended
	lost
	releasing
	released
	refused
	unknown
)

func logEvents() []string {
	return []string{"request", "granted", "held", "extending", "extended", "lost", "releasing", "released", "refused", "unknown"}
}

// A logRow is a line of a log.
type logRow struct {
	at          time.Duration // its stamp, a multiple of the unit of its host: from 1970, and from the start of the history once all are read
	client      *logClient
	answer      *logRow // of an extension
	lease       time.Duration
	token       int64
	mode        history.Mode
	line, index int32 // its number; its place among the rows, from 1 on
	event       logEvent
}

// good is for how long the lease that a line asks for may last: with the drift, see declare.
func (r *logRow) good() time.Duration {
	if r == nil || r.lease == 0 {
		return 0
	}
	return r.lease + r.client.lock.unit
}

// over is when that lease is over at the latest.
func (r *logRow) over() time.Duration {
	if r.good() == 0 {
		return history.Never
	}
	return r.at + r.good()
}

// A logHost is one clock.
type logHost struct {
	name string
	unit time.Duration // of which all its stamps are multiples

	shuffled bool          // its lines are not in the order of their stamps
	latest   time.Duration // of them
}

// A logLock is what all lines say of a lock.
type logLock struct {
	name                string
	modes, asks, leases bool          // its lines have modes, requests, leases
	unit                time.Duration // the greatest of its hosts
}

// leaseless reports whether a lock has no leases for certain: its requests are logged, and ask for none.
func (l *logLock) leaseless() bool { return l.asks && !l.leases }

// A logClient is one client of one lock.
type logClient struct {
	name   string
	host   *logHost
	lock   *logLock
	number int
	logs   [unknown + 1]bool // what it writes lines of

	process, works int           // that of its last operation; that which uses what the lock protects; -1 for none yet
	busy, worked   time.Duration // until when they are
	attempts       int
	token          int64         // of its last grant
	before         time.Duration // of its last line
	asked, sent    *logRow       // a request that has no answer yet; a release or an extension
	hold           *logHold
	vague          bool // it did not learn of all requests and releases what came of them: of a re-entrant lock, its next grant may be in a hold of before
}

// A logColumn is a column of a log, with names that are nearly its own: to read a log without it would judge something else.
type logColumn struct{ name, want, near string }

// logColumns are the columns, of which each line needs the first three.
func logColumns() []logColumn {
	return []logColumn{
		{"time", "RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds", ""},
		{"client", "a name", ""},
		{"event", "one of " + strings.Join(logEvents(), ", "), ""},
		{"host", "the name of the machine whose clock it is", "hostname"},
		{"lock", "its name", "lock_name"},
		{"lease_ms", "milliseconds", "lease lease_s lease_seconds ttl ttl_ms ttl_s"},
		{"token", "a whole number", "token_id fence fencing_token"},
		{"mode", "one of exclusive, read, write, as semaphores are not judged from logs", "shared lock_mode exclusive permits permit capacity max_permits"},
	}
}

// logLongest is the longest time that is taken for one, between two lines and as a lease.
const logLongest = history.MaxTime / 2

// parse reads a line from its columns; it returns the first that it can't read, or none.
func (r *logRow) parse(text map[string]string) (wrong string) {
	ms, err1 := strconv.ParseFloat(cmp.Or(text["lease_ms"], "0"), 64)
	token, err2 := strconv.ParseInt(cmp.Or(text["token"], "0"), 10, 64)
	mode := history.Mode(strings.ToLower(text["mode"]))
	event := slices.Index(logEvents(), strings.ToLower(text["event"]))
	at, ok := readTime(text["time"])
	switch {
	case !ok:
		return "time"
	case text["client"] == "":
		return "client"
	case event < 0:
		return "event"
	case err1 != nil || !(ms >= 0 && ms < float64(logLongest/time.Millisecond)):
		return "lease_ms"
	case err2 != nil || token < 0:
		return "token"
	case !slices.Contains([]history.Mode{"", history.Exclusive, history.Read, history.Write}, mode):
		return "mode"
	}
	r.at, r.event, r.lease, r.token, r.mode = at, logEvent(event), time.Duration(ms*float64(time.Millisecond)), token, mode //nolint:gosec // one of a few
	return ""
}

// readTime reads a wall clock. The size of a number tells its unit, as Unix time is of our days.
func readTime(text string) (at time.Duration, ok bool) {
	number, fraction, _ := strings.Cut(text, ".")
	unit := map[int]time.Duration{10: time.Second, 13: time.Millisecond, 16: time.Microsecond, 19: time.Nanosecond}[len(number)]
	n, err1 := strconv.ParseInt(number, 10, 64)
	part, err2 := strconv.ParseFloat("0."+fraction+"0", 64)
	digits := strings.Trim(number+fraction, "0123456789") == "" // no sign or exponent
	if unit > 0 && digits && err1 == nil && err2 == nil && n < math.MaxInt64/int64(unit) {
		return time.Duration(n)*unit + time.Duration(math.Round(part*float64(unit))), true
	}
	text = strings.Replace(text, " ", "T", 1)
	for _, zone := range []string{"Z07:00", "Z0700", "Z07", ""} {
		if t, err := time.Parse("2006-01-02T15:04:05"+zone, text); err == nil && 1970 <= t.Year() && t.Year() < 2262 {
			return time.Duration(t.UnixNano()), true
		}
	}
	return 0, false
}

// A logTable is what all lines say together.
type logTable struct {
	kind    string // what a line is called
	rows    []logRow
	hosts   map[string]*logHost
	locks   map[string]*logLock
	clients map[[3]string]*logClient // by host, name and lock
	inOrder []*logClient
	record  map[string]string // of the line that is read
	used    map[string]bool   // the columns, and whether they are
	has     [2]bool           // the lines have a host, and a lock
	note    func(format string, args ...any)
}

func newLogTable() logTable {
	return logTable{hosts: map[string]*logHost{}, locks: map[string]*logLock{}, clients: map[[3]string]*logClient{}, record: map[string]string{}, used: map[string]bool{}}
}

// where names a line.
func (t *logTable) where(row *logRow) string { return fmt.Sprint(t.kind, " ", row.line) }

// read reads CSV, or JSON.
func (t *logTable) read(data []byte) (err error) {
	end := bytes.LastIndexByte(data, '\n') + 1
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // spreadsheets write it
	switch start := bytes.TrimSpace(data); {
	case bytes.ContainsRune(start[:min(len(start), 512)], 0):
		return errors.New("it is no text: give CSV or JSON, such as a query makes of a database")
	case bytes.HasPrefix(start, []byte("{")), bytes.HasPrefix(start, []byte("[")):
		t.kind = "object" // as an array need not have lines
		err = t.readJSON(start)
	default:
		if t.kind = "line"; end < len(data) {
			t.note("the last line was cut off, and is not read: it has no end")
		}
		err = t.readCSV(data[:min(end, len(data))])
	}
	if err != nil {
		return err
	}
	if len(t.rows) == 0 {
		return errors.New("the log is empty: give lines with the columns time, client and event")
	}
	maps.DeleteFunc(t.used, func(_ string, used bool) bool { return used })
	if len(t.used) > 0 {
		t.note("columns not used: %s", strings.Join(slices.Sorted(maps.Keys(t.used)), ", "))
	}
	return nil
}

func (t *logTable) readCSV(data []byte) error {
	table := csv.NewReader(bytes.NewReader(data))
	names, err := table.Read()
	table.ReuseRecord = true
	for err == nil {
		var texts []string
		if texts, err = table.Read(); err == nil {
			line, _ := table.FieldPos(0)
			err = t.add(line, names, texts)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (t *logTable) readJSON(data []byte) error {
	values := json.NewDecoder(bytes.NewReader(data))
	values.UseNumber()
	array := data[0] == '['
	if array {
		_, _ = values.Token() // which it begins with
	}
	for n := 1; values.More(); n++ {
		var object map[string]any
		err := values.Decode(&object)
		if errors.Is(err, io.ErrUnexpectedEOF) && n > 1 {
			t.note("the last object was cut off, and is not read")
			return nil
		}
		if err != nil {
			return fmt.Errorf("object %d: %w", n, err)
		}
		maps.DeleteFunc(object, func(_ string, v any) bool { return v == nil })
		names, texts := slices.Sorted(maps.Keys(object)), []string(nil)
		for _, name := range names {
			texts = append(texts, fmt.Sprint(object[name]))
		}
		if err := t.add(n, names, texts); err != nil {
			return err
		}
	}
	if _, err := values.Token(); array && err != nil {
		t.note("the array does not end: it was cut off")
	}
	return nil
}

// add reads a line.
func (t *logTable) add(number int, names, texts []string) error {
	row, record := logRow{line: int32(number)}, t.record //nolint:gosec // fewer than fit into memory
	clear(record)
	for i, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		if _, twice := record[name]; twice {
			return fmt.Errorf("%s: there are two columns %q", t.where(&row), name)
		}
		record[name] = strings.TrimSpace(texts[i])
	}
	for name := range record {
		if err := t.see(name); err != nil {
			return fmt.Errorf("%s has %w", t.where(&row), err)
		}
	}
	has := [2]bool{record["host"] != "", record["lock"] != ""}
	if len(t.rows) == 0 {
		t.has = has
	}
	if has != t.has {
		return fmt.Errorf("%s has a host or a lock, or none, unlike others: give it in all lines or in none", t.where(&row))
	}
	if wrong := row.parse(record); wrong != "" {
		columns, problem := logColumns(), "has no column "+strconv.Quote(wrong)
		c := columns[slices.IndexFunc(columns, func(c logColumn) bool { return c.name == wrong })]
		if text, has := record[wrong]; has {
			problem = fmt.Sprintf("has %q as %s", text, wrong)
		}
		return fmt.Errorf("%s %s: give %s; the columns are %s", t.where(&row), problem, c.want, strings.Join(names, ", "))
	}
	row.client = t.client(row.at, [3]string{record["host"], record["client"], cmp.Or(record["lock"], JepsenLock)})
	row.client.logs[row.event] = true
	lock := row.client.lock
	lock.leases = lock.leases || row.lease > 0
	lock.asks = lock.asks || row.event == request
	lock.modes = lock.modes || row.mode == history.Read || row.mode == history.Write
	host := row.client.host
	host.shuffled, host.latest = host.shuffled || row.at < host.latest, max(host.latest, row.at)
	t.rows = append(t.rows, row)
	return nil
}

// see takes note of a column.
func (t *logTable) see(name string) error {
	if _, seen := t.used[name]; seen {
		return nil
	}
	used := name == ""
	for _, c := range logColumns() {
		used = used || c.name == name
		if _, has := t.record[c.name]; !has && slices.Contains(strings.Fields(c.near), name) {
			return fmt.Errorf("a column %q, which is not read: give %s, %s", name, c.name, c.want)
		}
	}
	t.used[strings.Clone(name)] = used
	return nil
}

// client is the one of a key. No other has its name.
func (t *logTable) client(at time.Duration, key [3]string) *logClient {
	host := t.hosts[key[0]]
	if host == nil {
		host = &logHost{name: strings.Clone(key[0]), unit: time.Second}
		t.hosts[host.name] = host
	}
	for at%host.unit != 0 && host.unit > 2 { // at least 2, so that an answer is after its invocation
		host.unit = max(host.unit/10, 2)
	}
	if c := t.clients[key]; c != nil {
		return c
	}
	for i := range key {
		key[i] = strings.Clone(key[i]) // it is a part of the line
	}
	if t.locks[key[2]] == nil {
		t.locks[key[2]] = &logLock{name: key[2]}
	}
	name := strings.TrimPrefix(url.PathEscape(key[0])+"/"+key[1], "/")
	c := &logClient{name: name, host: host, lock: t.locks[key[2]], number: len(t.clients), process: -1, works: -1, before: logStart / 2}
	t.clients[key], t.inOrder = c, append(t.inOrder, c)
	return c
}
