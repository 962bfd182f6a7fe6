package simredis

import (
	"maps"
	"slices"
	"strings"
)

// Kinds of subscriptions.
const (
	byChannel = iota
	byPattern
)

func pubSubCommands() []command {
	return []command{
		{name: "subscribe", arity: -2, flags: needsSession | noScript | inSubscribed | sentinelToo, run: func(s *Server, a []string) any { return s.subscribe(a, byChannel) }},
		{name: "psubscribe", arity: -2, flags: needsSession | noScript | inSubscribed | sentinelToo, run: func(s *Server, a []string) any { return s.subscribe(a, byPattern) }},
		{name: "unsubscribe", arity: -1, flags: needsSession | noScript | inSubscribed | sentinelToo, run: func(s *Server, a []string) any { return s.unsubscribe(a, byChannel) }},
		{name: "punsubscribe", arity: -1, flags: needsSession | noScript | inSubscribed | sentinelToo, run: func(s *Server, a []string) any { return s.unsubscribe(a, byPattern) }},
		{name: "publish", arity: 3, flags: mayReplicate | sentinelToo, run: publish},
		{name: "pubsub", arity: -2, run: noSubcommand},
		{name: "pubsub|channels", arity: -2, run: channelNames},
		{name: "pubsub|numsub", arity: -2, run: countSubscribers},
		{name: "pubsub|numpat", arity: 2, run: func(s *Server, _ []string) any { return int64(len(s.channels[byPattern])) }},
	}
}

func (c *Session) subscriptions() int64 {
	return int64(len(c.subscribed[byChannel]) + len(c.subscribed[byPattern]))
}

func (s *Server) subscribe(a []string, kind int) any {
	c := s.session
	var out raw
	for _, name := range a[1:] {
		if !slices.Contains(c.subscribed[kind], name) {
			c.subscribed[kind] = append(c.subscribed[kind], name)
			s.channels[kind][name] = append(s.channels[kind][name], c)
		}
		out = append(out, Push{strings.ToLower(a[0]), name, c.subscriptions()})
	}
	return out
}

func (s *Server) unsubscribe(a []string, kind int) any {
	c := s.session
	names := a[1:]
	if len(names) == 0 {
		names = slices.Clone(c.subscribed[kind])
	}
	word := strings.ToLower(a[0])
	var out raw
	if len(names) == 0 {
		out = raw{Push{word, nil, c.subscriptions()}}
	}
	for _, name := range names {
		c.unsubscribe(kind, name)
		out = append(out, Push{word, name, c.subscriptions()})
	}
	return out
}

func (c *Session) unsubscribe(kind int, name string) {
	at := slices.Index(c.subscribed[kind], name)
	if at < 0 {
		return
	}
	c.subscribed[kind] = slices.Delete(c.subscribed[kind], at, at+1)
	without(c.s.channels[kind], name, c)
}

func (c *Session) unsubscribeAll() {
	for k := range c.subscribed {
		for _, name := range slices.Clone(c.subscribed[k]) {
			c.unsubscribe(k, name)
		}
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
	n := 0
	for _, c := range slices.Clone(s.channels[byChannel][channel]) {
		c.push(Push{"message", channel, message})
		n++
	}
	for _, p := range slices.Sorted(maps.Keys(s.channels[byPattern])) {
		if !match(p, channel) {
			continue
		}
		for _, c := range slices.Clone(s.channels[byPattern][p]) {
			c.push(Push{"pmessage", p, channel, message})
			n++
		}
	}
	return n
}

func channelNames(s *Server, a []string) any {
	if len(a) > 3 {
		return errSubcommand(a)
	}
	out := []any{}
	for _, name := range slices.Sorted(maps.Keys(s.channels[byChannel])) {
		if len(a) == 2 || match(a[2], name) {
			out = append(out, name)
		}
	}
	return out
}

func countSubscribers(s *Server, a []string) any {
	out := []any{}
	for _, name := range a[2:] {
		out = append(out, name, int64(len(s.channels[byChannel][name])))
	}
	return out
}

func errSubcommand(a []string) Error {
	return Error(oneLine("ERR unknown subcommand or wrong number of arguments for '" + text(a[1], 128) + "'. Try " + strings.ToUpper(a[0]) + " HELP."))
}
