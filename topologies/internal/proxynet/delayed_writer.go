package proxynet

import (
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/traffic"
)

// A delayedWriter is the end of a stream. It takes in at once whatever comes, so
// that nothing before it in the chain ever waits, and passes it on as long as
// it is not held: what is held is kept, in order, the end of the stream
// included, as a partition keeps what TCP will send again.
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
	holds    int
	rates    []int         // bytes a second; the least of them counts
	lingers  time.Duration // between the end of the stream and passing it on
	over     bool          // nothing more will come
	discards bool          // what arrives is no longer passed on
	dead     bool          // nothing more can be written
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
				go o.release(&p)
			}
			o.queue = append(o.queue, &p)
		}
	})
}

// release lets a part pass when its time has come, unless the connection ends
// before.
func (o *delayedWriter) release(p *part) {
	select {
	case <-p.fate.Until:
		o.change(func() { p.kept = false })
	case <-o.ended:
	}
}

// Close takes in the end of the stream.
func (o *delayedWriter) Close() error {
	if o.cut != nil {
		o.take(o.cut(nil))
	}
	o.change(func() { o.over = true })
	return nil
}

func (o *delayedWriter) kill() { o.change(func() { o.dead = true }) }

// hold adds to the number of holds.
func (o *delayedWriter) hold(n int) { o.change(func() { o.holds += n }) }

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
			if goesOn {
				goesOn = o.linger()
			}
			return goesOn && o.to.CloseWrite() == nil
		}
		err := o.write(parts)
		for _, p := range parts {
			p.tell(err == nil)
		}
		if err != nil {
			return false
		}
	}
}

// tick is how often a stream whose pace is limited passes something on.
const tick = 20 * time.Millisecond

// write passes parts on, at the pace that they may have.
func (o *delayedWriter) write(parts []*part) error {
	var data net.Buffers
	for _, p := range parts {
		data = append(data, p.data)
	}
	for len(data) > 0 {
		rate, dead := o.pace()
		if dead {
			return net.ErrClosed
		}
		if rate == 0 {
			_, err := data.WriteTo(o.to)
			return err
		}
		n := min(max(1, int(int64(rate)*int64(tick)/int64(time.Second))), len(data[0]))
		// The rate is what the fault is about, so that the time itself is awaited.
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		if _, err := o.to.Write(data[0][:n]); err != nil {
			return err
		}
		if data[0] = data[0][n:]; len(data[0]) == 0 {
			data = data[1:]
		}
	}
	return nil
}

// pace is how many bytes a second may pass; 0 for as many as can.
func (o *delayedWriter) pace() (rate int, dead bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.rates) == 0 {
		return 0, o.dead
	}
	return slices.Min(o.rates), o.dead
}

// linger lets the time pass by which the end of the stream is late, and reports
// whether the connection outlived it.
func (o *delayedWriter) linger() bool {
	begin := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.dead {
		left := o.lingers - time.Since(begin)
		if left <= 0 {
			return true
		}
		timer := time.AfterFunc(left, func() { o.change(func() {}) })
		o.changed.Wait()
		timer.Stop()
	}
	return false
}

// next waits for data that may be passed on. There is none at the end of the
// stream; nor where the stream does not go on, because the connection died, or
// is to be reset.
func (o *delayedWriter) next() (parts []*part, goesOn bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.dead {
		for o.holds == 0 && len(o.queue) > 0 && !o.queue[0].kept {
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
		if o.holds == 0 && len(o.queue) == 0 && o.over {
			return nil, true
		}
		o.changed.Wait()
	}
	return nil, false
}
