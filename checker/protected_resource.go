package checker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
	"unsafe"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// ProtectedResource is the checker of "protected-resource": what the lock was
// there for did not happen to the resource itself. An access is of its
// Resource, or of its Lock if it names none.
//
// lost-update: an access that was answered ok with the Value "<read>><written>"
// is a read-modify-write of versions, each of which is written once (a counter
// that only grows will do). Two that read the same version and both wrote lost
// one of the writes; so did one that was answered before another was invoked
// that read an older version.
//
// stale-access: an access with a fencing token was accepted although it was
// invoked after one with a greater token had been accepted.
//
// An access with an unknown outcome is no evidence: it may have written any
// version that no other access is known to have written, and excuses the reads
// of that which were answered after it was sent. At the same stamp neither of
// two accesses came first.
func ProtectedResource() Checker {
	return &property{
		name: "protected-resource", engine: "pairs in order of time",
		applies: func(ev *evidence) bool {
			return ev.sees(func(e *history.Event) bool {
				if e.Op != history.Access || e.Type != history.OK {
					return false
				}
				_, _, ok := update(e.Value)
				return ok || e.Token != 0
			})
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			protectedResource(ev, f)
			var held []string
			if n := f.counts["updates"]; n > 0 {
				held = append(held, "no update was lost in "+say.Count(n, "read-modify-write"))
			}
			if n := f.counts["tokens"]; n > 0 {
				held = append(held, "none of "+say.Count(n, "access")+" with a token came too late")
			}
			f.valid = strings.Join(held, ", and ")
		},
	}
}

// update splits the value of a read-modify-write.
func update(value string) (read, written string, ok bool) {
	read, written, ok = strings.Cut(value, ">")
	return read, written, ok && read != "" && written != "" && read != written
}

// An rmw is a read-modify-write that happened.
type rmw struct {
	op            *history.Operation
	read, written string
}

// A guarded is all that is known of one resource.
type guarded struct {
	name    string
	updates []rmw
	tokens  []*history.Operation
	unknown time.Duration // when the first access was sent that may have written anything; Never if there is none
}

func protectedResource(ev *evidence, f *findings) {
	resources := map[string]*guarded{}
	var names []string
	ops := ev.operations()
	for i := range ops {
		op := &ops[i]
		if op.Invoke.Op != history.Access || op.Failed() {
			continue
		}
		name := op.Invoke.Resource
		if name == "" {
			name = op.Invoke.Lock
		}
		g := resources[name]
		if g == nil {
			g = &guarded{name: name, unknown: history.Never}
			resources[name] = g
			names = append(names, name)
		}
		if op.Unknown() {
			g.unknown = min(g.unknown, op.Invoke.Time)
			continue
		}
		if read, written, ok := update(op.Complete.Value); ok {
			g.updates = append(g.updates, rmw{op: op, read: read, written: written})
			f.counts["updates"]++
		}
		if token(op) != 0 {
			g.tokens = append(g.tokens, op)
			f.counts["tokens"]++
		}
	}
	for _, name := range names {
		g := resources[name]
		f.used(len(g.updates)*3*int(unsafe.Sizeof(rmw{})) + len(g.tokens)*int(unsafe.Sizeof(g)))
		g.lostUpdates(f)
		g.staleAccesses(f)
	}
}

// token is the access's token, wherever it was written.
func token(op *history.Operation) int64 {
	return cmp.Or(op.Complete.Token, op.Invoke.Token)
}

// lostUpdates finds the updates that were lost.
func (g *guarded) lostUpdates(f *findings) {
	slices.SortFunc(g.updates, func(a, b rmw) int { return cmp.Compare(a.op.Complete.Index, b.op.Complete.Index) })
	writers := map[string][]rmw{}
	readers := map[string][]rmw{}
	for _, u := range g.updates {
		writers[u.written] = append(writers[u.written], u)
		readers[u.read] = append(readers[u.read], u)
	}
	// latest[i] is the update, of the first i+1 in order of answers, that was invoked last.
	latest := make([]int, len(g.updates))
	for i := range g.updates {
		latest[i] = i
		if i > 0 && g.updates[latest[i-1]].op.Invoke.Time > g.updates[i].op.Invoke.Time {
			latest[i] = latest[i-1]
		}
	}
	seen := map[string]int{}
	for i := range g.updates {
		u := g.updates[i]
		if found := g.lost(i, latest, sentBy(writers[u.read], u.op.Complete.Time), readers[u.read], seen); found != nil {
			f.add(*found)
		}
	}
}

