package reports

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// advice says what to do about a violation for which no cure is known: the command that tells
// a defect of the lock from a limit of its servers, and where in the lock to look. It says
// nothing where a fault explains the violation that no lock withstands.
func (m *model) advice(v *checker.Violation) []string {
	var all []string
	look := lookAt(v.Kind, m.shared(v.Lock), m.releasedBefore(v))
	if look == "" {
		return nil
	}
	if m.placedAnew(v) {
		look = "what counts the places of the queue, and whether that outlives an empty queue"
	}
	if v.Kind == checker.DoubleGrant && m.vote() {
		look = "whether a grant needs the votes of more than half of the servers, " + look
	}
	if words := m.controlAdvice(v); words != "" {
		all = append(all, words)
	}
	if c := m.Run.Control; c != nil && c.Verdict != string(checker.Valid) || m.limits(v) {
		return all
	}
	if m.cause >= 0 {
		return append(all, "Most locks withstand such a fault. Look in the lock at "+look+".")
	}
	return append(all, "No recorded fault can have done it: this is a bug of the lock, unless its servers failed unseen. Look at "+look+".")
}

// limits reports whether the fault that caused a violation is one of those that no lock on
// such servers withstands, whatever its code.
func (m *model) limits(v *checker.Violation) bool {
	if m.cause < 0 {
		return false
	}
	rank := m.explains(&m.faults[m.cause], v)
	return rank >= 0 && rank < weakRank
}

// controlAdvice is the command that repeats a run with a correct lock.
func (m *model) controlAdvice(v *checker.Violation) string {
	if m.Run.Control != nil || m.limits(v) || m.Run.Backend == history.Simulated {
		return ""
	}
	flag := "--control"
	switch shared := m.shared(v.Lock); {
	case v.Kind == checker.Overtaken:
		flag = "--lock mutex-fair"
	case v.Kind == checker.Reentrancy && !shared:
		flag = "--lock mutex"
	case m.kindOf(v.Lock) == history.KindSemaphore:
		flag = "--lock semaphore-permit"
	case shared:
		flag = "--lock rwmutex"
	}
	name, replaced := strings.CutPrefix(flag, "--lock ")
	own := map[string]string{"semaphore": "semaphore-permit"}
	command := m.with(flag)
	if command == "" || replaced && (m.Run.Lock == name || own[m.Run.Lock] == name || !m.oneKey()) {
		return ""
	}
	if !replaced {
		return command + " repeats the plan with a correct lock, too: if that stays valid, look for the cause in your lock."
	}
	return fmt.Sprintf("%s runs the same plan with lockchaos' own lock of that kind: if that is valid, look for the cause in your lock.", command)
}

// oneKey reports whether the servers of the run are those that all locks of package lock but
// Redlock are made for.
func (m *model) oneKey() bool {
	return slices.Contains([]string{"single", "sentinel", "cluster"}, m.Run.Topology.Name)
}

// kindOf is the kind that a lock was declared to be; empty if it was not.
func (m *model) kindOf(lock string) string {
	for _, e := range m.notes {
		if e.Op == history.Declare && e.Lock == lock {
			return e.Kind
		}
	}
	return ""
}

// releasedBefore reports whether a release of the lock was asked for before a violation.
func (m *model) releasedBefore(v *checker.Violation) bool {
	return slices.ContainsFunc(m.ops, func(op history.Operation) bool {
		return op.Invoke.Op == history.Release && op.Invoke.Lock == v.Lock && op.Invoke.Time < m.since(v)
	})
}

// lookAt is where the code of a lock can be wrong that has a violation of a kind without a fault
// that explains it; empty for a kind that has cures, or is of another version. What a release
// can do is left out where none was asked for before.
func lookAt(kind string, shared, released bool) string {
	switch kind {
	case checker.DoubleGrant:
		if shared {
			look := "whether a writer looks for readers, and a reader for the writer, in the step on the server that acquires the lock"
			if released {
				look += ", and whether a release removes its own grant only"
			}
			return look
		}
		compare := "an extension compares"
		if released {
			compare = "a release and an extension compare"
		}
		return "whether to find the lock free and to acquire it is one step on the server, whether the key lives as long as the lease, whether " + compare + " the owner, and whether all connections select the same database and none takes an error or a late reply for a grant"
	case checker.OverCapacity:
		look := "whether one step on the server counts the permits that are out and adds the new one"
		if released {
			look += ", and whether a release removes permits of its own grant only"
		}
		return look
	case checker.Reentrancy:
		return "how it finds out that a client holds the lock already: such a request waits or is refused where the lock is not re-entrant, and has the token of the first grant where it is"
	case checker.Overtaken:
		return "whether a request can be granted before those that wait, and whether a release grants the lock to the first of the queue"
	case checker.PrematureLoss:
		return "what can remove the key before its lease is over: a lease that is shorter on the server than for the client, or a release or extension that does not compare the owner"
	case checker.Stuck:
		return "what the last holder, or a request that gave up, left on the servers, and what ends it"
	default:
		return ""
	}
}

// keeping are of the cures for what a server forgot those that keep what is no grant: the
// queue of a fair lock, or the counter of its tokens.
func (m *model) keeping(v *checker.Violation, from, to time.Duration, helps ...string) []string {
	return slices.DeleteFunc(m.remembering(v, from, to), func(cure string) bool { return !slices.Contains(helps, cure) })
}
