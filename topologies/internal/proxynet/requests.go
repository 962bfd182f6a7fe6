package proxynet

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

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
