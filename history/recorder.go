package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// flushBytes and flushEvery bound how much of a history a crash of the recording process can
// lose, without a system call an event.
const (
	flushBytes = 64 << 10
	flushEvery = 50 * time.Millisecond
)

// A Recorder stamps events and appends them to a writer as JSON lines.
//
// The sequence number and the stamp are taken in one critical section, so that
// file order is time order; stamps strictly increase over all processes. It is
// safe for concurrent use. Create it with [NewRecorder]; the caller closes the
// writer after [Recorder.Close].
type Recorder struct {
	mu      sync.Mutex
	w       io.Writer
	buf     bytes.Buffer  // lines
	lines   *json.Encoder // to buf
	base    time.Time
	flushed time.Duration // the time of the last event that was
	events  sequence
	filled  Event // the last one, which is kept here so that none is allocated for each
	closed  bool
	also    *[]Event // gets what is written
	err     error    // of the writer, which is final
	wrong   error    // the first event that breaks the format
}

// NewRecorder returns a recorder whose clock starts now. Without a writer, which is nil, it makes no lines: its events are
// those that it collects.
func NewRecorder(w io.Writer) *Recorder {
	r := &Recorder{w: w, base: time.Now(), events: newSequence()}
	r.lines = json.NewEncoder(&r.buf)
	r.lines.SetEscapeHTML(false)
	return r
}

// Collect has every event appended to a list too, as it is written, so that the recording
// process need not read its own lines. The maps and slices of an event are those that
// were recorded, which must not change any more. It must come before the first event; the
// list is complete after [Recorder.Close].
func (r *Recorder) Collect(into *[]Event) { r.also = into }

// Start is the instant of offset 0, with a monotonic reading.
func (r *Recorder) Start() time.Time { return r.base }

// Record stamps e with its index and time, appends it and returns it as it was
// written. An invoke must be recorded before its request is sent, a
// completion after its reply was read. After [Recorder.Close] nothing is recorded and e
// comes back with Index -1.
func (r *Recorder) Record(e Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Time = time.Since(r.base)
	if r.closed {
		e.Index = -1
	} else {
		r.append(&e)
	}
	return e
}

// append stamps an event that is not before the last one, and makes a line of it. An event that breaks the format
// is written, and the first of them is the error of the recording.
func (r *Recorder) append(e *Event) {
	e.Time, e.Index = max(e.Time, r.events.last+1), r.events.next
	if r.also != nil {
		*r.also = append(*r.also, *e)
	}
	var err error
	r.filled = *e   // what was recorded stays as it is
	if r.w != nil { // else it is validated by whatever writes it
		err = cmp.Or(r.lines.Encode(&r.filled), r.filled.Validate())
	}
	if err = cmp.Or(err, r.events.accept(&r.filled)); err != nil && r.wrong == nil {
		r.wrong = fmt.Errorf("record event %d: %w", e.Index, err)
	}
	if e.Time-r.flushed >= flushEvery || r.buf.Len() >= flushBytes {
		r.flush()
	}
}

func (r *Recorder) flush() {
	r.flushed = r.events.last
	if r.err == nil && r.buf.Len() > 0 {
		if _, err := r.w.Write(r.buf.Bytes()); err != nil {
			r.err = fmt.Errorf("write history: %w", err)
		}
	}
	r.buf.Reset() // also after an error, which is final
}

// Close writes every operation that is still open as an info, flushes, and
// reports the first error of the recording. A second Close does nothing.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.Join(r.err, r.wrong)
	}
	r.closed = true
	for _, open := range slices.SortedFunc(maps.Values(r.events.open), func(a, b *Event) int { return cmp.Compare(a.Index, b.Index) }) {
		e := *open
		e.Time = time.Since(r.base)
		e.Type, e.Error = Info, "still open at the end of the run"
		r.append(&e)
	}
	r.flush()
	return errors.Join(r.err, r.wrong)
}

// Events is how many events the recorder has written; all of them after [Recorder.Close].
func (r *Recorder) Events() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events.next
}
