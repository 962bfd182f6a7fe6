package lock

import (
	"slices"
	"sync"
	"time"
)

// An expiryTimer tells the holds of a client when their leases end. They share a timer,
// which is set to the first end, and is left alone when that goes away: most holds
// are released long before their end, so it is set once a lease, and not twice a
// hold.
type expiryTimer struct {
	mu       sync.Mutex
	queue    timeHeap[*Hold]
	timer    *time.Timer
	nextFire time.Time // when the timer fires; zero: it is not set
}

// set has the hold told at that time, and no more at any other.
func (c *expiryTimer) set(h *Hold, end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.put(h, end)
	c.schedule()
}

// unset has it told no more. It may be about to be told.
func (c *expiryTimer) unset(h *Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.remove(h)
}

// holds are those that it watches: all whose leases aren't over.
func (c *expiryTimer) holds() []*Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.queue)
}

// fire tells those whose time has come. What is to be done about each may take
// long, and the others don't wait for it.
func (c *expiryTimer) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for now := time.Now(); len(c.queue) > 0 && !now.Before(c.queue[0].alarm.at); {
		h := c.queue[0]
		c.queue.remove(h)
		go h.expire()
	}
	c.nextFire = time.Time{}
	c.schedule()
}

// schedule sets the timer to the first end, if it would fire later.
func (c *expiryTimer) schedule() {
	if len(c.queue) == 0 || !c.nextFire.IsZero() && !c.queue[0].alarm.at.Before(c.nextFire) {
		return
	}
	c.nextFire = c.queue[0].alarm.at
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(c.nextFire), c.fire)
		return
	}
	c.timer.Reset(time.Until(c.nextFire))
}
