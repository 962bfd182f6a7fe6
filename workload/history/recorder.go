package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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
	buf     bytes.Buffer
	enc     *json.Encoder
	base    time.Time
	last    time.Duration
	flushed time.Duration
	next    int64
	open    map[int]Event // the invoke that each process has open
	closed  bool
	err     error
}

// NewRecorder returns a recorder whose clock starts now.
func NewRecorder(w io.Writer) *Recorder {
	r := &Recorder{w: w, base: time.Now(), open: map[int]Event{}}
	r.enc = json.NewEncoder(&r.buf)
	r.enc.SetEscapeHTML(false)
	return r
}

// Start is the instant of offset 0, with a monotonic reading.
func (r *Recorder) Start() time.Time { return r.base }

// Offset is where t lies on the history's time axis.
func (r *Recorder) Offset(t time.Time) time.Duration { return t.Sub(r.base) }

// Record stamps e with its index and time, appends it and returns it as it was
// written. An invoke must be recorded before its request is sent, a completion
// after its reply was read. After [Recorder.Close] nothing is recorded and e
// comes back with Index -1.
func (r *Recorder) Record(e Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		e.Index = -1
		return e
	}
	return r.append(e)
}

func (r *Recorder) append(e Event) Event {
	e.Time = max(time.Since(r.base), r.last+1)
	e.Index = r.next
	r.last = e.Time
	r.next++
	if e.Process >= 0 && !e.Op.single() {
		if e.Type == Invoke {
			r.open[e.Process] = e
		} else {
			delete(r.open, e.Process)
		}
	}
	if err := r.enc.Encode(&e); err != nil && r.err == nil {
		r.err = fmt.Errorf("encode event %d: %w", e.Index, err)
	}
	if r.buf.Len() >= flushBytes || e.Time-r.flushed >= flushEvery {
		r.flush()
	}
	return e
}

func (r *Recorder) flush() {
	r.flushed = r.last
	if r.err == nil && r.buf.Len() > 0 {
		if _, err := r.w.Write(r.buf.Bytes()); err != nil {
			r.err = fmt.Errorf("write history: %w", err)
		}
	}
	r.buf.Reset() // also after an error, which is final
}

// Flush writes what is buffered and reports the first error of the recording.
func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	return r.err
}

// Close writes every operation that is still open as an info, flushes, and
// reports the first error of the recording. A second Close does nothing.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.err
	}
	for len(r.open) > 0 {
		e := r.oldestOpen()
		e.Type, e.Error = Info, "still open at the end of the run"
		r.append(e)
	}
	r.closed = true
	r.flush()
	return r.err
}

// oldestOpen makes the order of the closing infos independent of map order.
func (r *Recorder) oldestOpen() Event {
	oldest := Event{Index: -1}
	for _, e := range r.open {
		if oldest.Index < 0 || e.Index < oldest.Index {
			oldest = e
		}
	}
	return oldest
}
