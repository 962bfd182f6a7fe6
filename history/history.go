package history

import (
	"cmp"
	"io"
	"math"
	"time"
)

// Never is the time of what no event of the history brings about, such as the
// end of a hold that nothing ends.
const Never time.Duration = math.MaxInt64

// A History is everything that was recorded of a run, in order: Events[i] has
// Index i.
type History struct {
	Events []Event
	// Truncated is the line number of a last line that was cut short and
	// dropped; 0 if there was none.
	Truncated int
}

// An Owner is one of a lock.
type Owner struct{ Lock, Name string }

// Accept says what a [Reader] would refuse of the events, and fills in what it would: for what makes
// events otherwise. The error is of the first event that is wrong, of which it does not tell the place.
func (h *History) Accept() error {
	all := newSequence()
	for i := range h.Events {
		if err := cmp.Or(h.Events[i].Validate(), all.accept(&h.Events[i])); err != nil {
			return err
		}
	}
	return nil
}

// ReadAll reads a whole history. Its errors name the line; what comes before it is in the history.
func ReadAll(r io.Reader) (*History, error) {
	h, reader := &History{}, NewReader(r)
	for events, err := range reader.Events() {
		if err != nil {
			return h, err
		}
		h.Events = append(h.Events, events...)
	}
	h.Truncated = reader.Truncated()
	return h, nil
}

// End is the time of the last event; 0 for an empty history.
func (h *History) End() time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].Time
}

// The kinds of lock that a Declare names.
const (
	KindMutex     = "mutex"     // one holder
	KindRW        = "rw"        // one writer, or any number of readers
	KindSemaphore = "semaphore" // as many permits as its capacity
)

// Guarantees are what a lock promises: its Declare with the defaults filled in.
type Guarantees struct {
	Kind      string // mutex, rw or semaphore; without a Declare as its modes tell
	Reentrant bool
	Fair      bool
	Capacity  int           // permits of a semaphore, the most that it had; 0 if it was not declared
	Drift     time.Duration // clock error allowed per lease
	Fenced    bool          // a token was seen, unless declared otherwise
}
