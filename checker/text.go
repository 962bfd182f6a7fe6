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
