package history

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"
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

// A Reader reads a history and refuses what the format
// forbids: of each line what [Event.Validate] says, fields that are there twice or in
// another spelling, bytes that are no UTF-8; and of the lines together time that runs
// backwards, a completion without its invocation or that differs from it, a process that does two things
// at once, two ends of operations of one owner at one instant, a late or second declare.
// No error repeats more than a little of the input.
type Reader struct {
	from   io.Reader
	rest   []byte // the beginning of a line
	events sequence
	line   int
	cut    int
}

// NewReader returns a Reader of JSON lines, plain or compressed by gzip: it
// tells by the first two bytes.
func NewReader(r io.Reader) *Reader { return &Reader{from: r, events: newSequence()} }

// Truncated is the number of the last line if a crash cut it short, so that it was dropped;
// else 0.
func (r *Reader) Truncated() int { return r.cut }

// A block is some lines, and the events that they are.
type block struct {
	text    []byte
	events  []Event // with their lines, from 1 in the block, for an index
	lines   int
	last    []byte // of these lines
	err     error  // what is wrong with it
	decoded chan struct{}
}

// Events are the events that are left, in lists in order, each of which is good until the next.
// An error comes alone, after the events before it, and is the last: a [*FormatError], or that of the reader.
//
// The lines are decoded on all processors, since that is a third of what the judge of a long history does; all that
// depends on their order is done here.
func (r *Reader) Events() iter.Seq2[[]Event, error] {
	return func(yield func([]Event, error) bool) {
		plain, err := Plain(r.from)
		if err != nil {
			yield(nil, err)
			return
		}
		r.from = plain
		decoders := runtime.GOMAXPROCS(0)
		work := make(chan *block, decoders)
		var running sync.WaitGroup
		for range decoders {
			running.Go(func() {
				d := newDecoder()
				for b := range work {
					d.block(b)
					close(b.decoded)
				}
			})
		}
		defer running.Wait()
		defer close(work)
		var under, spare []*block // those that are decoded, in order
		for err == nil {
			b := &block{}
			if last := len(spare) - 1; last >= 0 {
				b, spare = spare[last], spare[:last]
			}
			if err = r.read(b); len(b.text) > 0 {
				b.decoded = make(chan struct{})
				work <- b
				under = append(under, b)
			}
			for len(under) > 0 && (err != nil || len(under) > decoders) {
				b, under = under[0], under[1:]
				<-b.decoded
				wrong := r.accept(b)
				if len(b.events) > 0 && !yield(b.events, nil) {
					return
				}
				if wrong != nil {
					yield(nil, wrong)
					return
				}
				spare = append(spare, b)
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, err)
		}
	}
}

// read reads a block of whole lines. With its error, it is the last.
func (r *Reader) read(b *block) error {
	text := append(b.text[:0], r.rest...)
	for {
		text = slices.Grow(text, bufferSize/2)
		n, err := r.from.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		end := bytes.LastIndexByte(text, '\n') + 1
		switch {
		case errors.Is(err, io.EOF):
			b.text, r.rest = text, nil
			return err
		case err != nil: // also where there is the beginning of a line
			b.text = text[:end]
			return fmt.Errorf("read history: %w", err)
		case end > 0 || len(text) > maxLine:
			if end == 0 {
				end = len(text) // which is too long
			}
			b.text, r.rest = text[:end], append(r.rest[:0], text[end:]...)
			return nil
		}
	}
}

// accept holds the events of a block against those before them, and leaves those out that are wrong.
func (r *Reader) accept(b *block) error {
	before := r.line
	r.line += b.lines
	for i := range b.events {
		line := before + int(b.events[i].Index)
		if err := r.events.accept(&b.events[i]); err != nil {
			b.events = b.events[:i]
			return &FormatError{Line: line, Err: err}
		}
	}
	switch {
	case b.err == nil:
		return nil
	case r.line == 1 && marked(b.last) != nil:
		return &FormatError{Line: 1, Err: marked(b.last)}
	case cutShort(b.last, b.err):
		r.cut = r.line
		return nil
	default:
		return &FormatError{Line: r.line, Err: b.err}
	}
}

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

// cutShort reports whether err says that the line ends in the middle of its
// JSON, or in bytes that a power cut left. Only the last line has no newline.
func cutShort(line []byte, err error) bool {
	switch {
	case bytes.HasSuffix(line, []byte("\n")):
		return false
	case errors.Is(err, errNUL):
		line = bytes.TrimRight(line, "\x00")
		if len(bytes.TrimSpace(line)) == 0 {
			return true
		}
		err = newDecoder().decode(line)
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
