package reports

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A keySpan is the time in which a server had the key of a grant, as far as the record
// shows: from the grant by this server, or from the first look that found it there, until
// it was released or replaced, its lease ended, or a look found it gone.
type keySpan struct {
	server, owner string
	from, until   time.Duration
	looks         []time.Duration // that found it
	vote          bool            // this server granted it; else it was only seen there
	inferred      bool            // that it did is not in the record
}

// maxKeySpans bounds the spans of a lock in a window.
const maxKeySpans = 200

// A look is what one look at a server's key of a lock found.
type look struct {
	at            time.Duration
	server, owner string // the owner is empty where there was no key
}

// looksAt are the looks at the key of a lock, in order of time.
func (m *model) looksAt(lock string) []look {
	if m.looks == nil {
		m.looks = map[string][]look{}
		for _, e := range m.notes {
			if e.Op == history.Observe && e.What == history.ObserveKey {
				name, owner, _ := strings.Cut(e.Value, " ")
				m.looks[name] = append(m.looks[name], look{e.Time, e.Node, owner})
			}
		}
	}
	return m.looks[lock]
}

// keySpans are which servers had whose key of a lock in a window.
func (m *model) keySpans(lock string, w window) []keySpan {
	looks := m.looksAt(lock)
	var spans []keySpan
	var add func(server string, h *holding.Hold, from time.Duration, vote bool)
	add = func(server string, h *holding.Hold, from time.Duration, vote bool) {
		lost := m.dataEnd(server, lock, from)
		if i := slices.IndexFunc(m.server(server), func(s stretch) bool { return s.from > from && s.state == "down" }); i >= 0 {
			lost = min(lost, m.server(server)[i].from) // it may have them from its disk, which a look shows
		}
		s := keySpan{server: server, owner: h.Owner, from: from, until: min(m.keyEnd(h), lost), vote: vote, inferred: vote && h.Acquire.Complete.Node == ""}
		if !vote { // a copy is there as long as it was seen
			s.until = from
		}
		back := history.Never // when a look found it there again, after that
		for _, l := range looks {
			if l.server != server || l.at < from {
				continue
			}
			if l.at > lost && l.owner == h.Owner {
				back = l.at
				break
			}
			if l.owner != h.Owner { // gone, or another's
				s.until = min(s.until, l.at)
				break
			}
			s.looks, s.until = append(s.looks, l.at), max(s.until, l.at)
		}
		if w.meets(s.from, s.until) {
			spans = append(spans, s)
		}
		if back < history.Never {
			add(server, h, back, false)
		}
	}
	for i := range m.holds {
		h := &m.holds[i]
		if h.Lock != lock || h.Start > w.to || len(spans) >= maxKeySpans || len(looks) == 0 && m.keyEnd(h) < w.from {
			continue
		}
		voters := m.voters(h)
		for _, server := range voters {
			add(server, h, h.Start, true)
		}
		var copies []string
		for _, l := range looks {
			if l.owner == h.Owner && !slices.Contains(voters, l.server) && !slices.Contains(copies, l.server) {
				copies = append(copies, l.server)
				add(l.server, h, l.at, false)
			}
		}
	}
	slices.SortStableFunc(spans, func(a, b keySpan) int {
		return cmp.Or(say.Natural(a.server, b.server), cmp.Compare(a.from, b.from))
	})
	// A server has one key of a lock that is granted to one at a time: the next replaces it.
	if !m.shared(lock) {
		for i := range spans[:max(0, len(spans)-1)] {
			if a, b := &spans[i], &spans[i+1]; a.server == b.server && a.owner != b.owner {
				a.until = max(a.from, min(a.until, b.from))
			}
		}
	}
	return spans
}

// keyEnd is when the key of a hold is gone, as far as its client can know: when it was
// released, or when the lease ends that the client counts.
func (m *model) keyEnd(h *holding.Hold) time.Duration {
	if h.Ended == holding.EndReleased {
		return h.End
	}
	due := h.Acquire.Expires()
	for i := range h.Extensions {
		if e := &h.Extensions[i]; e.OK() {
			due = e.Expires()
		}
	}
	if due <= 0 {
		return h.End
	}
	return due
}

// dataEnd is when a server has no longer the keys that it had as a master at an instant: when it became a replica,
// which copies another server, or a fault removed them. What a look finds later counts more.
func (m *model) dataEnd(server, lock string, at time.Duration) time.Duration {
	end := history.Never
	for _, c := range m.roles {
		if c.node == server && c.at > at && c.role == roleReplica {
			end = min(end, c.at)
		}
	}
	for i := range m.faults {
		f := &m.faults[i]
		if !f.OK || !f.has(history.Forgets) || !f.hits(server) || f.Start < at {
			continue
		}
		pattern := f.Params["pattern"]
		if matches, err := path.Match(pattern, lock); pattern == "" || err == nil && matches {
			end = min(end, f.at())
		}
	}
	return end
}

// blockers says which servers still had the key of a hold that was over, at the last look
// at a lock in a window.
func (m *model) blockers(lock string, from, until time.Duration) (words string) {
	last := map[string]look{}
	for _, l := range m.looksAt(lock) {
		if l.at >= from && l.at <= until {
			last[l.server] = l
		}
	}
	var owners []string
	with, at := map[string][]string{}, map[string]time.Duration{}
	for _, server := range m.servers() {
		l, seen := last[server]
		if !seen || l.owner == "" {
			continue
		}
		if m.overFor(lock, l.owner, l.at) == "" {
			continue
		}
		if with[l.owner] == nil {
			owners, at[l.owner] = append(owners, l.owner), l.at
		}
		with[l.owner] = append(with[l.owner], server)
	}
	var parts []string
	for _, owner := range owners {
		parts = append(parts, fmt.Sprintf("at %s %s still had the key of client %s, %s", say.Instant(at[owner]), say.List(with[owner]), client(owner), m.overFor(lock, owner, at[owner])))
	}
	if len(parts) == 0 {
		return ""
	}
	return sentence(say.List(parts) + ": while the key is there, " + lock + " is not granted")
}

// overFor says why an owner that had a key at an instant did not hold the lock; empty if it
// held it, or that is not known.
func (m *model) overFor(lock, owner string, at time.Duration) string {
	if h := m.holdBefore(lock, owner, at); h != nil {
		if h.End > at {
			return ""
		}
		return "whose hold was over at " + say.Instant(h.End)
	}
	var asked *history.Operation
	for i := range m.ops {
		if op := &m.ops[i]; op.Invoke.Op == history.Acquire && op.Invoke.Lock == lock && op.Invoke.Owner == owner {
			asked = op
		}
	}
	if asked == nil || !asked.Failed() || asked.Complete.Time > at {
		return ""
	}
	return "whose request was refused at " + say.Instant(asked.Complete.Time)
}

// keyWindow is the part of the time whose keys of a violation's lock the drawings show:
// all of it, unless there were too many grants.
func (m *model) keyWindow(v *checker.Violation) window {
	grants := 0
	for i := range m.holds {
		grants += b2i(m.holds[i].Lock == v.Lock)
	}
	if grants <= maxKeySpans/4 {
		return m.whole()
	}
	return m.focus(v)
}

// emptyLooks are when a look at a server found no key of a lock.
func (m *model) emptyLooks(lock, server string) []time.Duration {
	var at []time.Duration
	for _, l := range m.looksAt(lock) {
		if l.server == server && l.owner == "" {
			at = append(at, l.at)
		}
	}
	return at
}
