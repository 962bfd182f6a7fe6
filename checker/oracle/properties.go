package oracle

import (
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// grants are the acquires of a lock that were answered ok.
func (l *Lock) grants() []*operation {
	var ok []*operation
	for i := range l.ops {
		if l.ops[i].op == history.Acquire && l.ops[i].kind == history.OK {
			ok = append(ok, &l.ops[i])
		}
	}
	return ok
}

// fencing compares what is said of the tokens of a lock.
func (c *comparison) fencing(l *Lock, f Finding) {
	convicted := f.has(l.Name, "fence-regress", "fence-duplicate")
	inner := c.report["mutual-exclusion"].has(l.Name, "reentrancy")
	if l.spec.Fenced != nil && !*l.spec.Fenced {
		if convicted {
			c.say("fencing-order of "+l.Mode, "tokens of a lock that is not fenced are convicted")
		}
		return
	}
	shared := l.spec.Kind == history.KindRW || l.spec.Kind == history.KindSemaphore
	if !shared {
		switch {
		case !l.Possible:
			// The order of grants that can't have been is judged by nothing here.
		case l.InOrder && convicted:
			c.say("fencing-order of "+l.Mode, "tokens that can be in order are convicted")
		case !l.InOrder && !convicted && !inner && len(l.Doubts) == 0 && l.allTokens() && (f.Verdict != unknown || !l.releasedAgain() && !l.cutAgain()):
			c.say("fencing-order of "+l.Mode, "tokens that can't be in order are not convicted")
		case l.Inner && !l.InOrder && inner:
			c.say("fencing-order of "+l.Mode, "tokens out of order are no reentrancy")
		}
		return
	}
	may, must := false, false
	for _, a := range l.grants() {
		for _, b := range l.grants() {
			if a == b || a.token == 0 || b.token == 0 {
				continue
			}
			readers := a.mode == history.Read && b.mode == history.Read
			switch {
			case a.token == b.token && !readers:
				may = true
				must = must || a.owner != b.owner && l.first(a) && l.first(b)
			case a.token > b.token && a.complete < b.invoke:
				may = true
				must = must || l.first(b) && l.told(a)
			}
		}
	}
	switch {
	case convicted && !may:
		c.say("fencing-order of "+l.Mode, "tokens that can be in order are convicted")
	case !convicted && must && len(l.Doubts) == 0:
		c.say("fencing-order of "+l.Mode, "tokens that can't be in order are not convicted")
	}
}

// releasedAgain reports whether an owner was given a token twice and may have
// released: whether that ended the hold is not told.
func (l *Lock) releasedAgain() bool {
	for i := range l.ops {
		o := &l.ops[i]
		if o.op != history.Release || o.kind == history.Fail {
			continue
		}
		for _, a := range l.grants() {
			for _, b := range l.grants() {
				if a.owner == o.owner && b.owner == o.owner && a.first < b.first && b.first < o.last && a.token == b.token {
					return true
				}
			}
		}
	}
	return false
}

// cutAgain reports whether an owner was given two tokens, the second by a grant that
// was answered at its own end or after it: whether that cut the lease of the first
// grant is not told.
func (l *Lock) cutAgain() bool {
	all := account{spec: l.spec, all: l.ops}
	for _, a := range l.grants() {
		for _, b := range l.grants() {
			if a.owner == b.owner && a.first < b.first && a.token != b.token && all.end(b) <= b.complete {
				return true
			}
		}
	}
	return false
}

// allTokens reports whether every grant is known with its token: others are not
// seen by the property.
func (l *Lock) allTokens() bool {
	for i := range l.ops {
		if o := &l.ops[i]; granted(o) && (o.kind != history.OK || o.token == 0) {
			return false
		}
	}
	return true
}

// told reports whether a grant is not the inner one of a hold that was granted
// without a token, or perhaps so: the token of that is not seen.
func (l *Lock) told(grant *operation) bool {
	for i := range l.ops {
		if o := &l.ops[i]; granted(o) && o.owner == grant.owner && o.token == 0 && o.first < grant.first {
			return false
		}
	}
	return true
}

// first reports whether a grant can't be part of a hold that its owner had before.
func (l *Lock) first(grant *operation) bool {
	for i := range l.ops {
		if o := &l.ops[i]; granted(o) && o.owner == grant.owner && o.first < grant.first {
			return false
		}
	}
	return true
}

// fairness compares what is said of the order of a queue: of two grants that
// were granted in the other order in every world, or of which the later was
// asked for after the other was answered.
func (c *comparison) fairness(l *Lock, f Finding) {
	if !l.spec.Fair {
		return
	}
	convicted := f.has(l.Name, "overtaken")
	may, must := false, false
	for _, late := range l.grants() {
		for _, early := range l.grants() {
			if early.queued < 0 || early.queued >= late.queued {
				continue
			}
			// late was granted although early was queued before it.
			answered := late.complete < early.invoke
			own := late.owner == early.owner
			switch {
			case answered && !own:
				may, must = true, must || l.first(early) && l.first(late)
			case own && answered:
				// It counts if the first was released in between.
				for i := range l.ops {
					r := &l.ops[i]
					if r.op == history.Release && r.owner == late.owner && r.first > late.last && r.complete < early.invoke {
						may = true
					}
				}
			case !own && convicted && !may:
				may = !l.Possible || !l.precedes(early, late)
			}
		}
	}
	switch {
	case convicted && !may:
		c.say("fairness", "a queue that can be in order is convicted")
	case must && !convicted && len(l.Doubts) == 0:
		c.say("fairness", "a queue that can't be in order is not convicted")
	}
}

// precedes reports whether one acquire can have taken effect before another.
func (l *Lock) precedes(first, second *operation) bool {
	s := newSearch(l.spec, l.ops)
	for i := range s.effects {
		switch s.effects[i].first {
		case first.first:
			s.precede[0] = i
		case second.first:
			s.precede[1] = i
		}
	}
	return s.possible(Ignore)
}

// accesses compares what is said of the protected resource and of its use.
func (c *comparison) accesses(o *Opinion) {
	var done []*operation
	for i := range o.ops {
		if a := &o.ops[i]; a.op == history.Access && a.kind == history.OK {
			done = append(done, a)
		}
	}
	if f, is := c.report["use-within-lease"]; is {
		late, all, without := false, true, false
		for _, a := range done {
			if a.lock == "" {
				continue
			}
			within, after := o.use(a)
			all, late = all && within, late || after
			without = without || !within && o.withoutLock(a)
		}
		switch {
		case f.Verdict == invalid && all:
			c.say("use-within-lease", "no access was late")
		case f.Verdict == valid && (late || without):
			c.say("use-within-lease", "a late access, or one without the lock, is not convicted")
		}
	}
	f, is := c.report["protected-resource"]
	if !is {
		return
	}
	// What a version is older than can be told where all outcomes are known.
	unsure := slices.ContainsFunc(o.ops, func(a operation) bool { return a.op == history.Access && a.kind == history.Info })
	stale, lost, perhaps, twice := false, false, false, false
	for _, a := range done {
		for _, b := range done {
			if a == b || resourceOf(a) != resourceOf(b) {
				continue
			}
			before := a.complete < b.invoke
			stale = stale || before && a.token > b.token && b.token > 0
			ra, wa, isA := strings.Cut(a.value, ">")
			rb, wb, isB := strings.Cut(b.value, ">")
			if !isA || !isB {
				continue
			}
			twice = twice || wa == wb
			lost = lost || ra == rb || before && older(slices.DeleteFunc(slices.Clone(done), func(o *operation) bool { return o == b }), rb, wa)
			perhaps = perhaps || a.last < b.first && rb != wa && !older(done, wa, rb)
		}
	}
	if f.Verdict == invalid && !stale && !lost && !perhaps {
		c.say("protected-resource", "nothing was lost and nothing is stale")
	}
	if f.Verdict != invalid && (stale || lost && !twice && !unsure) {
		c.say("protected-resource", "what was lost or is stale is not convicted")
	}
}

// withoutLock reports whether an access was made for certain by an owner that had never
// asked for the lock successfully, while another one held it for certain.
func (o *Opinion) withoutLock(a *operation) bool {
	for _, l := range o.Locks {
		if l.Name != a.lock || l.spec.Kind != "" || len(l.Doubts) > 0 {
			continue
		}
		for i := range l.ops {
			g := &l.ops[i]
			if granted(g) && (g.owner == a.owner || g.process == a.process) || a.unnamed {
				return false
			}
		}
		for _, g := range l.grants() {
			if g.complete < a.invoke && l.untouched(g) > a.complete {
				return true
			}
		}
	}
	return false
}

func resourceOf(a *operation) string {
	if a.resource != "" {
		return a.resource
	}
	return "\x00" + a.lock
}

// older reports whether the version is known to be older than the other: a chain
// of accesses leads from it to the other, each of which read what the one before
// it wrote.
func older(done []*operation, version, than string) bool {
	seen := map[string]bool{}
	for next := []string{version}; len(next) > 0; next = next[1:] {
		for _, a := range done {
			read, wrote, _ := strings.Cut(a.value, ">")
			if read != next[0] || seen[wrote] {
				continue
			}
			if wrote == than {
				return true
			}
			seen[wrote] = true
			next = append(next, wrote)
		}
	}
	return false
}

// use reports whether an access was invoked for certain while its owner was
// entitled to believe that it held the lock; and whether it was invoked for
// certain after that, which is told only of an owner that acquired once.
func (o *Opinion) use(a *operation) (within, late bool) {
	acquires := 0
	var grant *operation
	for i := range o.ops {
		if g := &o.ops[i]; g.op == history.Acquire && g.lock == a.lock && g.owner == a.owner {
			acquires++
			if g.kind == history.OK && g.last < a.first {
				grant = g
			}
		} else if a.unnamed && g.op == history.Acquire && g.lock == a.lock && g.process == a.process {
			acquires++ // it may belong to that hold of its process
		}
	}
	if grant == nil {
		return false, false
	}
	least, most := grant.promised(), grant.promised()
	// ended is whether a release, a notice or a refusal came no later than the
	// access, and over whether it came before it and nothing prolonged the belief.
	ended, over := false, false
	for i := range o.ops {
		e := &o.ops[i]
		if e.lock != a.lock || e.owner != a.owner || e.last < grant.first || e.invoke > a.invoke {
			continue
		}
		switch {
		case e.op == history.Extend && e.kind == history.OK && e.complete <= a.invoke:
			least, most = min(least, e.promised()), max(most, e.promised())
			over = false
			acquires++ // it may be believed again
		case e.op == history.Extend && e.kind == history.Fail:
			ended, over = true, over || e.complete < a.invoke
			if e.mode != grant.mode || e.permits > 1 || e.first < grant.last {
				acquires++ // it may be of another grant, or of more permits
			}
		case e.op == history.Release || e.op == history.Lost:
			ended = true
			over = e.invoke < a.invoke
			if e.mode != grant.mode || e.permits != 0 && e.permits != max(1, grant.permits) || e.first < grant.last {
				acquires++ // it may be of another grant
			}
		default:
		}
	}
	return !ended && a.invoke <= least, acquires == 1 && a.invoke > grant.complete && (over || a.invoke > most)
}

// contention compares whether the history shows anything: whether a process asked
// for a lock while another one held it.
func (c *comparison) contention(o *Opinion) {
	may, must := false, false
	for _, l := range o.Locks {
		for i := range l.ops {
			for j := range l.ops {
				hold, request := &l.ops[i], &l.ops[j]
				if !granted(hold) || request.op != history.Acquire || hold.process == request.process || request.complete < hold.invoke {
					continue
				}
				may = true
				must = must || l.Doubts[hold.owner] == "" && hold.kind == history.OK && hold.complete < request.complete &&
					l.untouched(hold) > max(hold.complete, request.invoke)
			}
		}
	}
	switch f := c.report["assumptions"]; {
	case f.Verdict == valid && !may:
		c.say("assumptions", "there was no contention")
	case f.Verdict == unknown && must && !o.faults && !o.short():
		c.say("assumptions", "there was contention")
	}
}

// durations reports whether several grants have an end, and each end is before its request.
func (o *Opinion) durations() bool {
	ends := 0
	for i := range o.ops {
		op := &o.ops[i]
		if (op.op == history.Acquire || op.op == history.Extend) && op.expires > 0 {
			if ends++; op.expires >= op.invoke {
				return false
			}
		}
	}
	return ends > 1
}

// short reports whether there are leases, asked for or granted, and each is shorter than
// a millisecond.
func (o *Opinion) short() bool {
	leases := 0
	for i := range o.ops {
		op := &o.ops[i]
		if op.op != history.Acquire && op.op != history.Extend || op.lease == 0 && op.expires <= 0 {
			continue
		}
		leases++
		if op.lease >= time.Millisecond || op.expires > 0 && op.expires-op.invoke >= time.Millisecond {
			return false
		}
	}
	return leases > 0
}

// untouched is until when a grant lasts for certain: its lease, or the next thing
// that its owner or a crash did.
func (l *Lock) untouched(grant *operation) time.Duration {
	until := grant.promised()
	if until != never {
		until -= l.spec.Drift
	}
	for i := range l.ops {
		if o := &l.ops[i]; o != grant && (o.owner == grant.owner || o.op == history.Crash) && o.complete >= grant.invoke {
			until = min(until, o.invoke)
		}
	}
	return until
}
