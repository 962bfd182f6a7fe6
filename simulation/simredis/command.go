package simredis

import (
	"slices"
	"strings"
)

type flags uint16

const (
	write        flags = 1 << iota
	readOnly           // reads keys
	noScript           // not for scripts
	noMulti            // not for transactions
	needsSession       // not for Server.Do
	inSubscribed       // also for a connection that is subscribed, in RESP2
	mayReplicate       // not for read-only scripts either
	sentinelToo        // a sentinel has it as well
	movable            // says itself which of its arguments are keys
)

// command is one command, or subcommand, of the server.
type command struct {
	name  string // "get", "client|id"
	arity int    // with the name; at least -arity if it is negative
	flags flags
	// first, last and step say which arguments are keys; a last of -1 is the
	// last argument. first is 0 if there are none.
	first, last, step int
	run               runner
	sub               map[string]*command
}

// reads is a command that reads the key that is its first argument, and writes one that
// writes it.
func reads(name string, arity int, run runner) command {
	return command{name: name, arity: arity, flags: readOnly, first: 1, last: 1, step: 1, run: run}
}

func writes(name string, arity int, run runner) command {
	return command{name: name, arity: arity, flags: write, first: 1, last: 1, step: 1, run: run}
}

// over is the command where each step-th of all arguments is a key.
func (c command) over(step int) command {
	c.last, c.step = -1, step
	return c
}

func (c *command) is(f flags) bool { return c.flags&f != 0 }

func (c *command) accepts(n int) bool {
	return n == c.arity || c.arity < 0 && n >= -c.arity
}

// keys calls f for each argument that is a key, until it returns false.
func (c *command) keys(a []string, f func(key string) bool) {
	if c.is(movable) { // EVAL script number-of-keys key...
		n := atoi(a[2])
		if n > len(a)-3 {
			return
		}
		for i := 3; i < 3+n; i++ {
			if !f(a[i]) {
				return
			}
		}
		return
	}
	if c.first == 0 {
		return
	}
	last := c.last
	if last < 0 {
		last += len(a)
	}
	for i := c.first; i <= last && i < len(a); i += c.step {
		if !f(a[i]) {
			return
		}
	}
}

// find returns the command of that name, or nil. A subcommand that there is not
// gives its container.
func find(a []string) *command {
	c := lookUp(commands(), a[0])
	if c == nil || c.sub == nil || len(a) < 2 {
		return c
	}
	if sub := lookUp(c.sub, a[1]); sub != nil {
		return sub
	}
	return c
}

func lookUp(all map[string]*command, name string) *command {
	if c := all[name]; c != nil {
		return c
	}
	return all[strings.ToLower(name)]
}

func index(groups ...[]command) map[string]*command {
	all := map[string]*command{}
	for _, g := range groups {
		for i := range g {
			c := &g[i]
			container, sub, found := strings.Cut(c.name, "|")
			if !found {
				all[c.name] = c
				all[strings.ToUpper(c.name)] = c
				continue
			}
			of := all[container]
			if of.sub == nil {
				of.sub = map[string]*command{}
			}
			of.sub[sub] = c
			of.sub[strings.ToUpper(sub)] = c
		}
	}
	return all
}

// check finds the command and says whether its arguments are such that it can
// begin.
func check(a []string) (*command, any) {
	c := find(a)
	switch {
	case c == nil:
		return nil, errUnknown(a)
	case c.sub != nil && len(a) > 1:
		return nil, Error("ERR unknown subcommand '" + text(a[1], 128) + "'. Try " + strings.ToUpper(c.name) + " HELP.")
	case !c.accepts(len(a)):
		return c, errArity(c.name)
	}
	return c, nil
}

func errUnknown(a []string) Error {
	var b strings.Builder
	for _, w := range a[1:] {
		if b.Len() >= 128 {
			break
		}
		b.WriteString("'" + text(w, 128-b.Len()) + "' ")
	}
	return Error(oneLine("ERR unknown command '" + text(a[0], 128) + "', with args beginning with: " + b.String()))
}

// text is what C prints of a string: up to the first zero byte.
func text(s string, n int) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s[:min(len(s), n)]
}

// oneLine keeps an error from breaking the protocol.
func oneLine(s string) string { return lineEnds.Replace(s) }

var lineEnds = strings.NewReplacer("\r", " ", "\n", " ") //nolint:gochecknoglobals // a constant

// process runs a command as a connection sends it; c is nil without one.
func (s *Server) process(c *Session, a []string) any {
	cmd, failed := s.admit(c, a)
	if failed != nil {
		if c != nil {
			c.failed = c.failed || c.multi
			if cmd != nil && cmd.name == "exec" {
				c.discard()
				code, _, _ := strings.Cut(string(failed.(Error)), " ")
				if slices.Contains([]string{"MOVED", "CLUSTERDOWN", "CROSSSLOT"}, code) { // the keys are elsewhere, or nowhere
					return failed
				}
				return Error("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(string(failed.(Error)), "ERR "))
			}
		}
		return failed
	}
	if c != nil && c.multi && !cmd.is(noMulti) {
		if !c.failed && !c.dirty { // as Redis: it would not be run anyway
			c.queue = append(c.queue, a)
		}
		return Status("QUEUED")
	}
	return cmd.run(s, a)
}

// admit says what keeps a command from being run, as an Error, in Redis' order.
func (s *Server) admit(c *Session, a []string) (*command, any) {
	cmd, failed := check(a)
	if failed != nil {
		return cmd, failed
	}
	if s.host.Sentinel != nil && !cmd.is(sentinelToo) {
		return nil, errUnknown(a)
	}
	if c == nil {
		if cmd.is(needsSession) {
			return cmd, Error("ERR " + cmd.name + " needs a connection")
		}
	}
	if s.host.Cluster != nil {
		if e := s.route(c, cmd, a); e != nil {
			return cmd, e
		}
	}
	if s.replica && cmd.is(write) {
		return cmd, errReadOnly
	}
	if c != nil && c.proto == 2 && len(c.subscribed) > 0 && !cmd.is(inSubscribed) {
		return cmd, Error("ERR Can't execute '" + cmd.name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	}
	return cmd, nil
}
