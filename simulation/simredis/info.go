package simredis

import (
	"fmt"
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
		{name: "replicaof", arity: 3, flags: noScript, run: replicaOf},
		{name: "slaveof", arity: 3, flags: noScript, run: replicaOf},
		{name: "command", arity: -1, flags: sentinelToo, run: describeAll},
		{name: "command|count", arity: 2, run: func(*Server, []string) any { return int64(len(names())) }},
		{name: "command|info", arity: -2, run: describe},
		{name: "config", arity: -2, run: noSubcommand},
		{name: "config|get", arity: -3, flags: noScript, run: func(*Server, []string) any { return Map{} }},
		{name: "sentinel", arity: -2, flags: sentinelToo, run: sentinel},
	}
}

func clockTime(s *Server, _ []string) any {
	return []any{strconv.FormatInt(s.micros/1e6, 10), strconv.FormatInt(s.micros%1e6, 10)}
}

func (s *Server) roleNow() Role {
	if s.host.Role == nil {
		return Role{}
	}
	return s.host.Role()
}

func info(s *Server, a []string) any {
	var b strings.Builder
	wanted := func(section string) bool {
		return len(a) == 1 || slices.ContainsFunc(a[1:], func(w string) bool {
			w = strings.ToLower(w)
			return w == section || w == "all" || w == "default" || w == "everything"
		})
	}
	if wanted("server") {
		fmt.Fprintf(&b, "# Server\r\nredis_version:%s\r\nredis_mode:%s\r\nos:simulated\r\n\r\n", Version, s.mode())
	}
	if wanted("clients") {
		fmt.Fprintf(&b, "# Clients\r\nconnected_clients:%d\r\nblocked_clients:%d\r\n\r\n", len(s.sessions), s.countBlocked())
	}
	if wanted("replication") {
		s.infoReplication(&b)
	}
	if wanted("cluster") {
		fmt.Fprintf(&b, "# Cluster\r\ncluster_enabled:%d\r\n\r\n", integer(s.host.Cluster != nil))
	}
	if wanted("keyspace") {
		b.WriteString("# Keyspace\r\n")
		if len(s.keys) > 0 {
			expires := 0
			for _, v := range s.keys {
				if v.expire != 0 {
					expires++
				}
			}
			fmt.Fprintf(&b, "db0:keys=%d,expires=%d,avg_ttl=0\r\n", len(s.keys), expires)
		}
		b.WriteString("\r\n")
	}
	return Verbatim(strings.TrimSuffix(b.String(), "\r\n"))
}

func (s *Server) countBlocked() int {
	n := 0
	for _, c := range s.sessions {
		if c.blocked != nil {
			n++
		}
	}
	return n
}

func (s *Server) infoReplication(b *strings.Builder) {
	r := s.roleNow()
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
	r := s.roleNow()
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

func replicaOf(s *Server, a []string) any {
	switch {
	case s.host.Cluster != nil:
		return Error("ERR REPLICAOF not allowed in cluster mode.")
	case s.host.ReplicaOf == nil:
		return Error("ERR REPLICAOF is not simulated here")
	case strings.EqualFold(a[1], "no") && strings.EqualFold(a[2], "one"):
		return s.host.ReplicaOf("", "")
	}
	if port, valid := parseInt(a[2]); !valid || port < 0 || port > 65535 {
		return Error("ERR Invalid master port")
	}
	return s.host.ReplicaOf(a[1], a[2])
}

func sentinel(s *Server, a []string) any {
	if s.host.Sentinel == nil {
		return errUnknown(a)
	}
	return s.host.Sentinel(a[1:])
}

func names() []string {
	var all []string
	for name, c := range commands() {
		if name == c.name && c.name != "sentinel" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// describeAll answers COMMAND, from which cluster clients learn where keys are.
func describeAll(_ *Server, a []string) any {
	if len(a) > 1 {
		return errSubcommand(a)
	}
	out := []any{}
	for _, name := range names() {
		out = append(out, commands()[name].describe())
	}
	return out
}

func describe(_ *Server, a []string) any {
	list := a[2:]
	if len(list) == 0 {
		list = names()
	}
	out := []any{}
	for _, name := range list {
		if c := lookUp(commands(), name); c != nil {
			out = append(out, c.describe())
		} else {
			out = append(out, NullArray{})
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
