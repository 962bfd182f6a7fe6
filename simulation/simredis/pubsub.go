package simredis

import (
	"slices"
)

func pubSubCommands() []command {
	return []command{
		{name: "subscribe", arity: -2, flags: needsSession | noScript | inSubscribed | sentinelToo, run: subscribe},
		{name: "unsubscribe", arity: -1, flags: needsSession | noScript | inSubscribed | sentinelToo, run: unsubscribe},
		{name: "publish", arity: 3, flags: mayReplicate | sentinelToo, run: publish},
		{name: "pubsub", arity: -2, run: noSubcommand},
		{name: "pubsub|numsub", arity: -2, run: countSubscribers},
	}
}

func subscribe(s *Server, a []string) any {
	c := s.session
	var out raw
	for _, name := range a[1:] {
		if !slices.Contains(c.subscribed, name) {
			c.subscribed = append(c.subscribed, name)
			s.channels[name] = append(s.channels[name], c)
		}
		out = append(out, Push{"subscribe", name, int64(len(c.subscribed))})
	}
	return out
}

func unsubscribe(s *Server, a []string) any {
	c := s.session
	names := a[1:]
	if len(names) == 0 {
		names = slices.Clone(c.subscribed)
	}
	var out raw
	if len(names) == 0 {
		out = raw{Push{"unsubscribe", nil, int64(0)}}
	}
	for _, name := range names {
		c.unsubscribe(name)
		out = append(out, Push{"unsubscribe", name, int64(len(c.subscribed))})
	}
	return out
}

func (c *Session) unsubscribe(name string) {
	at := slices.Index(c.subscribed, name)
	if at < 0 {
		return
	}
	c.subscribed = slices.Delete(c.subscribed, at, at+1)
	without(c.s.channels, name, c)
}

func (c *Session) unsubscribeAll() {
	for _, name := range slices.Clone(c.subscribed) {
		c.unsubscribe(name)
	}
}

// without takes e off the list of a key, and the key out of m if nothing is left.
func without[E comparable](m map[string][]E, key string, e E) {
	left := slices.DeleteFunc(m[key], func(o E) bool { return o == e })
	if len(left) == 0 {
		delete(m, key)
	} else {
		m[key] = left
	}
}

func publish(s *Server, a []string) any {
	n := s.Deliver(a[1], a[2])
	switch {
	case s.applying:
	case s.host.Cluster == nil:
		s.propagate(a...)
	case s.host.Bus != nil:
		s.host.Bus(a[1], a[2])
	}
	return int64(n)
}

// Deliver gives a message to the sessions of this server that subscribed, and
// returns how many copies that is.
func (s *Server) Deliver(channel, message string) int {
	to := slices.Clone(s.channels[channel])
	for _, c := range to {
		c.push(Push{"message", channel, message})
	}
	return len(to)
}

func countSubscribers(s *Server, a []string) any {
	out := []any{}
	for _, name := range a[2:] {
		out = append(out, name, int64(len(s.channels[name])))
	}
	return out
}
