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
	at     time.Duration // its stamp, a multiple of the unit of its host: from 1970, and from the start of the history once all are read
	client *logClient
	answer *logRow // of an extension
	lease  time.Duration
	token  int64
	mode   history.Mode
	line   int32 // its number
	event  logEvent
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
type logColumn struct {
	name, want, near string
	read             func(row *logRow, text string) bool // it reports whether it could; nil: any text will do
}

// logColumns are the columns, of which each line needs the first three.
func logColumns() []logColumn {
	return []logColumn{
		{"time", "RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds", "", (*logRow).readTime},
		{"client", "a name", "", func(_ *logRow, text string) bool { return text != "" }},
		{"event", "one of " + strings.Join(logEvents(), ", "), "", func(row *logRow, text string) bool {
			event := slices.Index(logEvents(), strings.ToLower(text))
			row.event = logEvent(event) //nolint:gosec // one of a few
			return event >= 0
		}},
		{"host", "the name of the machine whose clock it is", "hostname", nil},
		{"lock", "its name", "lock_name", nil},
		{"lease_ms", "milliseconds", "lease lease_s lease_seconds ttl ttl_ms ttl_s", func(row *logRow, text string) bool {
			ms, err := strconv.ParseFloat(cmp.Or(text, "0"), 64)
			row.lease = time.Duration(ms * float64(time.Millisecond))
			return err == nil && ms >= 0 && ms < float64(logLongest/time.Millisecond)
		}},
		{"token", "a whole number", "token_id fence fencing_token", func(row *logRow, text string) bool {
			token, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
			row.token = token
			return err == nil && token >= 0
		}},
		{"mode", "one of exclusive, read, write, as semaphores are not judged from logs", "shared lock_mode exclusive permits permit capacity max_permits", func(row *logRow, text string) bool {
			row.mode = history.Mode(strings.ToLower(text))
			return slices.Contains([]history.Mode{"", history.Exclusive, history.Read, history.Write}, row.mode)
		}},
	}
}

// logLongest is the longest time that is taken for one, between two lines and as a lease.
const logLongest = history.MaxTime / 2

// readTime reads a wall clock. The size of a number tells its unit, as Unix time is of our days.
func (r *logRow) readTime(text string) bool {
	number, _, _ := strings.Cut(text, ".")
	unit := map[int]string{10: "s", 13: "ms", 16: "us", 19: "ns"}[len(number)]
	if at, err := time.ParseDuration(text + unit); err == nil && strings.Trim(text, "0123456789.") == "" && at < history.Never {
		r.at = at
		return true
	}
	text = strings.Replace(text, " ", "T", 1)
	for _, zone := range []string{"Z07:00", "Z0700", "Z07", ""} {
		if t, err := time.Parse("2006-01-02T15:04:05"+zone, text); err == nil && 1970 <= t.Year() && t.Year() < 2262 {
			r.at = time.Duration(t.UnixNano())
			return true
		}
	}
	return false
}

// where names a line.
func (l *Log) where(row *logRow) string { return fmt.Sprint(l.kind, " ", row.line) }

// read reads CSV, or JSON.
func (l *Log) read(data []byte) (err error) {
	end := bytes.LastIndexByte(data, '\n') + 1
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // spreadsheets write it
	switch start := bytes.TrimSpace(data); {
	case bytes.ContainsRune(start[:min(len(start), 512)], 0):
		return errors.New("it is no text: give CSV or JSON, such as a query makes of a database")
	case bytes.HasPrefix(start, []byte("{")), bytes.HasPrefix(start, []byte("[")):
		l.kind = "object" // as an array need not have lines
		err = l.readJSON(start)
	default:
		if l.kind = "line"; end < len(data) {
			l.note("the last line was cut off, and is not read: it has no end")
		}
		err = l.readCSV(data[:min(end, len(data))])
	}
	if err != nil {
		return err
	}
	if len(l.rows) == 0 {
		return errors.New("the log is empty: give lines with the columns time, client and event")
	}
	delete(l.names, "")
	for _, c := range l.columns {
		delete(l.names, c.name)
	}
	if len(l.names) > 0 {
		l.note("columns not used: %s", strings.Join(slices.Sorted(maps.Keys(l.names)), ", "))
	}
	return nil
}

