package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// seconds writes t as seconds with the precision of a millisecond, or finer
// where a millisecond would hide that it is not zero.
func seconds(t time.Duration) string {
	if t == history.Never {
		return "the end of the history"
	}
	if t != 0 && t.Abs() < time.Millisecond {
		return strconv.FormatFloat(t.Seconds(), 'f', -1, 64) + " s"
	}
	return fmt.Sprintf("%d.%03d s", t/time.Second, (t%time.Second)/time.Millisecond)
}

// who names the process and owner of an event: p3, or p3 (owner a) where the
// owner is another name.
func who(process int, owner string) string {
	p := "p" + strconv.Itoa(process)
	if owner == "" || owner == p {
		return p
	}
	return fmt.Sprintf("%s (owner %s)", p, owner)
}

// holder names who holds a lock.
func holder(l *holding.Lock, h *holding.Grant) string {
	return who(h.Process(), l.Record().Name(h.Owner()))
}

// caller names who made an operation.
func caller(r *holding.Record, op *holding.Op) string { return who(op.Process, r.Name(op.Owner)) }

// violation is one of a lock, with its explanation.
func violation(kind, lock string, s holding.Span, events []int64, format string, args ...any) Violation {
	return Violation{Kind: kind, Lock: lock, From: s.From, Until: s.Until, Events: events, Explanation: fmt.Sprintf(format, args...)}
}

// instant is a span without a length.
func instant(t time.Duration) holding.Span { return holding.Span{From: t, Until: t} }

// events lists the indices of events in order, without doubles and without
// those that are not in the history.
func events(indices ...int64) []int64 {
	indices = slices.DeleteFunc(indices, func(i int64) bool { return i < 0 })
	slices.Sort(indices)
	return slices.Compact(indices)
}

func byTime(a, b Violation) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Until, b.Until), slices.Compare(a.Events, b.Events))
}

// sorted is a list in order of some time.
func sorted[T any](list []T, at func(T) time.Duration) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(at(a), at(b)) })
	return list
}

// inTurn looks at each of a list when it begins, in order, and takes before that those whose end was before.
func inTurn[T any](list []T, begin, end func(T) time.Duration, take, look func(T)) {
	ended := sorted(list, end)
	for _, x := range sorted(list, begin) {
		for ; len(ended) > 0 && end(ended[0]) < begin(x); ended = ended[1:] {
			take(ended[0])
		}
		look(x)
	}
}

// A best keeps of what it is given the greatest, and the greatest of what is not the same as that: of all that is not the same
// as some other thing, one of the two is the greatest.
type best[T any] struct {
	at [2]T
	n  int
}

func (b *best[T]) add(x T, greater, same func(x, y T) bool) {
	switch {
	case b.n > 0 && same(x, b.at[0]):
		if greater(x, b.at[0]) {
			b.at[0] = x
		}
	case b.n == 0 || greater(x, b.at[0]):
		b.at, b.n = [2]T{x, b.at[0]}, min(b.n+1, 2)
	case b.n == 1 || greater(x, b.at[1]):
		b.at[1], b.n = x, 2
	}
}

// but is the greatest that is something.
func (b *best[T]) but(is func(T) bool) (greatest T, found bool) {
	for _, x := range b.at[:b.n] {
		if is(x) {
			return x, true
		}
	}
	return greatest, false
}
