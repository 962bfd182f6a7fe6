package proxynet

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
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
	cutter := func(read func([]byte) []traffic.Chunk) func([]byte) []part {
		return func(b []byte) []part {
			mu.Lock()
			defer mu.Unlock()
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
	return cutter(talk.Upstream), cutter(talk.Downstream)
}
