package simredis

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

func scriptCommands() []command {
	return []command{
		{name: "eval", arity: -3, flags: noScript | movable, run: func(s *Server, a []string) any { return s.eval(a, false, false) }},
		{name: "eval_ro", arity: -3, flags: noScript | movable | readOnly, run: func(s *Server, a []string) any { return s.eval(a, false, true) }},
		{name: "evalsha", arity: -3, flags: noScript | movable, run: func(s *Server, a []string) any { return s.eval(a, true, false) }},
		{name: "evalsha_ro", arity: -3, flags: noScript | movable | readOnly, run: func(s *Server, a []string) any { return s.eval(a, true, true) }},
		{name: "script", arity: -2, run: noSubcommand},
		{name: "script|load", arity: 3, flags: noScript, run: scriptLoad},
		{name: "script|exists", arity: -3, flags: noScript, run: scriptExists},
		{name: "script|flush", arity: -2, flags: noScript, run: scriptFlush},
		{name: "script|kill", arity: 2, flags: noScript, run: func(*Server, []string) any { return Error("NOTBUSY No scripts in execution right now.") }},
	}
}

// Sha is the name of a script: the SHA-1 of its source in hexadecimal digits.
func Sha(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

func scriptLoad(s *Server, a []string) any {
	p, failed := compile(a[2])
	if failed != nil {
		return failed
	}
	s.scripts[p.sha] = p
	return p.sha
}

func scriptExists(s *Server, a []string) any {
	out := make([]any, len(a)-2)
	for i, sha := range a[2:] {
		_, found := s.scripts[strings.ToLower(sha)]
		out[i] = integer(found)
	}
	return out
}

func scriptFlush(s *Server, a []string) any {
	if len(a) > 3 || len(a) == 3 && !strings.EqualFold(a[2], "sync") && !strings.EqualFold(a[2], "async") {
		return Error("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	s.scripts = map[string]*program{}
	return ok
}

const errNoScript = Error("NOSCRIPT No matching script. Please use EVAL.")

func (s *Server) eval(a []string, bySha, readOnly bool) any {
	n, valid := parseInt(a[2])
	switch {
	case bySha && len(a[1]) != 40:
		return errNoScript
	case !valid:
		return errNotInteger
	case n > int64(len(a)-3):
		return Error("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return Error("ERR Number of keys can't be negative")
	}
	p := s.scripts[strings.ToLower(a[1])]
	if !bySha {
		var failed any
		if p, failed = compile(a[1]); failed != nil {
			return failed
		}
		s.scripts[p.sha] = p
	} else if p == nil {
		return errNoScript
	}
	s.depth++
	s.script, s.readsOnly = true, readOnly
	r := s.interpreter().run(p, a[3:3+n], a[3+n:])
	s.script = false
	s.depth--
	return r
}

// call runs a command for a script.
func (s *Server) call(a []string) any {
	c := find(a)
	switch {
	case c == nil || c.sub != nil && len(a) > 1:
		return Error("ERR Unknown Redis command called from script")
	case !c.accepts(len(a)):
		return Error("ERR Wrong number of args calling Redis command from script")
	case c.is(noScript):
		return Error("ERR This Redis command is not allowed from script")
	case c.flags&(write|mayReplicate) != 0 && s.readsOnly:
		return Error("ERR Write commands are not allowed from read-only scripts.")
	case c.is(write) && s.replica:
		return errReadOnly
	}
	if s.host.Cluster != nil {
		if failed := s.routeKeys(s.session, c, a); failed != nil {
			switch e := failed.(Error); {
			case strings.HasPrefix(string(e), "CLUSTERDOWN The"):
				return Error("ERR Script attempted to execute a command while the cluster is down")
			default:
				return Error("ERR Script attempted to access a non local key in a cluster node")
			}
		}
	}
	return c.run(s, a)
}
