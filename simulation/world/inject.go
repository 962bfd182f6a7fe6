package world

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// An armed fault waits for an event.
type armed struct {
	fault  Fault
	anchor Anchor
	left   int // events until it begins
}

// An active fault lasts until an instant.
type active struct {
	Fault
	until time.Duration
}

func (w *World) tell(n Notice) {
	if w.Notice != nil {
		w.Notice(n)
	}
}

// requested counts a request on a link, and returns the faults of messages that strike
// it. Other faults begin.
func (w *World) requested(link string, commands []string, fresh bool) []Fault {
	var struck []Fault
	w.link(link).requests++
	for _, f := range w.counted(func(a Anchor) bool {
		return a.Event == Request && a.Of == link && (fresh || !a.Fresh) && (a.Command == "" || slices.Contains(commands, a.Command))
	}) {
		if OfMessage(f.Name) {
			struck = append(struck, f)
			w.tell(Notice{Fault: f, Began: true, Target: f.Target})
			w.tell(Notice{Fault: f, Target: f.Target})
			w.counts.Faults++
		} else if f.Name == KillClient { // once the request is sent
			w.after(0, func() { w.strike(f) })
		} else {
			w.strike(f)
		}
	}
	return struck
}

// wrote counts a change of a server's data. Its faults begin once the server has done
// what it is at.
func (w *World) wrote(n *Node, b simredis.Batch) {
	for _, f := range w.counted(func(a Anchor) bool {
		return a.Event == Write && w.node(a.Of) == n && (a.Command == "" || slices.ContainsFunc(b.Commands, func(args []string) bool {
			return strings.EqualFold(args[0], a.Command)
		}))
	}) {
		if f.Lag > 0 { // of which this write is the first
			w.strike(f)
		} else {
			w.after(0, func() { w.strike(f) })
		}
	}
}

// counted are the faults for which an event was the one that they waited for.
func (w *World) counted(matches func(Anchor) bool) []Fault {
	var due []Fault
	w.armed = slices.DeleteFunc(w.armed, func(a *armed) bool {
		if !matches(a.anchor) {
			return false
		}
		a.left--
		if a.left > 0 {
			return false
		}
		due = append(due, a.fault)
		return true
	})
	return due
}

// Forever, as the For of a fault, has it last until it is healed. What it holds up looks
// each so often whether it was.
const (
	Forever = 1000 * time.Hour
	open    = time.Millisecond
)

// Inject has a fault happen, as [World.Start] has those of the plan: at its time, counted from
// now, or at the event for which it waits from then on. It must come after Start. heal ends
// a fault that waited for no event, and lasts.
func (w *World) Inject(f Fault) (heal func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.Validate(f); err != nil {
		return nil, err
	}
	end := w.inject(f)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		end()
	}, nil
}

// inject has a fault happen at its time.
func (w *World) inject(f Fault) (heal func()) {
	end := func() {}
	begin := func() {
		if a, ok := f.anchor(); ok { // it begins to count the events that it waits for
			w.armed = append(w.armed, &armed{f, a, a.Nth})
			return
		}
		end = w.strike(f)
	}
	if f.At > 0 {
		w.after(f.At, begin)
	} else {
		begin()
	}
	return func() { end() }
}

// strike makes a fault happen, and returns what ends it.
func (w *World) strike(f Fault) (heal func()) {
	if f.Target == TheMaster || f.Name == CrashFailover || f.Name == SplitBrain {
		f.Target = w.master
	}
	n := w.node(f.Target)
	fails := f.Name == CrashFailover || f.Name == SplitBrain
	if fails && (n == nil || n.silent || len(n.replicas) == 0) || n != nil && n.down {
		return func() {} // the server is down, or nothing can be promoted
	}
	w.counts.Faults++
	w.tell(Notice{Fault: f, Began: true, Target: f.Target})
	if w.cluster != nil && f.amongNodes() {
		w.cluster.stir()
	}
	end := func() { w.tell(Notice{Fault: f, Target: f.Target}) }
	switch f.Name {
	case Reset:
		w.resetLink(f.Target)
	case Flush:
		n.server.Do("FLUSHALL")
	case KillClient:
		w.zones[f.Target].kill()
	case CrashFailover, SplitBrain:
		return w.failOver(f, n, end)
	default:
		return w.last(f, n, end)
	}
	end()
	return func() {}
}

