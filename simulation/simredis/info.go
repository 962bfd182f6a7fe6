package simredis

import (
	"maps"
	"slices"
	"strconv"
)

// Version is that of the Redis that is simulated.
const Version = "7.0.15"

func serverCommands() []command {
	return []command{
		{name: "time", arity: 1, run: clockTime},
		{name: "role", arity: 1, flags: noScript, run: role},
		{name: "wait", arity: 3, flags: noScript, run: wait},
		{name: "command", arity: -1, run: describeAll},
		{name: "sentinel", arity: -2, run: sentinel},
	}
}

func clockTime(s *Server, _ []string) any {
	return []any{strconv.FormatInt(s.micros/1e6, 10), strconv.FormatInt(s.micros%1e6, 10)}
}

func role(s *Server, _ []string) any {
	var r Role
	if s.host.Role != nil {
		r = s.host.Role()
	}
	if s.replica {
		state, offset := "connect", int64(-1)
		if r.LinkUp {
			state, offset = "connected", s.offset
		}
		return []any{"slave", r.MasterHost, int64(r.MasterPort), state, offset}
	}
	list := []any{}
	for _, p := range r.Replicas {
		list = append(list, []any{p.Host, strconv.Itoa(p.Port), strconv.FormatInt(p.Offset, 10)})
	}
	return []any{"master", s.offset, list}
}

func sentinel(s *Server, a []string) any {
	if s.host.Sentinel == nil {
		return errUnknown(a)
	}
	return s.host.Sentinel(a[1:])
}

// describeAll answers COMMAND, from which cluster clients learn where keys are.
func describeAll(_ *Server, a []string) any {
	if len(a) > 1 {
		return Error(oneLine("ERR unknown subcommand or wrong number of arguments for '" + text(a[1], 128) + "'. Try COMMAND HELP."))
	}
	out := []any{}
	for _, name := range slices.Sorted(maps.Keys(commands())) {
		if name != "sentinel" {
			out = append(out, commands()[name].describe())
		}
	}
	return out
}

func (c *command) describe() any {
	all := Set{}
	for _, f := range []struct {
		f    flags
		name string
	}{{write, "write"}, {readOnly, "readonly"}, {noScript, "noscript"}, {movable, "movablekeys"}} {
		if c.is(f.f) {
			all = append(all, Status(f.name))
		}
	}
	return []any{c.name, int64(c.arity), all, int64(c.first), int64(c.last), int64(c.step), Set{}, Set{}, Set{}, []any{}}
}
