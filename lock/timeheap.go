package lock

import (
	"container/heap"
	"time"
)

// A timeHeap has items in the order of their times.
type timeHeap[T interface{ when() *alarm }] []T

// alarm is the time of an item, and its place in the heap.
type alarm struct {
	at    time.Time
	place int // from 1; 0: it is in none
}

// put adds an item, or moves it to another time.
func (q *timeHeap[T]) put(x T, at time.Time) {
	a := x.when()
	if a.at = at; a.place > 0 {
		heap.Fix(q, a.place-1)
	} else {
		heap.Push(q, x)
	}
}

// remove takes an item out, if it is there.
func (q *timeHeap[T]) remove(x T) {
	if place := x.when().place; place > 0 {
		heap.Remove(q, place-1)
	}
}

func (q timeHeap[T]) Len() int           { return len(q) }
func (q timeHeap[T]) Less(i, j int) bool { return q[i].when().at.Before(q[j].when().at) }
func (q timeHeap[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].when().place, q[j].when().place = i+1, j+1
}

// Push implements [heap.Interface].
func (q *timeHeap[T]) Push(x any) {
	item, _ := x.(T)
	*q = append(*q, item)
	item.when().place = len(*q)
}

// Pop implements [heap.Interface].
func (q *timeHeap[T]) Pop() any {
	last := len(*q) - 1
	item := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	item.when().place = 0
	return item
}