func (l *Log) readCSV(data []byte) error {
	table := csv.NewReader(bytes.NewReader(data))
	names, err := table.Read()
	table.ReuseRecord = true
	for err == nil {
		var texts []string
		if texts, err = table.Read(); err == nil {
			line, _ := table.FieldPos(0)
			err = l.add(line, names, texts)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (l *Log) readJSON(data []byte) (err error) {
	values := json.NewDecoder(bytes.NewReader(data))
	values.UseNumber()
	array := data[0] == '['
	if array {
		_, _ = values.Token() // which it begins with
	}
	for n := 1; err == nil && values.More(); n++ {
		var object map[string]any
		if err = values.Decode(&object); err != nil {
			err = fmt.Errorf("object %d: %w", n, err)
			continue
		}
		maps.DeleteFunc(object, func(_ string, v any) bool { return v == nil })
		names, texts := slices.Sorted(maps.Keys(object)), []string(nil)
		for _, name := range names {
			texts = append(texts, fmt.Sprint(object[name]))
		}
		err = l.add(n, names, texts)
	}
	_, end := values.Token()
	if cut := errors.Is(err, io.ErrUnexpectedEOF) || err == nil && array && end != nil; !cut {
		return err
	}
	l.note("the end was cut off, and an object that does not end is not read")
	return nil
}

// add reads a line.
func (l *Log) add(number int, names, texts []string) error {
	row, record := logRow{line: int32(number)}, l.text //nolint:gosec // fewer than fit into memory
	clear(record)
	for i, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		if _, twice := record[name]; twice {
			return fmt.Errorf("%s: there are two columns %q", l.where(&row), name)
		}
		record[name] = strings.TrimSpace(texts[i])
	}
	for name := range record {
		if l.names[name] {
			continue
		}
		for _, c := range l.columns {
			if _, has := record[c.name]; !has && slices.Contains(strings.Fields(c.near), name) {
				return fmt.Errorf("%s has a column %q, which is not read: give %s, %s", l.where(&row), name, c.name, c.want)
			}
		}
		l.names[name] = true
	}
	has := [2]bool{record["host"] != "", record["lock"] != ""}
	if len(l.rows) == 0 {
		l.has = has
	}
	if has != l.has {
		return fmt.Errorf("%s has a host or a lock, or none, unlike others: give it in all lines or in none", l.where(&row))
	}
	for _, c := range l.columns {
		if text, has := record[c.name]; c.read != nil && !c.read(&row, text) {
			problem := "has no column " + strconv.Quote(c.name)
			if has {
				problem = fmt.Sprintf("has %q as %s", text, c.name)
			}
			return fmt.Errorf("%s %s: give %s; the columns are %s", l.where(&row), problem, c.want, strings.Join(names, ", "))
		}
	}
	row.client = l.client(row.at, [3]string{record["host"], record["client"], cmp.Or(record["lock"], JepsenLock)})
	row.client.logs[row.event] = true
	lock := row.client.lock
	lock.leases = lock.leases || row.lease > 0
	lock.asks = lock.asks || row.event == request
	lock.modes = lock.modes || row.mode == history.Read || row.mode == history.Write
	host := row.client.host
	host.shuffled, host.latest = host.shuffled || row.at < host.latest, max(host.latest, row.at)
	l.rows = append(l.rows, row)
	return nil
}

// client is the one of a key. No other has its name.
func (l *Log) client(at time.Duration, key [3]string) *logClient {
	host := l.hosts[key[0]]
	if host == nil {
		host = &logHost{name: key[0], unit: time.Second}
		l.hosts[host.name] = host
	}
	for at%host.unit != 0 && host.unit > 2 { // at least 2, so that an answer is after its invocation
		host.unit = max(host.unit/10, 2)
	}
	if c := l.clients[key]; c != nil {
		return c
	}
	if l.locks[key[2]] == nil {
		l.locks[key[2]] = &logLock{name: key[2]}
	}
	name := strings.TrimPrefix(url.PathEscape(key[0])+"/"+key[1], "/")
	c := &logClient{name: name, host: host, lock: l.locks[key[2]], number: len(l.clients), process: -1, works: -1, before: logStart / 2}
	l.clients[key], l.inOrder = c, append(l.inOrder, c)
	return c
}
