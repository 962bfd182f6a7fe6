package lock

import "strings"

// keys are the places of one lock on Redis. All of them have the same hash tag,
// and so the same slot of a cluster.
type keys struct {
	lock, channel string
	before, after string // the part of a further key
}

// keysOf places a lock: "lock:{orders}", and further keys, "lock:{orders}:token". The
// braces of the name are escaped, because Redis ends a tag at the first "}" and ignores an
// empty one.
//
// A name with a hash tag of its own, "{user:1}:cart", keeps it, so that the lock shares a
// slot with the data that it guards: "lock:}}{user:1}:cart" and "lock:}token}{user:1}:cart". Redis
// looks for the end of a tag behind its beginning.
//
// Neither the prefix nor a part has braces, so no two locks share a key, whatever their prefixes.
func keysOf(prefix, name string) keys {
	k := keys{lock: prefix + ":{" + escaped.Replace(name) + "}"}
	k.before = k.lock + ":"
	if _, rest, ok := strings.Cut(name, "{"); ok && strings.IndexByte(rest, '}') > 0 { // as Redis finds a hash tag
		k = keys{lock: prefix + ":}}" + name, before: prefix + ":}", after: "}" + name}
	}
	k.channel = k.of("released")
	return k
}

var escaped = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D") //nolint:gochecknoglobals // a constant

// of is a further key or channel of the lock.
func (k keys) of(part string) string { return k.before + part + k.after }

// in are the keys of a lock of that name which shares none with those of other kinds.
func (k keys) in(kind string) keys {
	return keys{lock: k.of(kind), channel: k.of(kind + ":released"), before: k.before + kind + ":", after: k.after}
}

// mark is the key that says, for a while, that a request was released or
// withdrawn.
func (k keys) mark(request string) string { return k.of("released:" + request) }
