package checker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Assumptions is the checker of "assumptions": whether the history can show
// anything at all. It never finds a violation, and is Unknown where docs/what-is-checked.md says so; also where it met
// nothing of something that it was to meet: the names in package history of what it has to have at least one of.
//
// Its result counts what the history met, in [Result.Met].
func Assumptions(meets ...string) Checker { return assumptions(true, meets) }

// absent says what was not met, where the name does not say it.
var absent = map[string]string{ //nolint:gochecknoglobals // a table
	history.MetNotHeld: "no release or extension was refused because the hold was over on the servers, as where a key outlives its lease",
	history.MetQueued:  "no grant said its place in a queue",
	history.MetShared:  "no lock was held by two owners together",
	history.MetUnknown: "there were no operations whose outcome is unknown",
}

func assumptions(contention bool, meets []string) Checker {
	return Checker{
		name: "assumptions", engine: "counts",
		judge: func(_ context.Context, ev *evidence, _ []*holding.Lock, f *findings) {
			injected, landed, unmet := faultsOf(ev.Faults)
			f.met = cover(ev)
			for op := range ev.Ops() {
				if op.Verb != holding.Acquire {
					continue
				}
				f.counts["requests"]++
				if op.OK() && op.Lease == 0 && slices.Contains(meets, history.MetUnleased) {
					f.met[history.MetUnleased]++
				}
			}
			// Times in another unit come first: they explain what was not met.
			for _, why := range ev.units() {
				if why != "" {
					f.doubt("%s", why)
				}
			}
			switch {
			case f.counts["requests"] == 0:
				f.doubt("no lock was asked for")
			case !contention && !slices.ContainsFunc(ev.Locks(), severalHeld):
				f.doubt("no lock was granted to two clients")
			case !contention && !slices.ContainsFunc(ev.Locks(), surelyHeld):
				f.doubt("no hold is certain for any time after its grant, so that no double grant could show: log request and releasing before what is asked for, and finer stamps if these hide it")
			case contention && f.met[history.MetContention] == 0:
				f.doubt("no two processes contended for a lock")
			}
			for _, name := range meets {
				if f.met[name] == 0 && name != history.MetContention {
					f.doubt("%s, and the workload is there for that", cmp.Or(absent[name], "there were no "+name))
				}
			}
			if cut := ev.Truncated; cut > 0 {
				f.doubt("the last line, %d, was cut short and dropped: who knows what it said", cut)
			}
			f.counts["faults"] = landed
			switch {
			case injected == 0 || landed > 0:
			case unmet > 0:
				f.doubt("%s injected, and none took effect on a request: no request met %d of them", say.Count(injected, "fault"), unmet)
			default:
				f.doubt("%s injected, and none took effect", say.Count(injected, "fault"))
			}
			f.valid = say.Count(f.counts["requests"], "request") + " for a lock"
			if f.met[history.MetContention] > 0 {
				f.valid += ", with contention"
			}
			if landed > 0 {
				f.valid += ", under " + say.Count(landed, "fault")
			}
		},
	}
}

// faultsOf counts the faults that were injected, those that took effect, and of the others those that no request met.
func faultsOf(events []history.Event) (injected, landed, unmet int) {
	for i := range events {
		switch e := &events[i]; {
		case e.Op == history.Inject && e.Type == history.Invoke:
			injected++
		case e.Op == history.Inject && e.Type == history.OK:
			landed++
		case e.Op == history.Observe && e.What == history.ObserveMet && e.Value == "0":
			unmet++
		}
	}
	unmet = min(unmet, landed)
	return injected, landed - unmet, unmet
}

// expiresUnit is what to say where the ends of grants can't be right.
const expiresUnit = `"expires" must be nanoseconds since the start of the record, not a length ("lease" is one)`

// units says why the lengths of leases can't be right, and why the ends of grants are none:
// no lease is as long as a millisecond; each grant ends before it was asked for.
func (ev *evidence) units() (why [2]string) {
	var ends, durations, all, short int
	for op := range ev.Ops() {
		if op.Verb != holding.Acquire && op.Verb != holding.Extend {
			continue
		}
		length := op.Lease
		if op.Expiry > 0 {
			length = max(length, op.Expiry-op.Invoke.Time)
			ends++
			if op.Expiry < op.Invoke.Time {
				durations++
			}
		} else if length == 0 {
			continue
		}
		if all++; length < time.Millisecond {
			short++
		}
	}
	if all > 0 && all == short {
		why[0] = "no lease is as long as a millisecond, of " + say.Count(all, "lease") + ": all times are nanoseconds"
	}
	if ends > 1 && ends == durations {
		why[1] = expiresUnit + ": each of " + say.Count(ends, "grant") + " ends before it was asked for"
	}
	return why
}

// inUnits takes back the violations in which a lease has a part, if the leases can't be right. In a
// record that is shorter than a millisecond itself, leases and instants may well be in the same
// wrong unit.
func (ev *evidence) inUnits(f *findings) {
	why := ev.units()
	if why[1] != "" || ev.End < time.Millisecond {
		why[0] = why[1]
	}
	if why[0] == "" {
		return
	}
	f.violations = slices.DeleteFunc(f.violations, func(v Violation) bool {
		return leased(ev.Lock(v.Lock)) && v.Kind != LostUpdate && v.Kind != StaleAccess
	})
	f.doubts = []string{why[0]}
}

