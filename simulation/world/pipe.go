package world

import "time"

// A pipe is one direction of a connection, or of a stream between servers: what is sent
// arrives in order, and not while a fault holds it up.
type pipe struct {
	w        *World
	link     string // such as zone-a>redis-1
	stream   string // Upstream or Downstream
	from, to string
	queue    []message
}

type message struct {
	at      time.Duration
	deliver func()
}

// send has something delivered after the latency of the link and so much more.
func (p *pipe) send(more time.Duration, deliver func()) {
	p.w.counts.Messages++
	p.queue = append(p.queue, message{p.w.now() + p.w.link(p.link).latency() + more, deliver})
	if len(p.queue) == 1 {
		p.w.at(p.queue[0].at, p.next)
	}
}

// next delivers the first message, unless a fault holds it up.
func (p *pipe) next() {
	if until := p.w.heldUntil(p); until > p.w.now() {
		p.w.at(until, p.next)
		return
	}
	m := p.queue[0]
	p.queue[0] = message{}
	p.queue = p.queue[1:]
	m.deliver()
	if len(p.queue) > 0 {
		p.w.at(p.queue[0].at, p.next)
	}
}

// heldUntil is the end of the faults that hold the pipe up now.
func (w *World) heldUntil(p *pipe) time.Duration {
	var until time.Duration
	for _, a := range w.active {
		holds := false
		switch a.Name {
		case Stall:
			holds = a.Target == p.link && (a.Stream == "" || a.Stream == Both || a.Stream == p.stream)
		case Pause:
			holds = a.Target == p.from || a.Target == p.to
		case PauseClient:
			holds = a.Target == p.to
		}
		if holds {
			if a.For == Forever {
				until = max(until, w.now()+open)
			} else {
				until = max(until, a.until)
			}
		}
	}
	return until
}
