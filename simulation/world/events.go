package world

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// happened counts the events of all worlds.
var happened atomic.Int64 //nolint:gochecknoglobals // a process has one run at a time, and what watches it is outside of its bubble

// Events is how many events there were in all worlds of this process. It may be called
// outside of their bubbles.
func Events() int64 { return happened.Load() }

// An event is something that happens at an instant of its own.
type event struct {
	at time.Duration
	do func()
}

// unique is the instant, or the first one after it at which nothing else happens: of two
// timers at the same instant the runtime runs either one first.
func (w *World) unique(at time.Duration) time.Duration {
	past, _ := slices.BinarySearch(w.used, w.now())
	w.used = w.used[past:]
	i, taken := slices.BinarySearch(w.used, at)
	for ; taken; taken = i < len(w.used) && w.used[i] == at {
		at++
		i++
	}
	w.used = slices.Insert(w.used, i, at)
	return at
}

// after has something done so long from now, or at the first free instant after that.
func (w *World) after(d time.Duration, do func()) { w.at(w.now()+max(d, 0), do) }

// at has something done at a time of the world, or at the first free instant after it.
func (w *World) at(at time.Duration, do func()) {
	e := event{w.unique(max(at, w.now())), do}
	i, _ := slices.BinarySearchFunc(w.events, e.at, func(o event, at time.Duration) int { return cmp.Compare(o.at, at) })
	w.events = slices.Insert(w.events, i, e)
	if w.timer != nil && i == 0 {
		w.timer.Reset(e.at - w.now())
	}
}

// drive runs events at their times. One goroutine does so for all, so that the clients
// have reacted to one event, as far as they do at once, before the next comes.
func (w *World) drive() {
	defer close(w.stopped)
	for over := false; !over; {
		<-w.timer.C
		w.mu.Lock()
		for len(w.events) > 0 && w.events[0].at <= w.now() && !w.over {
			e := w.events[0]
			w.events = slices.Delete(w.events, 0, 1)
			e.do()
			happened.Add(1)
		}
		if over = w.over; len(w.events) > 0 && !over {
			w.timer.Reset(w.events[0].at - w.now())
		}
		w.mu.Unlock()
	}
}
