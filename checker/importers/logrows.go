package importers

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A logEvent is what a client notes of a lock. Of lines of one stamp those with a smaller one are tried first.
type logEvent uint8

const (
	held logEvent = iota
	extending
	extended
	releasing
	released
	lost
	request
	refused
	unknown
	granted
)

func logEvents() []string {
	return []string{"held", "extending", "extended", "releasing", "released", "lost", "request", "refused", "unknown", "granted"}
}

// The columns of a log.
const (
	colTime = iota
	colClient
	colEvent
	colHost
	colLock
	colLease
	colToken
	colPermits
	colCapacity
	colMode
	colCount
)

func logColumns() []string {
	return []string{"time", "client", "event", "host", "lock", "lease_ms", "token", "permits", "capacity", "mode"}
}

// meant are names that are nearly those of columns. To read a log without such a column would judge something else.
func meant() map[string]int {
	return map[string]int{
		"lease": colLease, "lease_s": colLease, "lease_seconds": colLease, "ttl": colLease, "ttl_ms": colLease, "ttl_s": colLease,
		"token_id": colToken, "fence": colToken, "fencing_token": colToken, "shared": colMode, "lock_mode": colMode, "exclusive": colMode,
		"permit": colPermits, "hostname": colHost, "lock_name": colLock, "max_permits": colCapacity,
	}
}

// A logRow is a line of a log.
type logRow struct {
	at                time.Duration // since 1970
	client            *logClient    // of that lock
	lease             time.Duration
	token             int64
	sum               uint64 // of its text
	line              int32
	permits, capacity int32
	event             logEvent
	mode              history.Mode
}

// The rows of a log, and what they have in common.
type logRows struct {
	Log

	clients map[[3]string]*logClient // by host, name and lock
	inOrder []*logClient
	owners  map[[2]string]string // names that differ, by host and name
	given   map[string]bool      // those names
	locks   map[string]*logLock
	form    [2]string        // that of the first stamp, and the stamp
	seen    map[string]int32 // the first line of each column
	without [colCount]int32  // the first line without a value in it
	with    [colCount]int32  // and with one
	sum     maphash.Hash     // of the line that is being read
	record  [colCount]string // of that line
	has     [colCount]bool   // which columns it has
	unit    time.Duration    // of which all stamps are multiples
}

func newLogRows() logRows {
	return logRows{
		clients: map[[3]string]*logClient{}, owners: map[[2]string]string{}, given: map[string]bool{},
		locks: map[string]*logLock{}, seen: map[string]int32{},
	}
}

// where names a line.
func (l *logRows) where(line int32) string { return fmt.Sprint(l.kind, " ", line) }

// read reads CSV or JSON.
func (l *logRows) read(data []byte) error {
	cut := !bytes.HasSuffix(data, []byte("\n"))                      // the last line of a CSV file may go on
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff"))) // spreadsheets write it
	var err error
	switch l.kind = "line"; {
	case bytes.ContainsRune(data[:min(len(data), 512)], 0):
		return errors.New("it is no text: give CSV or JSON, such as a query makes of a database")
	case bytes.HasPrefix(data, []byte("{")), bytes.HasPrefix(data, []byte("[")):
		l.kind = "object" // as an array need not have lines
		err = l.readJSON(data)
	default:
		err = l.readCSV(data, cut)
	}
	if err != nil {
		return err
	}
	if len(l.rows) == 0 {
		return errors.New("the log is empty: give lines with the columns time, client and event")
	}
	return l.complete()
}

// complete looks at what the lines have together.
func (l *logRows) complete() error {
	names := logColumns()
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(l.seen)) {
		if slices.Contains(names, name) {
			continue
		}
		if right, near := meant()[name]; near && l.with[right] == 0 {
			return fmt.Errorf("%s has a column %q, which is not read: give %s, %s", l.where(l.seen[name]), name, names[right], wants()[right])
		}
		unused = append(unused, name)
	}
	unused = slices.DeleteFunc(unused, func(name string) bool { return name == "" })
	if len(unused) > 0 {
		l.note("columns not used: %s", strings.Join(unused, ", "))
	}
	for _, column := range []int{colHost, colLock} {
		if with, without := l.with[column], l.without[column]; with > 0 && without > 0 {
			return fmt.Errorf("%s has no %s, and %s has one: give it in all lines or in none", l.where(without), names[column], l.where(with))
		}
	}
	l.unit = 1
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if !slices.ContainsFunc(l.rows, func(r logRow) bool { return r.at%unit != 0 }) {
			l.unit = unit
			break
		}
	}
	longest := time.Duration(0)
	for i := range l.rows {
		longest = max(longest, l.rows[i].lease)
	}
	if 0 < longest && longest < 100*time.Millisecond {
		l.note("the longest lease_ms is %v: are these milliseconds?", float64(longest)/1e6)
	}
	return nil
}

