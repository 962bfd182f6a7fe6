package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// withoutKilled is the history without what the goroutines of processes recorded after
// these were killed, each at its time. What a process had under way then is unknown, and
// it crashes.
func withoutKilled(recorded []history.Event, killed map[string]time.Duration) []history.Event {
	written := make([]history.Event, 0, len(recorded))
	write := func(e history.Event) {
		if e.Index = int64(len(written)); e.Index > 0 {
			e.Time = max(e.Time, written[e.Index-1].Time+1)
		}
		written = append(written, e)
	}
	last, open := map[int]history.Event{}, map[int]bool{} // by process, in zones that are killed
	for _, e := range recorded {
		zone := zoneOf(e)
		at, dies := killed[zone]
		switch {
		case !dies:
		case e.Time > at:
			continue
		case e.Op != history.Lost: // which begins and ends nothing
			last[e.Process], open[e.Process] = e, e.Type == history.Invoke
		}
		write(e)
		if e.Op != history.Inject || e.Type != history.OK || killed[e.Target] != e.Time {
			continue
		}
		var processes []int
		for process, l := range last {
			if zoneOf(l) == e.Target {
				processes = append(processes, process)
			}
		}
		slices.Sort(processes)
		for _, process := range processes {
			l := last[process]
			if open[process] {
				l.Type, l.Error, l.Time = history.Info, "the client was killed", e.Time
				write(l)
			}
			write(history.Event{Process: process, Op: history.Crash, Type: history.Info, Lock: l.Lock, Owner: l.Owner, Time: e.Time})
		}
	}
	return written
}

// zoneOf is the zone of the client that an event is of; empty if it is of none.
func zoneOf(e history.Event) string {
	if e.Process == history.NoProcess {
		return ""
	}
	zone, _, _ := strings.Cut(e.Owner, ".")
	return zone
}
