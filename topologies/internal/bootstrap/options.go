package bootstrap

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// observerTimeout bounds how long a look at a server may take; a paused one
// does not answer.
const observerTimeout = 200 * time.Millisecond

// dialsBeforePause is the size of the connection pools. It is no number of
// connections: go-redis stops dialling for a second once as many dials have
// failed, and a server that comes back must be seen at once.
const dialsBeforePause = 4096

// bufferSize is that of each buffer of a connection. Commands and replies of locks are
// short, and faults make clients dial again and again: with go-redis' 32 KiB, buffers
// were 43 % of what the tests of package harness allocate.
const bufferSize = 4 << 10

// patientFor are the options of clients that wait so long.
func patientFor(timeout time.Duration) *redis.UniversalOptions {
	o := topologies.OnceOptions(timeout)
	o.PoolSize, o.ReadBufferSize, o.WriteBufferSize = dialsBeforePause, bufferSize, bufferSize
	return o
}

// ObserverOptions are those of a connection past every fault, to the address
// where a server listens. They know of no credentials.
func ObserverOptions(address string) *redis.Options {
	o := patientFor(observerTimeout).Simple()
	o.Addr = address
	return o
}

// ClientTimeout is how long a client waits for a connection or a reply. It is
// short, so that one behind a cut link finds out within the run.
const ClientTimeout = time.Second