// wants says what each column has to be.
func wants() []string {
	return []string{
		"RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds",
		"a name", "one of " + strings.Join(logEvents(), ", "), "the name of the machine whose clock it is", "its name",
		"milliseconds", "a whole number", "a whole number", "a whole number", "one of exclusive, read, write",
	}
}

// add reads the record of a line.
func (l *logRows) add(line int, columns []string) error {
	row := logRow{line: int32(line), sum: l.sum.Sum64()} //nolint:gosec // fewer than fit into memory
	switch column, form := l.parse(&row); {
	case column < 0:
	case !l.has[column]:
		return fmt.Errorf("%s has no column %q: give %s; the columns are %s", l.where(row.line), logColumns()[column], wants()[column], strings.Join(columns, ", "))
	case form != l.form[0]:
		return fmt.Errorf("%s: time is %q, and %q in %s: give one form of stamps in a log", l.where(row.line), l.record[colTime], l.form[1], l.where(l.with[colTime]))
	default:
		return fmt.Errorf("%s: %s is %q: give %s; the columns are %s", l.where(row.line), logColumns()[column], l.record[column], wants()[column], strings.Join(columns, ", "))
	}
	key := [3]string{l.record[colHost], l.record[colClient], cmp.Or(l.record[colLock], JepsenLock)}
	if row.client = l.clients[key]; row.client == nil {
		for i := range key {
			key[i] = strings.Clone(key[i]) // it is a part of the line
		}
		lock := l.locks[key[2]]
		if lock == nil {
			lock = &logLock{name: key[2]}
			l.locks[key[2]] = lock
		}
		row.client = &logClient{name: l.owner(key[0], key[1]), host: key[0], lock: lock, works: -1}
		l.clients[key], l.inOrder = row.client, append(l.inOrder, row.client)
	}
	for i, text := range l.record {
		first := &l.with[i]
		if text == "" {
			first = &l.without[i]
		}
		*first = cmp.Or(*first, row.line)
	}
	l.rows = append(l.rows, row)
	return l.take(row.client.lock, &row)
}

// take takes note of what a line says of the kind of its lock.
func (l *logRows) take(lock *logLock, row *logRow) error {
	lock.permits = lock.permits || row.permits > 0 || row.capacity > 0
	lock.leases = lock.leases || row.lease > 0
	lock.modes = lock.modes || row.mode == history.Read || row.mode == history.Write
	switch {
	case lock.permits && lock.modes:
		return fmt.Errorf("%s: %q has permits and modes: give one of the two", l.where(row.line), lock.name)
	case lock.capacity > 0 && row.capacity > 0 && lock.capacity != row.capacity:
		return fmt.Errorf("%s: capacity is %d, and was %d: a capacity that changes is not read from a log", l.where(row.line), row.capacity, lock.capacity)
	}
	lock.capacity = max(lock.capacity, row.capacity)
	return nil
}

// owner is a name for a client that no other has: with its host, if it does not begin with that.
func (l *logRows) owner(host, client string) string {
	key := [2]string{host, client}
	name := l.owners[key]
	if name == "" {
		name = client
		if host != "" && !strings.HasPrefix(client, host) {
			name = host + "/" + client
		}
		for l.given[name] {
			name += "'"
		}
		l.owners[key], l.given[name] = name, true
	}
	return name
}

// parse reads what a line says, up to the first column that it can't read; none, -1, if it can read all. Of a time it
// returns the form, too.
func (l *logRows) parse(row *logRow) (wrong int, form string) {
	var ok bool
	if row.at, form, ok = readTime(l.record[colTime]); !ok {
		return colTime, l.form[0]
	}
	if l.form[0] == "" {
		l.form = [2]string{form, strings.Clone(l.record[colTime])}
	}
	event := slices.Index(logEvents(), strings.ToLower(l.record[colEvent]))
	mode := history.Mode(strings.ToLower(l.record[colMode]))
	ms, err := strconv.ParseFloat(cmp.Or(l.record[colLease], "0"), 64)
	switch {
	case form != l.form[0]:
		return colTime, form
	case l.record[colClient] == "":
		return colClient, l.form[0]
	case event < 0:
		return colEvent, l.form[0]
	case err != nil || !(ms >= 0 && ms < float64(logLongest/time.Millisecond)):
		return colLease, l.form[0]
	case !slices.Contains([]history.Mode{"", history.Exclusive, history.Read, history.Write}, mode):
		return colMode, l.form[0]
	}
	row.event, row.mode, row.lease = logEvent(event), mode, time.Duration(ms*float64(time.Millisecond)) //nolint:gosec // one of a few
	var numbers [3]int64
	for i := range numbers {
		numbers[i], err = strconv.ParseInt(cmp.Or(l.record[colToken+i], "0"), 10, 64)
		if err != nil || numbers[i] < 0 || i > 0 && numbers[i] > history.MaxAmount {
			return colToken + i, l.form[0]
		}
	}
	row.token, row.permits, row.capacity = numbers[0], int32(numbers[1]), int32(numbers[2]) //nolint:gosec // no more than that
	return -1, ""
}

