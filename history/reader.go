package history

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// maxLine is the longest line a Reader accepts.
const maxLine = 16 << 20

// bufferSize is how much a Reader reads at a time, in bytes.
const bufferSize = 256 << 10

// A FormatError says which line of a history is wrong and what was expected.
type FormatError struct {
	Line int // from 1
	Err  error
}

func (e *FormatError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *FormatError) Unwrap() error { return e.Err }

// A Reader reads a history event by event and refuses what the format
// forbids: of each line what [Event.Validate] says, fields that are there twice or in
// another spelling, bytes that are no UTF-8; and of the lines together time that runs
// backwards, a completion without its invocation or that differs from it, a process that does two things
// at once, two ends of operations of one owner at one instant, a late or second declare.
// No error repeats more than a little of the input.
type Reader struct {
	from    io.Reader
	lines   *bufio.Scanner // nil before the first line
	decoder *decoder
	events  sequence
	line    int
	cut     int
}

// NewReader returns a Reader of JSON lines, plain or compressed by gzip: it
// tells by the first two bytes.
func NewReader(r io.Reader) *Reader {
	return &Reader{from: r, events: newSequence(), decoder: newDecoder()}
}

// Read returns the next event, io.EOF after the last one, or a [*FormatError].
// A last line that a crash cut short is dropped; [Reader.Truncated] tells.
func (r *Reader) Read() (Event, error) {
	var e Event
	err := r.read(&e)
	return e, err
}

// ReadSome appends events to list until it is full (its capacity stays what it
// is), and returns it with the error of [Reader.Read] if there are no more.
func (r *Reader) ReadSome(list []Event) ([]Event, error) {
	for len(list) < cap(list) {
		list = list[:len(list)+1]
		if err := r.read(&list[len(list)-1]); err != nil {
			return list[:len(list)-1], err
		}
	}
	return list, nil
}

func (r *Reader) read(e *Event) error {
	for {
		line, err := r.readLine()
		if err != nil {
			return err
		}
		if r.line == 1 {
			if err := marked(line); err != nil {
				return &FormatError{Line: 1, Err: err}
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := r.decoder.decode(line, e); err != nil {
			if r.cutShort(line, err) {
				r.cut = r.line
				return io.EOF
			}
			return &FormatError{Line: r.line, Err: err}
		}
		if err := r.events.accept(e); err != nil {
			return &FormatError{Line: r.line, Err: err}
		}
		return nil
	}
}

// Truncated is the number of the last line if it was cut short and dropped,
// else 0.
func (r *Reader) Truncated() int { return r.cut }

// Plain returns a reader of what r has: decompressed, if it begins as gzip does.
func Plain(r io.Reader) (io.Reader, error) {
	lines := bufio.NewReaderSize(r, bufferSize)
	magic, err := lines.Peek(2)
	if err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return lines, nil //nolint:nilerr // whatever is wrong, the first read will say it
	}
	plain, err := gzip.NewReader(lines)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return plain, nil
}

// readLine returns a line, with its newline, which is good until the next one is read.
func (r *Reader) readLine() ([]byte, error) {
	if r.lines == nil {
		plain, err := Plain(r.from)
		if err != nil {
			return nil, err
		}
		r.lines = bufio.NewScanner(plain)
		r.lines.Buffer(make([]byte, 0, bufferSize), maxLine)
		r.lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
			n := bytes.IndexByte(data, '\n') + 1
			if n == 0 && atEOF {
				n = len(data)
			}
			if n == 0 {
				return 0, nil, nil
			}
			return n, data[:n], nil
		})
	}
	if r.lines.Scan() && (r.lines.Err() == nil || bytes.HasSuffix(r.lines.Bytes(), []byte("\n"))) { // whole before an error
		r.line++
		return r.lines.Bytes(), nil
	}
	switch err := r.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &FormatError{Line: r.line + 1, Err: fmt.Errorf("longer than %d bytes", maxLine)}
	case err != nil: // also where there is the beginning of a line
		return nil, fmt.Errorf("read history: %w", err)
	default:
		return nil, io.EOF
	}
}

// cutShort reports whether err says that the line ends in the middle of its
// JSON, or in bytes that a power cut left. Only the last line has no newline.
func (r *Reader) cutShort(line []byte, err error) bool {
	switch {
	case bytes.HasSuffix(line, []byte("\n")):
		return false
	case errors.Is(err, errNUL):
		var e Event
		line = bytes.TrimRight(line, "\x00")
		if len(bytes.TrimSpace(line)) == 0 {
			return true
		}
		err = r.decoder.decode(line, &e)
		return err == nil || errors.Is(err, errCut)
	default:
		return errors.Is(err, errCut)
	}
}

// marked says what is wrong with a file by its first bytes.
func marked(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte("\xef\xbb\xbf")):
		return errors.New("the file begins with a byte order mark (U+FEFF); want UTF-8 without one")
	case bytes.HasPrefix(line, []byte("\xff\xfe")), bytes.HasPrefix(line, []byte("\xfe\xff")):
		return errors.New("the file is UTF-16; want UTF-8")
	default:
		return nil
	}
}
