package simredis

import (
	"slices"
	"strings"
)

// Session is one connection as its server sees it.
type Session struct {
	s     *Server
	id    int64
	send  func([]byte)
	todo  [][]string // requests
	out   []byte
	proto int
	name  string

	running bool // within Take: pushes to itself go with the replies
	closed  bool
	closing bool // closed once its replies are sent
	blocked *blocked
	written int64 // offset of its last write
	mayRead bool  // READONLY of a cluster

	subscribed []string

	multi, failed, dirty bool
	queue                [][]string
	watching             []watch
}

// Open begins a session. send is given what goes to the client, which it must
// copy; it must not call the server.
func (s *Server) Open(send func([]byte)) *Session {
	s.lastID++
	c := &Session{s: s, id: s.lastID, send: send, proto: 2}
	s.sessions = append(s.sessions, c)
	return c
}

// Close ends a session; what it asked for has been done or is never done.
func (c *Session) Close() {
	if c.closed {
		return
	}
	c.closed = true
	c.unwatch()
	c.unsubscribeAll()
	c.leave()
	c.s.sessions = slices.DeleteFunc(c.s.sessions, func(o *Session) bool { return o == c })
}

// Closed tells whether the session has ended: by Close or QUIT. The connection is to be closed
// then.
func (c *Session) Closed() bool { return c.closed }

// Take runs requests of the client, as [Parse] has them. Their replies are sent together. The same may be given to
// several sessions.
func (c *Session) Take(requests [][]string) {
	if !c.closed {
		c.todo = append(c.todo, requests...)
		c.run()
	}
}

func (c *Session) run() {
	c.running = true
	for len(c.todo) > 0 && c.blocked == nil && !c.closed && !c.closing {
		args := c.todo[0]
		c.todo = c.todo[1:]
		c.exec(args)
	}
	c.running = false
	c.flush()
	if c.closing {
		c.Close()
	}
}

// exec runs one request.
func (c *Session) exec(args []string) {
	s := c.s
	s.begin(c)
	before := s.offset
	r := s.process(c, args)
	s.end()
	if s.offset != before {
		c.written = s.offset
	}
	c.reply(r)
	s.resume()
}

// none is the reply of a request that has none.
type none struct{}

func (c *Session) reply(r any) {
	if _, silent := r.(none); silent {
		return
	}
	c.out = Append(c.out, r, c.proto)
}

// push sends what answers no request.
func (c *Session) push(r any) {
	c.out = Append(c.out, r, c.proto)
	if !c.running {
		c.flush()
	}
}

func (c *Session) flush() {
	if len(c.out) == 0 {
		return
	}
	if !c.closed {
		c.send(c.out)
	}
	c.out = c.out[:0]
}

func connectionCommands() []command {
	return []command{
		{name: "ping", arity: -1, flags: inSubscribed | sentinelToo, run: ping},
		{name: "echo", arity: 2, run: func(_ *Server, a []string) any { return a[1] }},
		{name: "quit", arity: -1, flags: needsSession | noScript | noMulti | inSubscribed | sentinelToo, run: quit},
		{name: "reset", arity: 1, flags: needsSession | noScript | noMulti | inSubscribed | sentinelToo, run: reset},
		{name: "hello", arity: -1, flags: needsSession | noScript | inSubscribed | sentinelToo, run: hello},
		{name: "select", arity: 2, run: selectDB},
		{name: "client", arity: -2, flags: sentinelToo, run: noSubcommand},
		{name: "client|id", arity: 2, flags: needsSession | noScript | sentinelToo, run: func(s *Server, _ []string) any { return s.session.id }},
		{name: "client|getname", arity: 2, flags: needsSession | noScript | sentinelToo, run: getName},
		{name: "client|setname", arity: 3, flags: needsSession | noScript | sentinelToo, run: setName},
	}
}

func noSubcommand(_ *Server, a []string) any { return errArity(strings.ToLower(a[0])) }

func ping(s *Server, a []string) any {
	if len(a) > 2 {
		return errArity("ping")
	}
	if s.session != nil && s.session.proto == 2 && len(s.session.subscribed) > 0 {
		return []any{"pong", strings.Join(a[1:], "")}
	}
	if len(a) == 2 {
		return a[1]
	}
	return Status("PONG")
}

func quit(s *Server, _ []string) any {
	s.session.closing = true
	return ok
}

func reset(s *Server, _ []string) any {
	c := s.session
	c.discard()
	c.mayRead, c.proto, c.name = false, 2, ""
	c.unsubscribeAll()
	return Status("RESET")
}

func hello(s *Server, a []string) any {
	c := s.session
	proto := c.proto
	if len(a) > 1 {
		n, valid := parseInt(a[1])
		if !valid {
			return Error("ERR Protocol version is not an integer or out of range")
		}
		if n < 2 || n > 3 {
			return Error("NOPROTO unsupported protocol version")
		}
		proto = int(n)
	}
	if len(a) > 2 {
		return Error(oneLine("ERR Syntax error in HELLO option '" + text(a[2], len(a[2])) + "'"))
	}
	c.proto = proto
	m := Map{"server", "redis", "version", Version, "proto", int64(c.proto), "id", c.id, "mode", s.mode()}
	if s.host.Sentinel == nil {
		role := "master"
		if s.replica {
			role = "replica"
		}
		m = append(m, "role", role)
	}
	return append(m, "modules", []any{})
}

func (s *Server) mode() string {
	switch {
	case s.host.Sentinel != nil:
		return "sentinel"
	case s.host.Cluster != nil:
		return "cluster"
	}
	return "standalone"
}

func selectDB(s *Server, a []string) any {
	n, valid := parseInt(a[1])
	switch {
	case !valid:
		return errNotInteger
	case n > 1<<31-1 || n < -1<<31:
		return Error("ERR value is out of range, value must between -2147483648 and 2147483647")
	case s.host.Cluster != nil && n != 0:
		return Error("ERR SELECT is not allowed in cluster mode")
	case n < 0 || n > 15:
		return Error("ERR DB index is out of range")
	case n != 0:
		return Error("ERR DB index is out of range: the simulated server has one database")
	}
	return ok
}

func getName(s *Server, _ []string) any {
	if s.session.name == "" {
		return nil
	}
	return s.session.name
}

func setName(s *Server, a []string) any {
	if strings.ContainsFunc(a[2], func(r rune) bool { return r < '!' || r > '~' }) {
		return Error("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	s.session.name = a[2]
	return ok
}
