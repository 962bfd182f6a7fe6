package simredis

import "slices"

// watch is a key that a session watches.
type watch struct {
	key     string
	expired bool // it had expired by then
}

func transactionCommands() []command {
	return []command{
		{name: "multi", arity: 1, flags: needsSession | noScript | noMulti, run: multi},
		{name: "exec", arity: 1, flags: needsSession | noScript | noMulti, run: exec},
		{name: "discard", arity: 1, flags: needsSession | noScript | noMulti, run: discard},
		{name: "watch", arity: -2, flags: needsSession | noScript | noMulti, first: 1, last: -1, step: 1, run: watchKeys},
		{name: "unwatch", arity: 1, flags: needsSession | noScript, run: unwatch},
	}
}

func multi(s *Server, _ []string) any {
	if s.session.multi {
		return Error("ERR MULTI calls can not be nested")
	}
	s.session.multi = true
	return ok
}

func discard(s *Server, _ []string) any {
	if !s.session.multi {
		return Error("ERR DISCARD without MULTI")
	}
	s.session.discard()
	return ok
}

// discard ends a transaction and the watches.
func (c *Session) discard() {
	c.multi, c.failed, c.queue = false, false, nil
	c.unwatch()
}

func watchKeys(s *Server, a []string) any {
	c := s.session
	if c.multi {
		return Error("ERR WATCH inside MULTI is not allowed")
	}
	if c.dirty {
		return ok
	}
	for _, k := range a[1:] {
		if slices.ContainsFunc(c.watching, func(w watch) bool { return w.key == k }) {
			continue
		}
		c.watching = append(c.watching, watch{k, s.isExpired(k)})
		s.watched[k] = append(s.watched[k], c)
	}
	return ok
}

func (s *Server) isExpired(key string) bool {
	v := s.keys[key]
	return v != nil && v.expire != 0 && s.now > v.expire
}

func unwatch(s *Server, _ []string) any {
	s.session.unwatch()
	return ok
}

func (c *Session) unwatch() {
	for _, w := range c.watching {
		without(c.s.watched, w.key, c)
	}
	c.watching, c.dirty = nil, false
}

func exec(s *Server, _ []string) any {
	c := s.session
	if !c.multi {
		return Error("ERR EXEC without MULTI")
	}
	for _, w := range c.watching {
		c.dirty = c.dirty || !w.expired && s.isExpired(w.key)
	}
	failed, dirty, queue := c.failed, c.dirty, c.queue
	c.discard()
	switch {
	case failed:
		return Error("EXECABORT Transaction discarded because of previous errors.")
	case dirty:
		return NullArray{}
	}
	out := make([]any, len(queue))
	s.depth++
	for i, a := range queue {
		out[i] = find(a).run(s, a)
		if r, many := out[i].(raw); many && len(r) == 1 {
			out[i] = r[0]
		}
	}
	s.depth--
	return out
}