// logLongest is the longest time that is taken for one, between two lines and as a lease.
const logLongest = history.MaxTime / 2

// readTime reads a wall clock, and says in what form it is. The size of a number tells its unit, as Unix time is of our days;
// of a smaller one, which counts from the start of a program, nothing does.
func readTime(stamp string) (at time.Duration, form string, ok bool) {
	whole, fraction, _ := strings.Cut(stamp, ".")
	unit := map[int]time.Duration{10: time.Second, 13: time.Millisecond, 16: time.Microsecond, 19: time.Nanosecond}[len(whole)]
	n, err1 := strconv.ParseInt(whole, 10, 64)
	part, err2 := strconv.ParseFloat("0."+fraction+"0", 64)
	digits := strings.Trim(whole+fraction, "0123456789") == "" // no sign or exponent
	if unit > 0 && digits && err1 == nil && err2 == nil && n < math.MaxInt64/int64(unit) {
		return time.Duration(n)*unit + time.Duration(math.Round(part*float64(unit))), unit.String(), true
	}
	for _, form = range []string{"T15:04:05.999999999Z07:00", "T15:04:05.999999999Z0700", " 15:04:05.999999999Z07:00", " 15:04:05.999999999Z0700", " 15:04:05.999999999Z07", " 15:04:05.999999999"} {
		if t, err := time.Parse(time.DateOnly+form, stamp); err == nil && 1970 <= t.Year() && t.Year() < 2262 {
			return time.Duration(t.UnixNano()), strconv.FormatBool(strings.Contains(form, "Z")), true // with and without a zone
		}
	}
	return 0, "", false
}

// columnOf is which column a name is; -1 for none. It takes note of all names.
func (l *logRows) columnOf(name string, line int) (column int) {
	name = strings.ToLower(strings.TrimSpace(name))
	if _, known := l.seen[name]; !known {
		l.seen[strings.Clone(name)] = int32(line) //nolint:gosec // fewer than fit into memory
	}
	return slices.Index(logColumns(), name)
}

// put sets a column of the line that is read.
func (l *logRows) put(column int, text string) (again bool) {
	_, _ = l.sum.WriteString(text)
	_ = l.sum.WriteByte(0)
	if column < 0 {
		return false
	}
	again, l.has[column], l.record[column] = l.has[column], true, strings.TrimSpace(text)
	return again
}

// begin begins a line.
func (l *logRows) begin() {
	l.record, l.has = [colCount]string{}, [colCount]bool{}
	l.sum.Reset()
}

func (l *logRows) readCSV(data []byte, cut bool) error {
	table := csv.NewReader(bytes.NewReader(data))
	names, err := table.Read()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	table.ReuseRecord = true
	columns := make([]int, len(names))
	for i, name := range names {
		columns[i] = l.columnOf(name, 1)
	}
	for {
		texts, err := table.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		last := cut && table.InputOffset() >= int64(len(data))
		if err == nil {
			line, _ := table.FieldPos(0)
			l.begin()
			for i, text := range texts {
				if l.put(columns[i], text) {
					return fmt.Errorf("line %d: there are two columns %q", line, logColumns()[columns[i]])
				}
			}
			if last { // the last field may go on
				l.record[colToken] = ""
				if column := columns[len(columns)-1]; slices.Contains([]int{colClient, colHost, colLock}, column) {
					err = errors.New("it may go on")
				}
			}
			if err == nil {
				err = l.add(line, names)
			}
		}
		if last && err != nil && len(l.rows) > 0 {
			l.note("the last line was cut off, and is not read: it has no end")
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *logRows) readJSON(data []byte) error {
	values := json.NewDecoder(bytes.NewReader(data))
	values.UseNumber()
	array := data[0] == '['
	if array {
		_, _ = values.Token() // which it begins with
	}
	for n := 1; values.More(); n++ {
		var object map[string]any
		if err := values.Decode(&object); errors.Is(err, io.ErrUnexpectedEOF) && n > 1 {
			l.note("the last object was cut off, and is not read")
			return nil
		} else if err != nil {
			return fmt.Errorf("object %d: %w", n, err)
		}
		l.begin()
		names := slices.Sorted(maps.Keys(object))
		names = slices.DeleteFunc(names, func(name string) bool { return object[name] == nil })
		for _, name := range names {
			_, _ = l.sum.WriteString(name)
			if column := l.columnOf(name, n); l.put(column, fmt.Sprint(object[name])) {
				return fmt.Errorf("object %d: there are two columns %q", n, logColumns()[column])
			}
		}
		if err := l.add(n, names); err != nil {
			return err
		}
	}
	if _, err := values.Token(); array && err != nil {
		l.note("the array does not end: it was cut off")
	}
	return nil
}
