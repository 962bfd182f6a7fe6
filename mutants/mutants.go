package mutants

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/mutants/broken"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Mutant is a lock with one planted bug, and the script that must convict it:
// a test of the harness, and not of a lock. Its twin is the same lock without the
// bug, which must come out valid of the same script.
//
// The scripts are Go and no scenario files: they stop a client between two steps
// of its own and set its clock wrong, which no scenario can do to a lock that it
// does not know from the inside; and one script must serve the bug and its twin,
// whatever each is answered.
type Mutant struct {
	Name string
	// About says in a few words what is wrong with it.
	About string
	// Violation is what must convict it, of its [Mutant.Property].
	Violation string
	Topology  string
	// Servers size the topology.
	Servers topologies.Options

	acks      int
	watchdog  time.Duration
	reentrant bool
	fenced    bool
	// other changes the options of a client into those of the lock's second way
	// to the deployment; nil: it needs none.
	other     func(*redis.UniversalOptions)
	bug, twin func(broken.Setup) *broken.Lock
	script    func(context.Context, *mutantRun) error
}

// mutantBound is how long the lock of a run may stay free and asked for.
const mutantBound = 2 * time.Second

// mutantTimeout bounds a run.
const mutantTimeout = 45 * time.Second

// title is what the record says of a run.
func (m Mutant) title(twin bool) string {
	if twin {
		return "The correct twin of a planted bug: it must not be blamed (" + m.About + ")."
	}
	return "A planted bug: " + m.About + "."
}

// Lock is the name of the lock with the bug, in flags and records.
func (m Mutant) Lock() string { return "broken-" + m.Name }

// Run plays the script with the bug or with its twin, and leaves the record in
// setup.Dir, as the script of a scenario does.
func (m Mutant) Run(ctx context.Context, setup harness.Config, twin bool) (err error) {
	topology, err := topologies.New(m.Topology, m.Servers)
	if err != nil {
		return err
	}
	name, expect, under, locks := "mutants/"+m.Name, checker.Invalid, m.Lock(), m.bug
	if twin {
		name, expect, under, locks = name+"/twin", checker.Valid, "the correct twin of "+under, m.twin
	}
	st, err := harness.Open(ctx, setup, harness.Start{Topology: topology, Run: history.Run{
		Scenario: name, Title: m.title(twin), Expect: string(expect), Progress: mutantBound,
		Lock: under, Workload: "script", Faults: "script",
	}})
	if err != nil {
		return err
	}
	defer func() { err = st.Close(ctx, err) }()
	st.SetLock(harness.LockSpec{Promises: m.promises()}, harness.LockOptions{ReplicaAcks: m.acks})
	st.Declare(theLock)
	t := &mutantRun{Session: st, mutant: m, locks: locks}
	playing, cancel := context.WithTimeoutCause(ctx, mutantTimeout, fmt.Errorf("not done after %v", mutantTimeout))
	defer t.busy.Wait()
	defer cancel()
	if err := m.script(playing, t); err != nil {
		st.Abort(err)
	}
	return nil
}

// Property is what must find the violation.
func (m Mutant) Property() string {
	return map[string]string{
		checker.DoubleGrant: "mutual-exclusion", checker.UseAfterLease: "use-within-lease", checker.Stuck: "progress",
		checker.FenceDuplicate: "fencing-order", checker.FenceRegress: "fencing-order",
	}[m.Violation]
}

// Caught reports whether a report convicts the mutant by the property that must.
func (m Mutant) Caught(report checker.Report) bool {
	return slices.ContainsFunc(report.Results, func(r checker.Result) bool {
		return r.Name == m.Property() && slices.ContainsFunc(r.Violations, func(v checker.Violation) bool { return v.Kind == m.Violation })
	})
}

// FindMutant returns the mutant with that name.
func FindMutant(name string) (Mutant, error) {
	var known []string
	for _, m := range Mutants() {
		if m.Name == name {
			return m, nil
		}
		known = append(known, m.Name)
	}
	return Mutant{}, names.Unknown("mutant", name, known)
}

// Spec is the lock with the bug, to be put under test like any other.
func (m Mutant) Spec() harness.LockSpec {
	about := "planted bug: " + m.About
	if m.acks > 0 {
		about += "; shows with --replica-acks only"
	}
	return harness.LockSpec{
		Name: m.Lock(), About: about,
		Promises: m.promises(), Independent: m.Topology == topologies.Independent,
		TakesClock: true, Commands: []string{"EVAL"}, HolderOn: broken.HolderOn, LooksLeft: true, Open: OpenBroken(m.bug),
	}
}

