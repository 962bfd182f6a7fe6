package fabric

import (
	"net"
	"sync"
)

// An outlet is the end of a stream. It takes in at once whatever comes, so
// that nothing before it in the chain ever waits, and passes it on as long as
// it is not held: what is held is kept, in order, the end of the stream
// included, as a partition keeps what TCP will send again.
type outlet struct {
	to *net.TCPConn

	mu      sync.Mutex
	changed *sync.Cond
	queue   net.Buffers
	holds   int
	ended   bool // nothing more will come
	dead    bool // nothing more can be written
}

func newOutlet(to *net.TCPConn) *outlet {
	o := &outlet{to: to}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// change alters the state under the lock and wakes run.
func (o *outlet) change(alter func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	alter()
	o.changed.Broadcast()
}

// Write takes in data. It never fails: to a connection that is dead, data is
// lost.
func (o *outlet) Write(b []byte) (int, error) {
	data := append([]byte(nil), b...)
	o.change(func() {
		if !o.dead {
			o.queue = append(o.queue, data)
		}
	})
	return len(b), nil
}

// Close takes in the end of the stream.
func (o *outlet) Close() error {
	o.change(func() { o.ended = true })
	return nil
}

func (o *outlet) kill() { o.change(func() { o.dead = true }) }

// hold adds to the number of holds.
func (o *outlet) hold(n int) { o.change(func() { o.holds += n }) }

// run passes on what was taken in, and then the end of the stream. It returns
// false if the connection died before.
func (o *outlet) run() bool {
	for {
		data, ok := o.next()
		if !ok {
			return false
		}
		if data == nil {
			return o.to.CloseWrite() == nil
		}
		if _, err := data.WriteTo(o.to); err != nil {
			return false
		}
	}
}

// next waits for data that may be passed on; nil is the end of the stream.
func (o *outlet) next() (data net.Buffers, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.dead && (o.holds > 0 || len(o.queue) == 0 && !o.ended) {
		o.changed.Wait()
	}
	data, o.queue = o.queue, nil
	return data, !o.dead
}
