package proxynet

import (
	"io"
	"net"
	"sync"

	"github.com/lockchaos/lockchaos/internal/traffic"
)

// A delayedWriter is the end of a stream. It takes in at once whatever comes, so
// that no toxic before it in the chain ever waits, and passes it on, but for messages that
// meet another fate. These are no toxics: a reply is known by the command that it answers, and toxiproxy
// gives a toxic one stream of a connection, without the other.
type delayedWriter struct {
	to *net.TCPConn
	// cut takes what comes apart, to be judged; nil: it is passed on as it is.
	// It is called by one goroutine at a time, and the last time, with nothing,
	// when nothing more will come.
	cut func([]byte) []part
	// ended is closed when the connection has.
	ended <-chan struct{}

	mu       sync.Mutex
	changed  *sync.Cond
	queue    []*part
	over     bool // nothing more will come
	discards bool // what arrives is no longer passed on
	dead     bool // nothing more can be written
}

// A part of a stream is what may be passed on together, and what became of it.
type part struct {
	data []byte
	fate traffic.Action
	kept bool // until its time has come
}

func newDelayedWriter(to *net.TCPConn, ended <-chan struct{}, cut func([]byte) []part) *delayedWriter {
	o := &delayedWriter{to: to, cut: cut, ended: ended}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// change alters the state under the lock and wakes run.
func (o *delayedWriter) change(alter func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	alter()
	o.changed.Broadcast()
}

// Write takes in data. It never fails: to a connection that is dead, data is
// lost.
func (o *delayedWriter) Write(b []byte) (int, error) {
	if o.cut == nil {
		o.take([]part{{data: append([]byte(nil), b...)}})
	} else {
		o.take(o.cut(b))
	}
	return len(b), nil
}

// ReadFrom has toxiproxy fill the stream with one of our buffers.
func (o *delayedWriter) ReadFrom(from io.Reader) (int64, error) { return copyTo(o, from) }

// take puts parts into the queue.
func (o *delayedWriter) take(parts []part) {
	o.change(func() {
		for _, p := range parts {
			if o.dead || o.discards {
				p.tell(false)
				continue
			}
			if p.fate.Lost {
				p.data = nil
			}
			o.discards = p.fate.Ends == traffic.GoesSilent
			if p.kept = p.fate.Until != nil; p.kept {
				go func() {
					select {
					case <-p.fate.Until:
						o.change(func() { p.kept = false })
					case <-o.ended:
					}
				}()
			}
			o.queue = append(o.queue, &p)
		}
	})
}

// Close takes in the end of the stream.
func (o *delayedWriter) Close() error {
	if o.cut != nil {
		o.take(o.cut(nil))
	}
	o.change(func() { o.over = true })
	return nil
}

// tell notifies the keeper of the part whether it was passed on.
func (p *part) tell(passed bool) {
	if p.fate.Passed != nil {
		p.fate.Passed <- passed
	}
}

// run passes on what was taken in, and then the end of the stream. It returns
// false if the connection died before.
func (o *delayedWriter) run() bool {
	defer o.change(func() {
		for _, p := range o.queue {
			p.tell(false)
		}
		o.dead, o.queue = true, nil
	})
	for {
		parts, goesOn := o.next()
		if len(parts) == 0 {
			return goesOn && o.to.CloseWrite() == nil
		}
		var data net.Buffers
		for _, p := range parts {
			data = append(data, p.data)
		}
		_, err := data.WriteTo(o.to)
		for _, p := range parts {
			p.tell(err == nil)
		}
		if err != nil {
			return false
		}
	}
}

// next waits for data that may be passed on. There is none at the end of the
// stream; nor where the stream does not go on, because the connection died, or
// is to be reset.
func (o *delayedWriter) next() (parts []*part, goesOn bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.dead {
		for len(o.queue) > 0 && !o.queue[0].kept {
			p := o.queue[0]
			if resets := p.fate.Ends == traffic.Resets; resets && len(parts) == 0 {
				return nil, false
			} else if resets {
				break // once what comes before it was passed on
			}
			if o.queue = o.queue[1:]; len(p.data) > 0 {
				parts = append(parts, p)
			}
		}
		if len(parts) > 0 {
			return parts, true
		}
		if len(o.queue) == 0 && o.over {
			return nil, true
		}
		o.changed.Wait()
	}
	return nil, false
}