// promises are those of the lock and of its twin.
func (m Mutant) promises() promises.Promises {
	return promises.Full(promises.Promises{
		Reentrant: m.reentrant, Token: m.fenced, ReplicaAcks: m.acks > 0, Quorum: m.Topology == topologies.Independent,
	})
}

// OpenBroken opens a lock of package broken.
func OpenBroken(locks func(broken.Setup) *broken.Lock) harness.Opener {
	return func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		l := locks(broken.Setup{Servers: servers, Acks: o.ReplicaAcks, Watchdog: o.Watchdog, Observer: o.Observer, Clock: o.Clock})
		return l, l.Close, nil
	}
}

// Mutants lists the planted bugs, in order of name.
func Mutants() []Mutant {
	three := topologies.Options{Nodes: 3}
	all := []Mutant{
		{
			Name: "plain-delete", About: "a release deletes the key without checking its owner",
			Violation: checker.DoubleGrant, bug: broken.PlainDelete, twin: broken.Correct, script: lateRelease,
		},
		{
			Name: "get-then-delete", About: "a release checks the owner of the key, and deletes the key in a second step",
			Violation: checker.DoubleGrant, bug: broken.GetThenDelete, twin: broken.Correct, script: slowRelease,
		},
		{
			Name: "constant-token", About: "all clients write the same token, so that each client takes another client's lock for its own",
			Violation: checker.DoubleGrant, bug: broken.ConstantToken, twin: broken.Correct, script: twoAsk,
		},
		{
			Name: "retry-refused", About: "a request is repeated when its reply was lost, and the refusal of the repetition is taken for the answer",
			Violation: checker.Stuck, bug: broken.RetryRefused, twin: broken.Correct, script: lostAnswer,
		},
		{
			Name: "reads-replica", About: "the client asks a replica whether it already holds the lock",
			Topology: topologies.Sentinels, Violation: checker.DoubleGrant, reentrant: true,
			other: func(o *redis.UniversalOptions) { o.ReadOnly = true },
			bug:   broken.ReadReplica, twin: broken.CorrectReentrant, script: lateReplica,
		},
		{
			Name: "set-then-expire", About: "the key is set in one step, and its expiry in a second step",
			Violation: checker.Stuck, bug: broken.SetThenExpire, twin: broken.Correct, script: diesAsking,
		},
		{
			Name: "no-expiry", About: "the key never expires",
			Violation: checker.Stuck, bug: broken.NoExpiry, twin: broken.Correct, script: diesHolding,
		},
		{
			Name: "no-elapsed-check", About: "the client does not check whether the lease had ended when the grant arrived",
			Violation: checker.UseAfterLease, bug: broken.NoElapsedCheck, twin: broken.Correct, script: lateAnswer,
		},
		{
			Name: "wall-clock-elapsed", About: "the time that a grant took is measured by the wall clock",
			Violation: checker.DoubleGrant,
			bug:       broken.WallElapsed, twin: broken.Correct, script: lateAnswerByASteppedClock,
		},
		{
			Name: "full-validity", About: "the holder is told the whole lease, however long the grant took",
			Violation: checker.DoubleGrant, bug: broken.FullValidity, twin: broken.Correct, script: slowAnswer,
		},
		{
			Name: "no-drift", About: "a lease is used to its very end, without a margin for clock drift",
			Violation: checker.DoubleGrant, bug: broken.NoDrift, twin: broken.Correct, script: slowClock,
		},
		{
			Name: "renew-any", About: "a renewal extends the key without checking its owner",
			Violation: checker.DoubleGrant, watchdog: renewals,
			bug: broken.RenewAny, twin: broken.Correct, script: lateRenewal,
		},
		{
			Name: "renew-recreates", About: "a renewal that finds no key sets it again",
			Violation: checker.DoubleGrant, watchdog: renewals,
			bug: broken.RenewRecreates, twin: broken.Correct, script: lateRenewalOfAFreeLock,
		},
		{
			Name: "renew-unchecked", About: "any answer to a renewal counts as success",
			Violation: checker.DoubleGrant, watchdog: renewals,
			bug: broken.RenewUnchecked, twin: broken.Correct, script: lateRenewal,
		},
		{
			Name: "watchdog-outlives", About: "the watchdog does not stop at the release",
			Violation: checker.Stuck, watchdog: outlived,
			bug: broken.WatchdogOutlives, twin: broken.Correct, script: lostRelease,
		},
		{
			Name: "retry-recounted", About: "a repeated request finds its own key, and counts the lease from the repetition",
			Violation: checker.DoubleGrant, bug: broken.RetryRecounted, twin: broken.Correct, script: lateRetry,
		},
		{
			Name: "stale-waiter", About: "a waiter whose lease has ended in the queue is granted the lock when its turn comes",
			Violation: checker.UseAfterLease, bug: broken.StaleWaiter, twin: broken.CorrectQueue, script: longWait,
		},
		{
			Name: "abandoned-wait", About: "a client that gives up waiting stays in the queue",
			Violation: checker.Stuck, bug: broken.AbandonedWait, twin: broken.CorrectQueue, script: givenUp,
		},
		{
			Name: "passed-to-all", About: "a release hands the lock over, in memory, to all waiters of the process",
			Violation: checker.DoubleGrant, bug: broken.PassedToAll, twin: broken.CorrectLocalQueue, script: twoInLine,
		},
		{
			Name: "passed-recounted", About: "a waiter that gets the lock in memory counts the lease from the hand-over",
			Violation: checker.DoubleGrant,
			bug:       broken.PassedRecounted, twin: broken.CorrectLocalQueue, script: lateInLine,
		},
		{
			Name: "granted-by-message", About: "a waiter takes a message for a grant that the sending server did not make",
			Servers: topologies.Options{Access: topologies.AccessName}, Violation: checker.DoubleGrant,
			bug: broken.GrantedByMessage, twin: broken.CorrectHandOver, script: movedBehindAName,
		},
		{
			Name: "half-quorum", About: "half of the servers, rounded down, count as a majority",
			Topology: topologies.Independent, Servers: three, Violation: checker.DoubleGrant,
			bug: broken.HalfQuorum, twin: broken.CorrectQuorum, script: fewServers,
		},
		{
			Name: "no-cleanup", About: "a request without a majority leaves its keys",
			Topology: topologies.Independent, Servers: three, Violation: checker.Stuck,
			bug: broken.NoCleanup, twin: broken.CorrectQuorum, script: twoMinorities,
		},
		{
			Name: "partial-cleanup", About: "a request without a majority is taken back only where it was granted",
			Topology: topologies.Independent, Servers: three, Violation: checker.Stuck,
			bug: broken.PartialCleanup, twin: broken.CorrectQuorum, script: lostVotes,
		},
		{
			Name: "wait-elsewhere", About: "WAIT is sent on another connection than the grant",
			Topology: topologies.Sentinels, Violation: checker.DoubleGrant, acks: 1,
			bug: broken.WaitElsewhere, twin: broken.Correct, script: silentReplicas,
		},
		{
			Name: "wait-ignored", About: "the result of WAIT is ignored",
			Topology: topologies.Sentinels, Violation: checker.DoubleGrant, acks: 1,
			bug: broken.WaitIgnored, twin: broken.Correct, script: lostReplicas,
		},
		{
			Name: "wait-leftover", About: "a grant that too few replicas acknowledged is refused, but its key stays",
			Topology: topologies.Sentinels, Violation: checker.Stuck, acks: 1,
			bug: broken.WaitLeftover, twin: broken.Correct, script: replicasComeBack,
		},
		{
			Name: "fence-unreplicated", About: "a grant waits for replicas, but the counter of its token does not",
			Topology: topologies.Sentinels, Violation: checker.FenceDuplicate, acks: 1, fenced: true,
			bug: broken.FenceUnreplicated, twin: broken.CorrectFenced, script: lostCount,
		},
		{
			Name: "fence-wall-clock", About: "tokens are the time of the client's wall clock",
			Violation: checker.FenceRegress, fenced: true,
			bug: broken.FenceWallClock, twin: broken.CorrectFenced, script: fastClock,
		},
		{
			Name: "reentry-unreplicated", About: "an inner grant does not wait for replicas",
			Topology: topologies.Sentinels, Violation: checker.DoubleGrant, acks: 1, reentrant: true,
			bug: broken.ReentryUnreplicated, twin: broken.CorrectReentrant, script: lostReentry,
		},
	}
	for i := range all {
		all[i].Topology = cmp.Or(all[i].Topology, topologies.Single)
	}
	slices.SortFunc(all, func(a, b Mutant) int { return strings.Compare(a.Name, b.Name) })
	return all
}
