package workload

import (
	"sync"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
)

// Renewals records what the watchdog of a lock client does: each renewal is an
// extend, by a process of its own, for the owner of the hold. While a client asks
// for several locks at once, what renews those that it has until then is not
// recorded: they are no hold of which the history knows, and are given back
// without a word if the others can't be had. It is a [lock.Observer]; make it with
// [NewRenewals].
type Renewals struct {
	recorder  *history.Recorder
	processes *Processes
	open      sync.Map // the extends under way, by the grant's request
}

// NewRenewals returns an observer that records to r.
func NewRenewals(r *history.Recorder, p *Processes) *Renewals {
	return &Renewals{recorder: r, processes: p}
}

// Observe records the beginning and the end of a renewal; other events are the
// client's own.
func (o *Renewals) Observe(e lock.Event) {
	switch e.Kind {
	case lock.Renewing:
		if _, several := o.processes.acquiring.Load(e.Lease.Owner); several {
			return
		}
		begin := history.Event{
			Process: o.processes.New(), Op: history.Extend, Type: history.Invoke,
			Lock: e.Lease.Name, Owner: e.Lease.Owner, Lease: e.Lease.Length,
		}
		o.open.Store(e.Lease.Request, o.recorder.Record(begin))
	case lock.Renewed:
		begun, ok := o.open.LoadAndDelete(e.Lease.Request)
		if !ok {
			return
		}
		end, _ := begun.(history.Event)
		end.Type = Outcome(e.Err, lock.ErrNotHeld)
		if e.Err != nil {
			end.Error = e.Err.Error()
		} else {
			end.Expires = Expiry(o.recorder, e.Lease)
		}
		o.recorder.Record(end)
	default:
	}
}
