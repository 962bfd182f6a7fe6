package transport

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

const (
	// ShortPatience is how long a caller waits for the answer to a request for a lock that it sends by itself:
	// so long a call whose context ends may go on. A server that is silent for longer is asked again
	// by a goroutine, which the caller can leave.
	ShortPatience = 25 * time.Millisecond
	// LongPatience is that for a release. Where its answer is lost, the next one can't tell whether the first one released the
	// lock or whether it was lost, so a server that is slow for a moment is awaited.
	LongPatience = 250 * time.Millisecond
	// directLatency is how long the server may have taken at best, lately, for that.
	directLatency = ShortPatience / 5
)

// Direct sends a call once, by the goroutine of its caller, and waits for the answer for no longer
// than its patience, one of the two above, whatever the context says. ok is false if it sent nothing: to several servers, by a Redis client
// of which a request can't be ended so soon (see quickly), to a server that did not answer the last request or takes longer than
// 5 ms, and while other requests are under way, with which this one may share a pipeline.
//
// To hand a request to a goroutine and to be woken by it takes as much processor time as the request: row
// uncontended-1 of docs/benchmarks.md falls by a third without this.
//
// The reply says the same as that of Run, of one try.
func (w *Transport) Direct(ctx context.Context, s Call, patience time.Duration) (r Reply, ok bool) {
	p := w.quickly(patience)
	if p == nil {
		return Reply{}, false
	}
	generation, ok := w.pipeliner.takeAlone()
	if !ok {
		return Reply{}, false
	}
	begin := time.Now()
	answered := false
	defer func() { w.pipeliner.freeSlot(begin, generation, 1, answered) }() // also where a hook panics
	ctx, cancel := context.WithTimeout(ctx, patience)                       // which a dial and the wait for a connection heed as well
	defer cancel()
	c := &queuedCall{call: s}
	w.send(ctx, p, []*queuedCall{c})
	answered = !unanswered(c)
	return c.reply, true
}

// quickly is a pipeline whose requests end after that time, or with a deadline; nil if neither is possible. A clone with
// a short timeout shares the connections of the Redis client and has none of its hooks, of which one may put a prefix
// before keys, so that another lock would be taken.
func (w *Transport) quickly(patience time.Duration) redis.Pipeliner {
	switch {
	case w.hooks.none():
		return w.quick[patience].Pipeline()
	case w.heedsDeadlines:
		return w.rdb.Pipeline()
	default:
		return nil
	}
}

// hooks tell whether a Redis client has any: no exported function of go-redis does. The zero value says that it may.
type hooks struct {
	at    *unsafe.Pointer // where it has them, in a value that is replaced when one is added
	empty unsafe.Pointer  // the value without any
}

// none reports whether no hook was added so far.
func (h hooks) none() bool { return h.at != nil && atomic.LoadPointer(h.at) == h.empty }

// hooksOf finds the hooks of a Redis client that has none yet. The result is the zero value if it has one, and with
// a version of go-redis that keeps them in another way.
func hooksOf(rdb *redis.Client) hooks {
	at := field(field(reflect.ValueOf(rdb), "hooksMixin"), "state") // an *atomic.Pointer[hooksState]
	value := field(at, "v")
	if value.Kind() != reflect.UnsafePointer || value.IsNil() {
		return hooks{}
	}
	for i := range at.Type().Elem().NumField() {
		if t := at.Type().Elem().Field(i).Type; t.Kind() == reflect.Array && t.Elem().Kind() == reflect.Pointer { // as atomic.Pointer says its type
			added := field(reflect.NewAt(t.Elem().Elem(), value.UnsafePointer()), "slice")
			if added.Kind() == reflect.Slice && added.Len() == 0 {
				return hooks{(*unsafe.Pointer)(value.Addr().UnsafePointer()), value.UnsafePointer()}
			}
		}
	}
	return hooks{}
}

// field is a field of a struct, or of what a pointer to one leads to; the zero Value if there is none.
func field(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// takeAlone takes a slot for a call that is sent alone, if nothing else is under way, nor was when the last call was
// sent, and the server is known to answer soon.
func (l *pipeliner) takeAlone() (generation int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent || l.lastBatch > 1 || l.inUse+l.abandoned+len(l.queue) > 0 || min(l.best, l.bestBefore) > directLatency {
		return 0, false
	}
	l.inUse++
	return l.generation, true
}
