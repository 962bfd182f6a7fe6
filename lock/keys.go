package lock

import (
	"fmt"
	"slices"
	"strings"
)

// keys are the places of one lock on Redis. All of them have the same hash tag,
// and so the same slot of a cluster.
type keys struct {
	lock, channel string
	part          string // what the names of further keys begin with
	end           string // and end with
}

// keysOf places a lock. A name with a hash tag of its own, "{user:1}:cart",
// keeps it, so that the lock shares a slot with the data that it guards. Any
// other name becomes the hash tag; its braces are escaped, because Redis ends a
// tag at the first "}" and ignores an empty one. The two forms differ in the
// character after the first colon, so no two locks share a key.
//
// Further keys have their part after the name where the braces end it,
// "lock:{cart}:token", and else before it, "lock:token:{user:1}:cart".
func keysOf(prefix, name string) keys {
	k := keys{lock: prefix + "::" + name, part: prefix + ":", end: ":" + name}
	if !hasTag(name) {
		k.lock = prefix + ":{" + escaped.Replace(name) + "}"
		k.part, k.end = k.lock+":", ""
	}
	k.channel = k.of("released")
	return k
}

var escaped = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D") //nolint:gochecknoglobals // a constant

// parts are what the names of further keys have after the prefix.
var parts = []string{ //nolint:gochecknoglobals // a constant
	"alive", "deadlines", "election", "grants", "latch", "places", "queue", "released", "semaphore", "tickets", "token",
}

// checkSegments says why a lock of that prefix would share a key with one of a shorter
// prefix: "a:token:{orders}" may be the lock "orders" of prefix "a:token", and the last
// token of the lock "{orders}" of prefix "a".
func checkSegments(prefix string) error {
	segments := strings.Split(prefix, ":")
	for i, segment := range segments[1:] {
		shorter := strings.Join(segments[:i+1], ":")
		if segment == "" {
			return fmt.Errorf("prefix %q: leave out a colon at its end, and a second one after another, with which some keys would be those of prefix %q", prefix, shorter)
		}
		if slices.Contains(parts, segment) {
			return fmt.Errorf("prefix %q: use another word than %q, with which some keys would be those of prefix %q", prefix, segment, shorter)
		}
	}
	return nil
}

// of is a further key or channel of the lock.
func (k keys) of(part string) string { return k.part + part + k.end }

// mark is the key that says, for a while, that a request was released or
// withdrawn.
func (k keys) mark(request string) string { return k.part + "released:" + request + k.end }

// hasTag reports whether Redis finds a hash tag in a key: something between the
// first "{" and the first "}" after it.
func hasTag(key string) bool {
	_, rest, ok := strings.Cut(key, "{")
	return ok && strings.IndexByte(rest, '}') > 0
}
