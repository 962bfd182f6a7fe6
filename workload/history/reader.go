package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxLine is the longest line a Reader accepts.
const maxLine = 16 << 20

// A FormatError says which line of a history is wrong and what was expected.
type FormatError struct {
	Line int // from 1
	Err  error
}

func (e *FormatError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *FormatError) Unwrap() error { return e.Err }

// A Reader reads a history event by event and refuses what the format
// forbids: unknown ops and types, missing fields, time that runs backwards, a
// completion without its invocation, a process that does two things at once.
type Reader struct {
	lines *bufio.Reader
	line  int
	next  int64
	last  time.Duration
	open  map[int]Op
	cut   int
}

// NewReader returns a Reader of JSON lines.
func NewReader(r io.Reader) *Reader {
	return &Reader{lines: bufio.NewReaderSize(r, 256<<10), open: map[int]Op{}}
}

// Read returns the next event, io.EOF after the last one, or a [*FormatError].
// A last line that a crash cut short is dropped; [Reader.Truncated] tells.
func (r *Reader) Read() (Event, error) {
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		e, err := r.decode(line)
		if err != nil {
			if cutShort(line, err) {
				r.cut = r.line
				return Event{}, io.EOF
			}
			return Event{}, &FormatError{Line: r.line, Err: err}
		}
		if err := r.accept(&e); err != nil {
			return Event{}, &FormatError{Line: r.line, Err: err}
		}
		return e, nil
	}
}

// Truncated is the number of the last line if it was cut short and dropped,
// else 0.
func (r *Reader) Truncated() int { return r.cut }

func (r *Reader) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if len(line) > maxLine {
				return nil, &FormatError{Line: r.line + 1, Err: fmt.Errorf("longer than %d bytes", maxLine)}
			}
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read history: %w", err)
		default:
			r.line++
			return line, nil
		}
	}
}

// cutShort reports whether err says that the line ends in the middle of its
// JSON. Only the last line has no newline.
func cutShort(line []byte, err error) bool {
	var syntax *json.SyntaxError
	return !bytes.HasSuffix(line, []byte("\n")) && errors.As(err, &syntax) && syntax.Offset >= int64(len(line))
}

// decode parses one line; "time" and "process" must be there even when zero.
func (*Reader) decode(line []byte) (Event, error) {
	var wire struct {
		Time    *time.Duration `json:"time"`
		Process *int           `json:"process"`
		Event
	}
	if err := json.Unmarshal(line, &wire); err != nil {
		return Event{}, fmt.Errorf("want one JSON object a line: %w", err)
	}
	e := wire.Event
	if wire.Time == nil {
		return e, errors.New(`missing "time" (nanoseconds since the run began)`)
	}
	if wire.Process == nil {
		return e, errors.New(`missing "process"`)
	}
	e.Time, e.Process = *wire.Time, *wire.Process
	return e, e.Validate()
}

// accept holds the event against the ones before it and fills in defaults.
func (r *Reader) accept(e *Event) error {
	if e.Time < r.last {
		return fmt.Errorf("time runs backwards: %d after %d", e.Time, r.last)
	}
	if e.Owner == "" && e.Op.onLock() && e.Op != Declare {
		e.Owner = defaultOwner(e.Process)
	}
	if e.Process >= 0 && !e.Op.single() {
		open, busy := r.open[e.Process]
		switch {
		case e.Type == Invoke && busy:
			return fmt.Errorf("process %d invokes %s while its %s is open", e.Process, e.Op, open)
		case e.Type == Invoke:
			r.open[e.Process] = e.Op
		case !busy:
			return fmt.Errorf("%s %s of process %d has no invoke", e.Op, e.Type, e.Process)
		case open != e.Op:
			return fmt.Errorf("process %d completes %s while its %s is open", e.Process, e.Op, open)
		default:
			delete(r.open, e.Process)
		}
	}
	r.last = e.Time
	e.Index = r.next
	r.next++
	return nil
}