// last makes a fault that lasts happen, and returns what ends it.
func (w *World) last(f Fault, n *Node, end func()) (finish func()) {
	a := &active{f, w.now() + f.For}
	w.active = append(w.active, a)
	var heal func()
	switch f.Name {
	case Cut:
		w.resetLink(f.Target)
	case Pause:
		if w.master == n.name {
			w.suspect(n)
		}
		heal = func() { w.after(rejoin, func() { w.demote(n) }) }
	case Kill:
		n.crash(f.Keep)
		if w.master == n.name {
			w.suspect(n)
		}
		heal = func() {
			n.restart()
			w.after(rejoin, func() { w.demote(n) })
		}
	case ClockForward:
		n.clock.ahead += f.By
		heal = func() { n.clock.ahead -= f.By }
	case ClockBack:
		n.clock.ahead -= f.By
		heal = func() { n.clock.ahead += f.By }
	case ClockRate:
		n.clock.faster, n.clock.since = float64(f.Percent)/100, w.now()
		heal = func() { n.clock.faster = 0 }
	case ClientForward:
		w.zones[f.Target].Clock.Step(f.By)
		heal = func() { w.zones[f.Target].Clock.Step(-f.By) }
	case ClientBack:
		w.zones[f.Target].Clock.Step(-f.By)
		heal = func() { w.zones[f.Target].Clock.Step(f.By) }
	case ClientSlow:
		w.zones[f.Target].Clock.Slow(float64(f.Percent) / 100)
		heal = func() { w.zones[f.Target].Clock.Slow(0) }
	}
	finish = sync.OnceFunc(func() {
		w.active = slices.DeleteFunc(w.active, func(o *active) bool { return o == a })
		if heal != nil {
			heal()
		}
		end()
	})
	w.after(f.For, finish)
	return finish
}

// failOver replaces the master: it falls silent to its replicas, dies unless it is to go
// on, is replaced, and comes back as a replica.
func (w *World) failOver(f Fault, n *Node, end func()) (finish func()) {
	n.silent = f.Lag > 0 || f.Name == SplitBrain
	if w.cluster != nil {
		w.failOverCluster(f, n, end)
		return func() {}
	}
	finish = sync.OnceFunc(func() {
		n.silent = false
		if n.down {
			n.restart()
		}
		w.demote(n)
		end()
	})
	w.after(f.Lag, func() {
		if w.master != n.name || n.down {
			n.silent = false
			end()
			return
		}
		if f.Name == CrashFailover {
			n.crash(true)
		}
		w.after(f.By, func() { w.promote(n) })
		w.after(max(f.For, f.By+time.Millisecond), finish)
	})
	return finish
}

// failOverCluster leaves it to the nodes of a cluster to replace a master that dies, or
// that they don't reach, and to put it right when it is back.
func (w *World) failOverCluster(f Fault, n *Node, end func()) {
	w.after(f.Lag, func() {
		if n.down {
			n.silent = false
			end()
			return
		}
		w.cluster.stir()
		if n.isolated = f.Name == SplitBrain; !n.isolated {
			n.crash(true)
		}
		w.after(f.For, func() {
			resume := n.silent && n.master == nil
			n.silent, n.isolated = false, false
			if n.down {
				n.restart()
			} else if resume { // its replicas get what they lack
				for _, r := range slices.Clone(n.replicas) {
					if r.node.master == n {
						r.node.follow(n)
					}
				}
			}
			end()
		})
	})
}

// resetLink resets the connections of a link.
func (w *World) resetLink(link string) {
	_, to, _ := strings.Cut(link, ">")
	n := w.node(to)
	if n == nil { // the bus of a cluster, which is opened again
		return
	}
	for _, c := range slices.Clone(n.conns) {
		if c.up.link == link {
			c.reset()
		}
	}
}
