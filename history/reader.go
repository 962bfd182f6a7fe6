package history

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync"
)

// maxLine is the longest line a Reader accepts.
const maxLine = 16 << 20

// bufferSize is how much a Reader reads at a time, in bytes.
const bufferSize = 256 << 10

// A Reader reads a history and refuses what the format
// forbids: of each line what [Event.Validate] says, fields that are there twice or in
// another spelling, bytes that are no UTF-8; and of the lines together time that runs
// backwards, a completion without its invocation or that differs from it, a process that does two things
// at once, two ends of operations of one owner at one instant, a late or second declare.
// No error repeats more than a little of the input.
type Reader struct {
	from   io.Reader
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
	decoder *decoder
	text    []byte
	events  []Event // with their lines, from 1 in the block, for an index
	lines   int
	last    []byte // of these lines
	err     error  // what is wrong with it
	decoded chan struct{}
}

// Events are the events that are left, in lists in order, each of which is good until the next.
// An error comes alone, after the events before it, and is the last: it names the line, or is that of the reader.
//
// The lines are read and decoded on all processors, since that is a third of what the judge of a long history does; all that
// depends on their order is done here.
func (r *Reader) Events() iter.Seq2[[]Event, error] {
	return func(yield func([]Event, error) bool) {
		plain, err := Plain(r.from)
		if err != nil {
			yield(nil, err)
			return
		}
		lines := bufio.NewScanner(plain)
		lines.Buffer(make([]byte, bufferSize), 2*maxLine)
		lines.Split(wholeLines)
		blocks := make([]block, runtime.GOMAXPROCS(0)+2) // each of them is used again and again
		free, read := make(chan *block, len(blocks)), make(chan *block, len(blocks))
		for i := range blocks {
			free <- &blocks[i]
		}
		var running sync.WaitGroup
		defer running.Wait()
		defer func() {
			for close(free); len(free) > 0; { // no more is to be read
				<-free
			}
		}()
		running.Go(func() {
			defer close(read)
			for b := range free {
				if b.decoder == nil {
					b.decoder = newDecoder()
				}
				more := lines.Scan()
				b.text, b.decoded = append(b.text[:0], lines.Bytes()...), make(chan struct{})
				running.Go(b.decodeLines)
				if read <- b; !more {
					return
				}
			}
		})
		for b := range read {
			<-b.decoded
			wrong := r.accept(b)
			if len(b.events) > 0 && !yield(b.events, nil) {
				return
			}
			if wrong != nil {
				yield(nil, wrong)
				return
			}
			free <- b
		}
		if err := lines.Err(); err != nil {
			yield(nil, fmt.Errorf("read history: %w", err))
		}
	}
}

// wholeLines splits what is read into blocks of whole lines: as many as a buffer has, however large it became for a longer
// line, which is a block alone.
func wholeLines(data []byte, last bool) (n int, block []byte, err error) {
	n = bytes.LastIndexByte(data[:min(len(data), bufferSize)], '\n') + 1
	if n == 0 {
		n = bytes.IndexByte(data, '\n') + 1
	}
	if n == 0 && (last || len(data) > maxLine) {
		n = len(data)
	}
	if n == 0 {
		return 0, nil, nil // more is needed, if there is
	}
	return n, data[:n], nil
}

// accept holds the events of a block against those before them, and leaves those out that are wrong.
func (r *Reader) accept(b *block) error {
	before := r.line
	r.line += b.lines
	for i := range b.events {
		line := before + int(b.events[i].Index)
		if err := r.events.accept(&b.events[i]); err != nil {
			b.events = b.events[:i]
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	if b.err != nil && r.line == 1 {
		b.err = cmp.Or(marked(b.last), b.err)
	}
	switch {
	case b.err == nil:
		return nil
	case cutShort(b.last, b.err):
		r.cut = r.line
		return nil
	default:
		return fmt.Errorf("line %d: %w", r.line, b.err)
	}
}

// Plain returns a reader of what r has: decompressed, if it begins as gzip does.
func Plain(r io.Reader) (io.Reader, error) {
	lines := bufio.NewReader(r)
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
	if errors.Is(err, errNUL) {
		err = newDecoder().decode(bytes.TrimRight(line, "\x00"))
	}
	return !bytes.HasSuffix(line, []byte("\n")) && (err == nil || errors.Is(err, errCut))
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
