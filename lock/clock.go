package lock

import (
	"container/heap"
	"slices"
	"sync"
	"time"
)

// A clock tells the holds of a client when their leases end. They share a timer,
// which is set to the first end, and is left alone when that goes away: most holds
// are released long before their end, so it is set once a lease, and not twice a
// hold.
type clock struct {
	mu    sync.Mutex
	queue clockQueue
	timer *time.Timer
	rings time.Time // when the timer does; zero: it is not set
}

// set has the hold told at that time, and no more at any other.
func (c *clock) set(h *Hold, end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.alarm.at = end
	if h.alarm.place > 0 {
		heap.Fix(&c.queue, h.alarm.place-1)
	} else {
		heap.Push(&c.queue, h)
	}
	c.wind()
}

// unset has it told no more. It may be about to be told.
func (c *clock) unset(h *Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.alarm.place > 0 {
		heap.Remove(&c.queue, h.alarm.place-1)
	}
}

// holds are those that it watches: all whose leases aren't over.
func (c *clock) holds() []*Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.queue)
}

// ring tells those whose time has come. What is to be done about each may take
// long, and the others don't wait for it.
func (c *clock) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for now := time.Now(); len(c.queue) > 0 && !now.Before(c.queue[0].alarm.at); {
		h, _ := heap.Pop(&c.queue).(*Hold)
		go h.expire()
	}
	c.rings = time.Time{}
	c.wind()
}

// wind sets the timer to the first end, if it would ring later.
func (c *clock) wind() {
	if len(c.queue) == 0 || !c.rings.IsZero() && !c.queue[0].alarm.at.Before(c.rings) {
		return
	}
	c.rings = c.queue[0].alarm.at
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(c.rings), c.ring)
		return
	}
	c.timer.Reset(time.Until(c.rings))
}

// alarm is when a hold is told.
type alarm struct {
	at    time.Time
	place int // in the queue, from 1; 0: none
}

// clockQueue is a heap of holds by their alarms.
type clockQueue []*Hold

func (q clockQueue) Len() int           { return len(q) }
func (q clockQueue) Less(i, j int) bool { return q[i].alarm.at.Before(q[j].alarm.at) }
func (q clockQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].alarm.place, q[j].alarm.place = i+1, j+1
}

// Push is for container/heap.
func (q *clockQueue) Push(x any) {
	h, _ := x.(*Hold)
	*q = append(*q, h)
	h.alarm.place = len(*q)
}

// Pop is for container/heap.
func (q *clockQueue) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	h.alarm.place = 0
	return h
}
