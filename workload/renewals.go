package workload

import (
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
)

// Renewals records what the watchdog of a lock client does: each renewal is an
// extend, by a process of its own, for the owner of the hold. It is a
// [lock.Observer]; make it with [NewRenewals].
//
// While a client asks for several locks at once, what renews those that it has until
// then is no extend of a hold of which the history knows: it is given back without a
// word if the others can't be had. Else the grants that are recorded end each when the last answer for its lock said: their
// hold ends with the first of them.
type Renewals struct {
	recorder  *history.Recorder
	processes *Processes
	open      sync.Map // by the grant's request, the extends under way, or the [parts] that are renewed
}

// parts are the locks that an owner has of several for which it asks at once.
type parts struct {
	mu      sync.Mutex
	ends    map[string]time.Duration // of what was granted or renewed, by its lock
	granted bool                     // all, as is recorded
}

// keep keeps an end until all are granted. It reports whether they were not yet.
func (p *parts) keep(name string, end time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.granted {
		p.ends[name] = max(p.ends[name], end)
	}
	return !p.granted
}

// NewRenewals returns an observer that records to r.
func NewRenewals(r *history.Recorder, p *Processes) *Renewals {
	return &Renewals{recorder: r, processes: p}
}

// Observe records the beginning and the end of a renewal, and keeps what each of several
// locks was granted for; other events are the client's own.
func (o *Renewals) Observe(e lock.Event) {
	switch e.Kind {
	case lock.Acquired:
		if p, several := o.processes.acquiring.Load(e.Lease.Owner); several && e.Err == nil {
			p.(*parts).keep(e.Lease.Name, Expiry(o.recorder, e.Lease)) //nolint:forcetypeassert // what [Client.Ask] stores
		}
	case lock.Renewing:
		begun, several := o.processes.acquiring.Load(e.Lease.Owner)
		if !several {
			begun = o.begin(e.Lease)
		}
		o.open.Store(e.Lease.Request, begun)
	case lock.Renewed:
		begun, ok := o.open.LoadAndDelete(e.Lease.Request)
		if !ok {
			return
		}
		expires := time.Duration(0)
		if e.Err == nil {
			expires = Expiry(o.recorder, e.Lease)
		}
		end, whole := begun.(history.Event)
		if !whole {
			if p, _ := begun.(*parts); p.keep(e.Lease.Name, expires) {
				return
			}
			end = o.begin(e.Lease) // all were granted meanwhile
		}
		end.Type, end.Expires = Outcome(e.Err, lock.ErrNotHeld), expires
		if e.Err != nil {
			end.Error = e.Err.Error()
		}
		o.recorder.Record(end)
	default:
	}
}

func (o *Renewals) begin(l lock.Lease) history.Event {
	return o.recorder.Record(history.Event{
		Process: o.processes.New(), Op: history.Extend, Type: history.Invoke, Lock: l.Name, Owner: l.Owner, Lease: l.Length,
	})
}
