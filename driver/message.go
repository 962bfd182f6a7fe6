package driver

import "encoding/json"

// Version is the version of the protocol.
const Version = 1

// The operations that a driver is asked for. A driver answers "unsupported" to
// those that it does not know.
const (
	opHello   = "hello"
	opAcquire = "acquire"
	opExtend  = "extend"
	opRelease = "release"
	opPing    = "ping"
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

// Promises are what a library says of its lock. A run judges what is promised,
// and lists what is not. The zero value promises a mutex with a lease, and no
// more.
type Promises struct {
	// Kind of lock: "mutex" is the only one of version 1; empty means mutex.
	Kind string `json:"kind,omitempty"`
	// Store is what the lock is on: "etcd" or "zookeeper"; empty means Redis.
	Store string `json:"store,omitempty"`
	// Extend says that a hold can be extended.
	Extend bool `json:"extend,omitempty"`
	// Lost says that the library tells when a hold is lost.
	Lost bool `json:"lost,omitempty"`
	// Token says that each grant has a fencing token.
	Token bool `json:"token,omitempty"`
	// Reentrant says that an owner may acquire a lock again that it holds.
	Reentrant bool `json:"reentrant,omitempty"`
	// Fair says that waiters are granted the lock in the order of their requests.
	Fair bool `json:"fair,omitempty"`
	// Wait says that the library itself waits for a lock that is held.
	Wait bool `json:"wait,omitempty"`
	// Watchdog says that a hold without a lease is extended until it is released.
	Watchdog bool `json:"watchdog,omitempty"`
	// HandsOver says that the library may grant a lock without asking a server, to a
	// client of a process that has it.
	HandsOver bool `json:"hands_over,omitempty"`
	// Quorum says that the lock is on a majority of several servers that know nothing of
	// each other, as Redlock's is. Only such a lock can be on topology independent.
	Quorum bool `json:"quorum,omitempty"`
	// ReleaseTells says that a release of a lock that is not held fails. Without
	// it, an "ok" to a release may also mean that there was nothing to release.
	ReleaseTells bool `json:"release_tells,omitempty"`
}

// A Hello is what a driver says of itself.
type Hello struct {
	Protocol int    `json:"protocol"`
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Language string `json:"language,omitempty"`
	// Parallel is how many clients may have a request open at once; 0 means 1.
	Parallel int      `json:"parallel,omitempty"`
	Promises Promises `json:"promises"`
	// Keys are patterns of the keys that a lock has on the server, with {name}
	// for its name; empty if the driver does not know them.
	Keys []string `json:"keys,omitempty"`
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
}

// A response is a line of a driver: an answer if Re is there, else an event.
type response struct {
	Re     *int64 `json:"re"`
	Result string `json:"result"`
	Why    string `json:"why"`
	Event  string `json:"event"`
	Hold   string `json:"hold"`
	// ValidMS is for how long the library says that the grant may be believed,
	// counted from the request; nil if it says nothing.
	ValidMS *int64 `json:"valid_ms"`
	Token   int64  `json:"token"`
	// Holds is how often the owner holds a re-entrant lock; 0 means once.
	Holds int `json:"holds"`

	line json.RawMessage // as it came, for hello
}