// leased reports whether a lease of the lock was asked for or granted.
func leased(l *holding.Lock) bool {
	return l != nil && slices.ContainsFunc(l.Ops, func(op *holding.Op) bool {
		return op.Verb != holding.Release && (op.Lease > 0 || op.Expiry > 0)
	})
}

// severalHeld reports whether two processes held the lock, one after the other or not.
func severalHeld(l *holding.Lock) bool {
	return slices.ContainsFunc(l.Holds, func(h *holding.Grant) bool { return h.Process() != l.Holds[0].Process() })
}

// surelyHeld reports whether a hold of the lock was certain for some time before its release.
func surelyHeld(l *holding.Lock) bool {
	return slices.ContainsFunc(l.Holds, func(h *holding.Grant) bool {
		return h.Certain() && (h.Release == nil || h.Release.Invoke.Time > h.Start)
	})
}

// contended counts the requests for a lock that overlap a hold of another process. It goes
// through them in order of their answers.
func contended(l *holding.Lock) int {
	until := func(h *holding.Grant) time.Duration { // until when it may have kept others waiting
		until := max(h.Start, h.End)
		if r := h.Release; r != nil {
			until = max(until, r.Complete.Time)
		}
		if n := len(h.Belief); n > 0 { // its end may still be under way
			until = max(until, h.Belief[n-1].Until)
		}
		return until
	}
	longer := func(a, b *holding.Grant) bool { return until(a) > until(b) }
	same := func(a, b *holding.Grant) bool { return a.Process() == b.Process() }
	holds := l.Holds
	if len(l.Excluded) > 0 {
		holds = sorted(slices.Concat(holds, l.Excluded), func(h *holding.Grant) time.Duration { return h.Start })
	}
	n := 0
	var longest best[*holding.Grant]
	for _, op := range l.Requests {
		for ; len(holds) > 0 && holds[0].Start <= op.Complete.Time; holds = holds[1:] {
			longest.add(holds[0], longer, same)
		}
		if _, overlaps := longest.but(func(h *holding.Grant) bool { return h.Process() != op.Process && until(h) >= op.Invoke.Time }); overlaps {
			n++
		}
	}
	return n
}

// cover counts what the history met: by the names in package history.
func cover(ev *evidence) map[string]int {
	counts := map[string]int{history.MetContention: 0}
	add := func(name string, n int) {
		if n > 0 {
			counts[name] += n
		}
	}
	for _, crashes := range ev.Crashes {
		add(history.MetCrashes, len(crashes))
	}
	for op := range ev.Ops() {
		switch {
		case op.Unknown() && !op.Open():
			counts[history.MetUnknown]++
		case op.Verb == holding.Access && op.Failed() && op.Token != 0 && !op.Abandoned(): // because of its token
			counts[history.MetStale]++
		case op.Verb == holding.Acquire && op.Failed():
			counts[history.MetRefusals]++
		case op.Verb != holding.Access && op.Failed():
			counts[history.MetNotHeld]++
		case op.Verb == holding.Acquire && op.OK() && op.Queued >= 0:
			counts[history.MetQueued]++
		case op.Verb == holding.Extend && op.OK():
			counts[history.MetRenewals]++
		}
	}
	for _, l := range ev.Locks() {
		add(history.MetContention, contended(l))
		coverHolds(l, ev.End, add)
	}
	all := ev.Holds()
	times := make([]int32, ev.Names()) // that each owner held something: without this, the judge of a million owners takes an eighth longer
	for _, h := range all {
		times[h.Owner()]++
	}
	held := map[int32][]*holding.Grant{} // by owner
	for _, h := range all {
		if times[h.Owner()] == 1 {
			continue
		}
		before := slices.DeleteFunc(held[h.Owner()], func(before *holding.Grant) bool { return before.End <= h.Start })
		held[h.Owner()] = append(before, h)
		for _, mine := range before {
			switch {
			case mine.Acquire.Lock != h.Acquire.Lock:
				add(history.MetSeveral, 1)
			case mine.Mode() == holding.Write && h.Reads():
				add(history.MetDowngrades, 1)
			default:
				add(history.MetReentries, 1)
			}
		}
	}
	return counts
}

// coverHolds counts what the holds of a lock show.
func coverHolds(l *holding.Lock, end time.Duration, add func(string, int)) {
	var last *holding.Grant // of those that began, the one that lasts longest
	for _, h := range l.Holds {
		if over := h.Ended == holding.EndExpired || h.Ended == holding.EndLost || len(h.Late) > 0; over && h.End < end {
			add(history.MetExpiries, 1)
		}
		if last != nil && last.Owner() != h.Owner() {
			switch {
			case last.End > h.Start:
				add(history.MetShared, 1)
			case last.End > h.Acquire.Invoke.Time:
				add(history.MetHandOvers, 1)
			}
		}
		for _, x := range h.Extensions {
			if x.Verb == holding.Acquire && x.OK() {
				add(history.MetReentries, 1)
			}
		}
		if last == nil || h.End >= last.End {
			last = h
		}
	}
}
