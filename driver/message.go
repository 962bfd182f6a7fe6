package driver

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/lockchaos/lockchaos/promises"
)

// Version is the version of the protocol. A driver of an earlier one, from 1 on, is served as well: it promises none of what came later.
const Version = 2

// The operations that a driver is asked for. A driver answers "unsupported" to
// those that it does not know.
const (
	opHello   = "hello"
	opAcquire = "acquire"
	opExtend  = "extend"
	opRelease = "release"
	opPing    = "ping"
	opCancel  = "cancel" // of the request with its id, which is answered then
)

// The results of an operation.
const (
	resultOK          = "ok"
	resultFail        = "fail"
	resultInfo        = "info"
	resultUnsupported = "unsupported"
)

// eventLost is what a driver says unasked when its library says that a hold is
// lost.
const eventLost = "lost"

// Kinds of [Server].
const (
	KindRedis     = "redis"     // one that keeps locks
	KindSentinel  = "sentinel"  // one that knows the master
	KindEtcd      = "etcd"      // a member of etcd
	KindZooKeeper = "zookeeper" // a member of an ensemble
)

// A Server is one that a driver may connect to.
type Server struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // such as [KindRedis]
	Addr string `json:"addr"` // HOST:PORT
}

// A Hello is what a driver says of itself.
type Hello struct {
	Protocol int    `json:"protocol"`
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Language string `json:"language,omitempty"`
	// Parallel is how many clients may have a request open at once; 0 means 1.
	Parallel int               `json:"parallel,omitempty"`
	Promises promises.Promises `json:"promises"`
	// Keys are patterns of the keys that a lock has on the server, with {name}
	// for its name; empty if the driver does not know them.
	Keys []string `json:"keys,omitempty"`
	// Commands are those that the lock sends for "acquire", "extend", "renew" and "release", by their names on the server;
	// empty if the driver does not know them. Faults of one message wait for them where the traffic does not show which they are.
	Commands map[string]string `json:"commands,omitempty"`
	// WatchdogMS is the lease that the library's watchdog keeps alive where hello asked for none; 0: it does not say.
	WatchdogMS int64 `json:"watchdog_ms,omitempty"`
}

// A request is a line to a driver.
type request struct {
	ID int64  `json:"id"`
	Op string `json:"op"`

	// Of hello.
	Protocol  int      `json:"protocol,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Topology  string   `json:"topology,omitempty"`
	Master    string   `json:"master,omitempty"`
	Servers   []Server `json:"servers,omitempty"`
	TimeoutMS int64    `json:"timeout_ms,omitempty"`
	// WatchdogMS is the lease that a watchdog is to keep alive, and the time to live of a session; 0: the library's own.
	WatchdogMS int64 `json:"watchdog_ms,omitempty"`

	// Of the others.
	Client  string `json:"client,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Lock    string `json:"lock,omitempty"`
	Hold    string `json:"hold,omitempty"`
	LeaseMS *int64 `json:"lease_ms,omitempty"`
	WaitMS  *int64 `json:"wait_ms,omitempty"`
	Way
}

// A Way is how a lock is asked for that is no mutex. The zero value asks to write, and for the one permit
// that a semaphore has.
type Way struct {
	// Mode of a lock of kind "rw": "read" or "write".
	Mode string `json:"mode,omitempty"`
	// Permits are how many are asked for of a semaphore, and Capacity is how many it has: the first request for a
	// semaphore that is not there yet makes one of so many.
	Permits  int `json:"permits,omitempty"`
	Capacity int `json:"capacity,omitempty"`
}

// The kinds of lock that are asked for in several ways.
const (
	kindRW        = "rw"
	kindSemaphore = "semaphore"
)

// of is the way as a lock of a kind is asked: a mutex in none.
func (w Way) of(kind string) Way {
	switch kind {
	case kindRW:
		return Way{Mode: cmp.Or(w.Mode, "write")}
	case kindSemaphore:
		return Way{Permits: max(w.Permits, 1), Capacity: max(w.Capacity, w.Permits, 1)}
	default:
		return Way{}
	}
}

// A response is a line of a driver: an answer if Re is there, else an event.
type response struct {
	Re     *int64 `json:"re,omitempty"`
	Result string `json:"result,omitempty"`
	Why    string `json:"why,omitempty"`
	Event  string `json:"event,omitempty"`
	Hold   string `json:"hold,omitempty"`
	// ValidMS is for how long the library says that the grant may be believed,
	// counted from the request; nil if it says nothing.
	ValidMS *int64 `json:"valid_ms,omitempty"`
	Token   int64  `json:"token,omitempty"`
	// Holds is how often the owner holds a re-entrant lock; 0 means once.
	Holds int `json:"holds,omitempty"`

	line json.RawMessage // as it came, for hello
	sent time.Time       // when it was asked for
}