// lost is what shows that update i, which read what one of the writers wrote, or a
// write before it was lost; nil if nothing does.
func (g *guarded) lost(i int, latest []int, writers, readers []rmw, seen map[string]int) *Violation {
	u := g.updates[i]
	if len(writers) == 0 && g.unknown <= u.op.Complete.Time {
		return nil // which write it read is not told
	}
	if seen[u.read]++; seen[u.read] > chances(writers, readers[0]) {
		v := g.readTwice(readers[seen[u.read]-2], u)
		return &v
	}
	written := time.Duration(-1)
	switch {
	case len(writers) > 1:
		return nil // nor here
	case len(writers) == 1:
		written = writers[0].op.Complete.Time
	}
	before := sort.Search(len(g.updates), func(j int) bool { return g.updates[j].op.Complete.Time >= u.op.Invoke.Time })
	if before == 0 {
		return nil
	}
	unseen := g.updates[latest[before-1]]
	if unseen.op.Invoke.Time <= written || unseen.written == u.read {
		return nil
	}
	v := g.unseen(unseen, u)
	return &v
}

// sentBy are those of some updates that were sent no later than t: what was sent
// later can't have been read by then.
func sentBy(updates []rmw, t time.Duration) []rmw {
	sent := 0
	for _, u := range updates {
		if u.op.Invoke.Time <= t {
			sent++
		}
	}
	if sent == len(updates) { // nearly always
		return updates
	}
	return slices.DeleteFunc(slices.Clone(updates), func(u rmw) bool { return u.op.Invoke.Time > t })
}

// chances is how often a version was there to be read: as often as it was written,
// and at the beginning, if it was read before it was written.
func chances(writers []rmw, first rmw) int {
	for _, w := range writers {
		if first.op.Complete.Time > w.op.Invoke.Time {
			return len(writers)
		}
	}
	return len(writers) + 1
}

func (g *guarded) readTwice(first, second rmw) Violation {
	return Violation{
		Kind: LostUpdate, Lock: second.op.Invoke.Lock, Resource: g.name,
		Events: events(first.op.Complete.Index, second.op.Complete.Index),
		From:   second.op.Invoke.Time, Until: second.op.Complete.Time,
		Explanation: fmt.Sprintf("%s and %s both read version %s of %q and wrote %s and %s (answered at %s and %s): one of the two writes is lost",
			caller(first.op), caller(second.op), first.read, g.name, first.written, second.written,
			seconds(first.op.Complete.Time), seconds(second.op.Complete.Time)),
	}
}

func (g *guarded) unseen(lost, by rmw) Violation {
	return Violation{
		Kind: LostUpdate, Lock: by.op.Invoke.Lock, Resource: g.name,
		Events: events(lost.op.Complete.Index, by.op.Invoke.Index, by.op.Complete.Index),
		From:   by.op.Invoke.Time, Until: by.op.Complete.Time,
		Explanation: fmt.Sprintf("%s wrote version %s of %q by %s, but %s, which began at %s, read the older version %s and wrote %s over it: the write is lost",
			caller(lost.op), lost.written, g.name, seconds(lost.op.Complete.Time),
			caller(by.op), seconds(by.op.Invoke.Time), by.read, by.written),
	}
}

func (g *guarded) staleAccesses(f *findings) {
	answered := slices.Clone(g.tokens)
	slices.SortFunc(answered, func(a, b *history.Operation) int { return cmp.Compare(a.Complete.Index, b.Complete.Index) })
	var newest *history.Operation
	next := 0
	for _, op := range g.tokens { // in order of invokes
		for ; next < len(answered) && answered[next].Complete.Time < op.Invoke.Time; next++ {
			if newest == nil || token(answered[next]) > token(newest) {
				newest = answered[next]
			}
		}
		if newest == nil || token(newest) <= token(op) {
			continue
		}
		f.add(Violation{
			Kind: StaleAccess, Lock: op.Invoke.Lock, Resource: g.name,
			Events: events(newest.Complete.Index, op.Invoke.Index, op.Complete.Index),
			From:   op.Invoke.Time, Until: op.Complete.Time,
			Explanation: fmt.Sprintf("%q accepted token %d of %s at %s, %s after it had accepted token %d of %s",
				g.name, token(op), caller(op), seconds(op.Complete.Time),
				say.Span(max(op.Complete.Time-newest.Complete.Time, 0)), token(newest), caller(newest)),
		})
	}
}
