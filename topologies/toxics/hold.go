// Package toxics has the effects on the data of a link that toxiproxy lacks, as toxics of its own: whatever imports it, or is a
// toxiproxy server that does, knows them by their names. toxiproxy's own are latency, bandwidth, slow_close and others.
package toxics

import (
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"github.com/lockchaos/lockchaos/topologies"
)

func init() { toxics.Register(topologies.TypeHold, new(Hold)) } //nolint:gochecknoinits // as toxiproxy's own do

// A Hold keeps all that comes, the end of the stream included, and passes it on in order when it is removed, as TCP does after a
// partition. It never makes what is before it wait. toxiproxy's bandwidth of 0 passes the end of a stream on that carries
// nothing, and its timeout loses data.
type Hold struct {
	mu   sync.Mutex
	open chan struct{} // closed when nothing is to be kept any more; nil: not needed yet
}

// kept is what a Hold keeps of a connection's stream.
type kept struct {
	chunks []*stream.StreamChunk
	ended  bool
}

// NewState is of a connection.
func (h *Hold) NewState() any { return &kept{} }

// opened is closed by Open.
func (h *Hold) opened() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = make(chan struct{})
	}
	return h.open
}

// Open passes on what is kept, and from then on whatever comes: as if it were removed, and also of a stream that has ended, from
// which toxiproxy can't remove a toxic. It may be called once.
func (h *Hold) Open() { close(h.opened()) }

// Pipe keeps what comes.
func (h *Hold) Pipe(stub *toxics.ToxicStub) {
	k := stub.State.(*kept) //nolint:forcetypeassert // NewState made it
	opened, input := h.opened(), stub.Input
	var output chan<- *stream.StreamChunk // nil: nothing passes
	for {
		if opened == nil && len(k.chunks) == 0 {
			if k.ended {
				stub.Close()
			} else {
				new(toxics.NoopToxic).Pipe(stub)
			}
			return
		}
		if k.ended {
			input = nil
		}
		var next *stream.StreamChunk
		if output != nil {
			next = k.chunks[0]
		}
		select {
		case <-stub.Interrupt:
			return
		case <-opened:
			opened, output = nil, stub.Output
		case c := <-input:
			if k.ended = c == nil; !k.ended {
				k.chunks = append(k.chunks, c)
			}
		case output <- next:
			k.chunks = k.chunks[1:]
		}
	}
}

// cleanupTimeout bounds how long what was kept may take to be taken: a peer that reads nothing would hold up the client that removes
// the toxic, which waits 5 seconds.
const cleanupTimeout = 4 * time.Second

// Cleanup passes on what is kept. The stream ends where its peer takes nothing, so that it never misses a part.
func (h *Hold) Cleanup(stub *toxics.ToxicStub) {
	k := stub.State.(*kept) //nolint:forcetypeassert // NewState made it
	for _, c := range k.chunks {
		if stub.WriteOutput(c, cleanupTimeout) != nil {
			k.ended = true
			break
		}
	}
	if k.chunks = nil; k.ended {
		stub.Close()
	}
}
