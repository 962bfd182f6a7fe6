package proxynet

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// interceptors judge the messages of a link. Its zero value is empty.
type interceptors struct {
	mu     sync.Mutex
	judges []*func(traffic.Message) traffic.Action
}

// judge is what becomes of a message. The first who does not let it pass
// decides, and the others are not asked.
func (b *interceptors) judge(m traffic.Message) traffic.Action {
	b.mu.Lock()
	judges := slices.Clone(b.judges)
	b.mu.Unlock()
	for _, judge := range judges {
		if fate := (*judge)(m); fate != (traffic.Action{}) {
			return fate
		}
	}
	return traffic.Action{}
}

// Judge has every message that passes the link judged, until the returned
// function was called; a message that is being judged at that moment still is.
// Messages of one connection are judged one at a time, in the order of their
// stream, those of several at the same time. It fails for links on which no
// client talks to a server.
func (w *Link) Judge(judge func(traffic.Message) traffic.Action) (stop func(), err error) {
	if !w.talks() {
		return nil, fmt.Errorf("what passes %s can't be read: it is no client's link", w.Name())
	}
	w.interceptors.mu.Lock()
	defer w.interceptors.mu.Unlock()
	w.interceptors.judges = append(w.interceptors.judges, &judge)
	return func() {
		w.interceptors.mu.Lock()
		defer w.interceptors.mu.Unlock()
		w.interceptors.judges = slices.DeleteFunc(w.interceptors.judges, func(other *func(traffic.Message) traffic.Action) bool { return other == &judge })
	}, nil
}

// talks reports whether commands and replies pass the link.
func (w *Link) talks() bool {
	return !w.unread && (w.Link.Kind == topologies.Client || w.Link.Kind == topologies.Monitor)
}

// cutters take both streams of a connection apart, and have what they find
// judged; they are nil if nothing judges.
func cutters(judge func(traffic.Message) traffic.Action) (up, down func([]byte) []part) {
	if judge == nil {
		return nil, nil
	}
	var mu sync.Mutex
	var talk traffic.Conversation
	cutter := func(upstream bool, read func([]byte) []traffic.Chunk) func([]byte) []part {
		return func(b []byte) []part {
			mu.Lock()
			defer mu.Unlock()
			if b == nil {
				return []part{{data: talk.Rest(upstream)}}
			}
			var parts []part
			for _, piece := range read(b) {
				p := part{data: piece.Data}
				if piece.Kind != 0 {
					p.fate = judge(piece.Message)
				}
				parts = append(parts, p)
			}
			return parts
		}
	}
	return cutter(true, talk.Upstream), cutter(false, talk.Downstream)
}

// requests counts those of a link.
type requests struct {
	begun   atomic.Int64
	open    atomic.Int64 // begun, and not answered
	refused atomic.Int64 // connections that were begun, and refused
}

// Requests is how many requests came by the link so far, and how many of them are
// not answered: the commands of clients, but for those by which a connection is
// made, kept or subscribed; and connections that a client tried to open and that were
// refused, of which it says how many there were. What the harness sends through the link to look
// at it, or to prove that the deployment is ready, does not count.
func (w *Link) Requests() (begun, open, refused int64) {
	return w.requests.begun.Load(), w.requests.open.Load(), w.requests.refused.Load()
}

// refuse counts a connection that is refused.
func (r *requests) refuse() {
	r.begun.Add(1)
	r.refused.Add(1)
}

// count counts the messages of one connection when they come, until it has ended.
func (r *requests) count() (count func(traffic.Message) traffic.Action, ended func()) {
	var open atomic.Int64
	count = func(m traffic.Message) traffic.Action {
		switch {
		case len(m.Words) == 0 || housekeeping(m.Words[0]) || len(m.Words) > 1 && strings.HasPrefix(m.Words[1], probe.Key):
		case m.Kind == traffic.Command:
			r.begun.Add(1)
			r.open.Add(1)
			open.Add(1)
		case m.Kind == traffic.Reply:
			r.open.Add(-1)
			open.Add(-1)
		}
		return traffic.Action{}
	}
	return count, func() { r.open.Add(-open.Swap(0)) }
}

// housekeeping reports whether a command is one by which clients make, keep or
// subscribe a connection, or look who serves what.
func housekeeping(command string) bool {
	return slices.Contains([]string{
		"AUTH", "CLIENT", "CLUSTER", "COMMAND", "HELLO", "INFO", "PING", "QUIT", "READONLY", "RESET", "ROLE", "SELECT",
		"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE",
	}, strings.ToUpper(command))
}
