package simredis

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Version is that of the Redis that is simulated.
const Version = "7.0.15"

func serverCommands() []command {
	return []command{
		{name: "time", arity: 1, run: clockTime},
		{name: "info", arity: -1, flags: sentinelToo, run: info},
		{name: "role", arity: 1, flags: noScript | sentinelToo, run: role},
		{name: "wait", arity: 3, flags: needsSession | noScript, run: wait},
		{name: "command", arity: -1, flags: sentinelToo, run: describeAll},
		{name: "config", arity: -2, run: noSubcommand},
		{name: "config|get", arity: -3, flags: noScript, run: func(*Server, []string) any { return Map{} }},
		{name: "sentinel", arity: -2, flags: sentinelToo, run: sentinel},
	}
}

func clockTime(s *Server, _ []string) any {
	return []any{strconv.FormatInt(s.micros/1e6, 10), strconv.FormatInt(s.micros%1e6, 10)}
}

func info(s *Server, a []string) any {
	var b strings.Builder
	wanted := func(section string) bool {
		return len(a) == 1 || slices.ContainsFunc(a[1:], func(w string) bool {
			return slices.Contains([]string{section, "all", "default", "everything"}, strings.ToLower(w))
		})
	}
	if wanted("server") {
		fmt.Fprintf(&b, "# Server\r\nredis_version:%s\r\nredis_mode:%s\r\nos:simulated\r\n\r\n", Version, s.mode())
	}
	if wanted("replication") {
		s.infoReplication(&b)
	}
	if wanted("cluster") {
		fmt.Fprintf(&b, "# Cluster\r\ncluster_enabled:%d\r\n\r\n", integer(s.host.Cluster != nil))
	}
	return strings.TrimSuffix(b.String(), "\r\n")
}

func (s *Server) infoReplication(b *strings.Builder) {
	r := s.host.Role()
	b.WriteString("# Replication\r\n")
	if s.replica {
		up := "down"
		if r.LinkUp {
			up = "up"
		}
		fmt.Fprintf(b, "role:slave\r\nmaster_host:%s\r\nmaster_port:%d\r\nmaster_link_status:%s\r\nslave_repl_offset:%d\r\n",
			r.MasterHost, r.MasterPort, up, s.offset)
	} else {
		b.WriteString("role:master\r\n")
	}
	fmt.Fprintf(b, "connected_slaves:%d\r\n", len(r.Replicas))
	for i, p := range r.Replicas {
		fmt.Fprintf(b, "slave%d:ip=%s,port=%d,state=online,offset=%d,lag=0\r\n", i, p.Host, p.Port, p.Offset)
	}
	fmt.Fprintf(b, "master_repl_offset:%d\r\n\r\n", s.offset)
}

func role(s *Server, _ []string) any {
	if s.host.Sentinel != nil {
		return []any{"sentinel", []any{}}
	}
	r := s.host.Role()
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
		c := commands()[name]
		if name != c.name || name == "sentinel" {
			continue
		}
		all := Set{}
		for _, f := range []struct {
			f    flags
			name string
		}{{write, "write"}, {readOnly, "readonly"}, {noScript, "noscript"}, {movable, "movablekeys"}} {
			if c.is(f.f) {
				all = append(all, Status(f.name))
			}
		}
		out = append(out, []any{c.name, int64(c.arity), all, int64(c.first), int64(c.last), int64(c.step), Set{}, Set{}, Set{}, []any{}})
	}
	return out
}
