package lock

import "strings"

// keys are the places of one lock on Redis. All of them have the same hash tag,
// and so the same slot of a cluster.
type keys struct{ lock, channel string }

// keysOf places a lock. A name with a hash tag of its own, "{user:1}:cart",
// keeps it, so that the lock shares a slot with the data that it guards. Any
// other name becomes the hash tag; its braces are escaped, because Redis ends a
// tag at the first "}" and ignores an empty one. The two forms differ in the
// character after the first colon, so no two locks share a key. A name with a tag
// that ends like another key of a lock, "{user:1}:token", is that lock's, though.
func keysOf(prefix, name string) keys {
	key := prefix + "::" + name
	if !hasTag(name) {
		key = prefix + ":{" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(name) + "}"
	}
	return keys{lock: key, channel: key + ":released"}
}

// mark is the key that says, for a while, that a request was released or
// withdrawn.
func (k keys) mark(request string) string { return k.lock + ":released:" + request }

// token is the key that remembers the last fencing token.
func (k keys) token() string { return k.lock + ":token" }

// hasTag reports whether Redis finds a hash tag in a key: something between the
// first "{" and the first "}" after it.
func hasTag(key string) bool {
	_, rest, ok := strings.Cut(key, "{")
	return ok && strings.IndexByte(rest, '}') > 0
}
