package simredis

import "slices"

// kind is what TYPE says.
type kind string

const (
	kindString    kind = "string"
	kindHash      kind = "hash"
	kindSortedSet kind = "zset"
	kindList      kind = "list"
	kindSet       kind = "set"
)

// value is what a key holds; the field of its kind is set.
type value struct {
	kind    kind
	missing bool  // no key has it yet
	expire  int64 // ms since 1970; 0: never
	str     string
	table   table // of a hash, or of a set, without values
	zset    sortedSet
	list    []string
}

func (v *value) clone() *value {
	c := *v
	c.table.list, c.zset.list, c.list = slices.Clone(v.table.list), slices.Clone(v.zset.list), slices.Clone(v.list)
	return &c
}

// lookup returns what a key holds, or nil; it deletes a key that has expired.
func (s *Server) lookup(key string) *value {
	v := s.keys[key]
	if v == nil || v.expire == 0 || s.now <= v.expire || s.applying {
		return v
	}
	if !s.replica {
		s.remove(key)
	}
	return nil
}

// typed is lookup for a command that wants a kind: the value of a key that there is
// not is missing. It returns false if the key holds another kind.
func (s *Server) typed(key string, k kind) (*value, bool) {
	v := s.lookup(key)
	if v == nil {
		return &value{kind: k, missing: true}, true
	}
	return v, v.kind == k
}

// runner runs a command.
type runner func(s *Server, a []string) any

// of is a command on the value of its first argument.
func of(k kind, run func(s *Server, v *value, a []string) any) runner {
	return func(s *Server, a []string) any {
		v, right := s.typed(a[1], k)
		if !right {
			return errWrongType
		}
		return run(s, v, a)
	}
}

// remove deletes a key.
func (s *Server) remove(key string) {
	delete(s.keys, key)
	s.wrote(key, "DEL", key)
}

// changed notes that a command changed a value; args, the second of which is its key,
// go to the replicas.
func (s *Server) changed(v *value, args ...string) {
	key := args[1]
	v.missing = false
	if v.kind != kindString && len(v.table.list)+len(v.zset.list)+len(v.list) == 0 { // Redis keeps nothing that is empty
		delete(s.keys, key)
	} else {
		s.keys[key] = v
		if len(s.popping[key]) > 0 { // it may have what a session waits for
			s.pushed = append(s.pushed, key)
		}
	}
	s.wrote(key, args...)
}
