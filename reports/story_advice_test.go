package reports_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// declareAs declares a lock of a kind.
func (s *script) declareAs(lock string, is history.Event) {
	is.Process, is.Type, is.Op, is.Lock = history.NoProcess, history.OK, history.Declare, lock
	s.at(0, is)
}

// in sets what the last operation was asked and granted with.
func (s *script) in(set func(e *history.Event)) {
	for i := len(s.events) - 2; i < len(s.events); i++ {
		set(&s.events[i])
	}
}

// mode is how the last operation asked for the lock.
func (s *script) mode(m history.Mode) { s.in(func(e *history.Event) { e.Mode = m }) }

// queued is the place that the last operation had.
func (s *script) queued(place int64) {
	s.events[len(s.events)-1].Queued = &place
}

// unseenReader is a writer that is granted a lock while a client reads.
func unseenReader(s *script) {
	s.declareAs("orders", history.Event{Kind: "rw"})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 900)
	s.mode(history.Read)
	s.acquire(2, "orders", "b#1", "redis-1", 20, 21, 900)
	s.mode(history.Write)
}

// tooManyPermits are three permits of two, of which two were out before a fault can have
// happened, at 50 ms.
func tooManyPermits(s *script) {
	s.declareAs("orders", history.Event{Kind: history.KindSemaphore, Capacity: 2})
	for i, owner := range []string{"a#1", "b#1", "c#1"} {
		at := []float64{10, 20, 700}[i]
		s.acquire(1+i, "orders", owner, "redis-1", at, at+1, 5000)
		s.mode(history.Permit)
	}
}

// jumped is a queue in which the second was granted the lock first.
func jumped(s *script) {
	s.declareAs("orders", history.Event{Fair: true})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 900)
	s.queued(1)
	s.acquire(2, "orders", "b#1", "redis-1", 20, 801, 900)
	s.queued(2)
	s.acquire(3, "orders", "c#1", "redis-1", 30, 701, 900)
	s.queued(3)
	s.release(1, "orders", "a#1", "redis-1", 600, 601)
	s.release(3, "orders", "c#1", "redis-1", 750, 751)
}

// grantedTwice is a second grant to the client that holds a lock.
func grantedTwice(s *script) {
	s.declareAs("orders", history.Event{})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 900)
	s.acquire(1, "orders", "a#1", "redis-1", 700, 701, 900)
}

// smallerToken is a later grant with a smaller token.
func smallerToken(s *script) {
	s.declareAs("orders", history.Event{})
	for i, owner := range []string{"a#1", "b#1"} {
		at := []float64{10, 700}[i]
		s.acquire(1+i, "orders", owner, "redis-1", at, at+1, 500)
		s.events[len(s.events)-1].Token = int64(9 - i)
		s.release(1+i, "orders", owner, "redis-1", at+5, at+6)
	}
}

// twoHolders are two grants of a mutex.
func twoHolders(s *script) {
	s.declareAs("orders", history.Event{})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 900)
	s.acquire(2, "orders", "b#1", "redis-1", 200, 201, 900)
}

// forgottenGrant is a holder that is told that it does not hold the lock.
func forgottenGrant(s *script) {
	s.declareAs("orders", history.Event{})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 900)
	s.attempt(1, history.Release, "orders", "a#1", 700, 701, history.Fail, "lock: not held")
}

// advised is a violation without a fault, or under one from 50 to 60 ms, of a random run.
func advised(lock, command string, write func(s *script), fault, target string) reports.Input {
	s := &script{}
	write(s)
	if fault != "" {
		s.fault(history.Inject, fault, target, 50, 60, history.OK, "seen", "")
		if strings.Contains(fault, "failover") {
			s.observe(55, "redis-2", history.ObserveRole, "master")
			s.observe(56, "redis-1", history.ObserveRole, "replica")
			for i := range s.events {
				if e := &s.events[i]; e.Time > ms(500) && e.Node == "redis-1" {
					e.Node = "redis-2"
				}
			}
		}
	}
	r := run()
	r.Lock, r.Command = lock, command
	return judged(r, s.history())
}

// What a release can do wrong is no advice where none was asked for before.
func TestAdviceNamesReleasesThatWere(t *testing.T) {
	const command = "lockchaos run --lock mine --topology sentinel --seed 42"
	for name, test := range map[string]struct {
		write func(s *script)
		words string
	}{
		"readers and writers": {unseenReader, "whether a release removes its own grant only"},
		"permits":             {tooManyPermits, "whether a release removes permits of its own grant only"},
		"mutex":               {twoHolders, "a release and an extension compare the owner"},
	} {
		t.Run(name, func(t *testing.T) {
			without := reports.Summarize(advised("mine", command, test.write, "", ""))
			require.Contains(t, without.Story.String(), "No recorded fault")
			require.NotContains(t, without.Story.String(), test.words)
			with := reports.Summarize(advised("mine", command, func(s *script) {
				s.acquire(9, "orders", "z#1", "redis-1", 1, 2, 900)
				s.release(9, "orders", "z#1", "redis-1", 3, 4)
				test.write(s)
			}, "", ""))
			require.Contains(t, with.Story.String(), test.words)
		})
	}
}

// A violation before all faults is told as one.
func TestUnexplainedBeforeTheFaults(t *testing.T) {
	const command = "lockchaos run --lock mine --topology sentinel --seed 42"
	story := func(at float64) string {
		return reports.Summarize(advised("mine", command, func(s *script) {
			twoHolders(s)
			s.fault(history.Inject, "kill", "sentinel-1", at, at+1, history.OK, "down", "")
		}, "", "")).Story.String()
	}
	require.Contains(t, story(500), "The fault does not explain it: it happened at 0.201 s, and the fault began at 0.500 s.")
	require.Contains(t, story(100), "The fault does not explain it, as far as the record shows.")
}

// What to do is said of every kind: what helps, how to tell a defect of the lock from a limit
// of the servers, or where to look in the lock. What is said of a lock is not said where a
// fault explains the violation that no lock withstands.
func TestAdviceOfEveryKind(t *testing.T) {
	const command = "lockchaos run --lock mine --topology sentinel --seed 42"
	for name, test := range map[string]struct {
		write func(s *script)
		kind  string
		look  string // said without a fault, and not under one that explains it
		try   string // the command that is given
		fault string
		cures []string // under the fault
	}{
		"rw":        {unseenReader, checker.DoubleGrant, "whether a writer looks for readers", "lockchaos run --topology sentinel --seed 42 --lock rwmutex", "", nil},
		"semaphore": {tooManyPermits, checker.OverCapacity, "counts the permits that are out and adds the new one", "lockchaos run --topology sentinel --seed 42 --lock semaphore-permit", "failover", []string{"acknowledged"}},
		"fair":      {jumped, checker.Overtaken, "whether a request can be granted before those that wait", "lockchaos run --topology sentinel --seed 42 --lock mutex-fair", "failover", nil},
		"restarted": {jumped, checker.Overtaken, "whether a request can be granted before those that wait", "lockchaos run --topology sentinel --seed 42 --lock mutex-fair", "restart redis-1", []string{"append-only"}},
		"re-entry":  {grantedTwice, checker.Reentrancy, "how it finds out that a client holds the lock already", "lockchaos run --topology sentinel --seed 42 --lock mutex", "", nil},
		"loss":      {forgottenGrant, checker.PrematureLoss, "what can remove the key before its lease is over", command + " --control", "flush redis-1", []string{"noeviction", "fencing"}},
		"tokens":    {smallerToken, checker.FenceRegress, "", "lockchaos run --topology sentinel --seed 42 --lock mutex-fenced", "failover", []string{"a counter that outlives", "acknowledged"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := advised("mine", command, test.write, "", "")
			r := reports.Summarize(in)
			require.Len(t, r.Causes, 1)
			require.Positive(t, r.Causes[0].Violations[test.kind])
			page, text := htmlOf(t, in), string(written(t, func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) }))
			markdown := string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) }))
			for _, out := range []string{page, markdown} {
				require.Contains(t, out, test.try)
				require.Contains(t, out, test.look)
			}
			require.Contains(t, strings.Join(strings.Fields(text), " "), test.look)
			require.NotContains(t, r.Story.String(), "compare the owner and", "no cure without a proof")

			// A lock of lockchaos' own is no control of itself.
			own := map[string]string{"rw": "rwmutex", "semaphore": "semaphore-permit", "fair": "mutex-fair", "restarted": "mutex-fair", "re-entry": "mutex", "tokens": "mutex-fenced"}[name]
			if own != "" {
				require.NotContains(t, htmlOf(t, advised(own, "lockchaos run --lock "+own, test.write, "", "")), "--lock "+own+" repeats")
			}

			if test.fault == "" {
				return
			}
			fault, target, _ := strings.Cut(test.fault, " ")
			r = reports.Summarize(advised("mine", command, test.write, fault, target))
			require.Equal(t, fault, r.Causes[0].Fault)
			if test.look != "" {
				require.NotContains(t, r.Story.String(), test.look)
			}
			require.NotContains(t, r.Story.String(), "bug of the lock")
			require.Len(t, r.Story.Cures, len(test.cures), "%q", r.Story.Cures)
			for i, words := range test.cures {
				require.Contains(t, r.Story.Cures[i], words)
			}
		})
	}
}

// A fault that most locks withstand is named with what to look at, and is no excuse.
func TestAdviceAgainstAFaultThatLocksWithstand(t *testing.T) {
	in := advised("mine", "lockchaos run --lock mine", tooManyPermits, "latency", "zone-a>redis-1")
	story := reports.Summarize(in).Story.String()
	require.Contains(t, story, "Most locks withstand such a fault. Look in the lock at whether one step on the server counts the permits")
	require.NotContains(t, story, "bug of the lock")
}

// Where the control was invalid too, the servers are the limit; where it was valid, the lock is.
func TestAdviceGoesByTheControl(t *testing.T) {
	for verdict, looks := range map[checker.Verdict]bool{checker.Valid: true, checker.Invalid: false, checker.Unknown: false} {
		in := advised("mine", "lockchaos run --lock mine", forgottenGrant, "", "")
		in.Run.Control = &history.Control{Lock: "correct-key", Verdict: string(verdict)}
		story := reports.Summarize(in).Story.String()
		require.Equal(t, looks, strings.Contains(story, "bug of the lock"), verdict)
		require.NotContains(t, story, "repeats")
	}
}

// A permit that is given back ends no other, and readers of a lock hold it together: no
// release of one is named as the cause of the next grant.
func TestNoReleaseIsBlamedOfALockThatSeveralHold(t *testing.T) {
	write := func(kind string) func(s *script) {
		return func(s *script) {
			s.declareAs("orders", history.Event{Kind: kind})
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 900)
			s.mode(history.Write)
			s.acquire(2, "orders", "b#1", "redis-1", 20, 21, 900)
			s.mode(history.Read)
			s.release(1, "orders", "a#1", "redis-1", 30, 31)
			s.mode(history.Write)
			s.acquire(3, "orders", "c#1", "redis-1", 40, 41, 5000)
			s.mode(history.Write)
			s.access(2, "orders", "b#1", "stock", "7", 50, 51)
		}
	}
	in := advised("mine", "lockchaos run --lock mine", write("rw"), "", "")
	story := reports.Summarize(in).Story.String()
	require.Contains(t, story, "client c was granted orders (write)")
	require.NotContains(t, story, "without a look at the owner")
	require.NotContains(t, story, "compare the owner")
	require.Contains(t, story, "client b used stock (value 7)", "a reader wrote nothing")
}

// Where a lock is held by votes, a client that gives its own back makes room for another: that
// proves no release of another client's hold.
func TestVotesThatAreGivenBackEndNoOtherHold(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "", 10, 11, 900)
	s.acquire(2, "orders", "b#1", "", 20, 21, 900)
	s.release(1, "orders", "a#1", "", 50, 51)
	s.acquire(3, "orders", "c#1", "", 60, 61, 900)
	s.release(2, "orders", "b#1", "", 120, 121)
	s.release(3, "orders", "c#1", "", 130, 131)
	r := run()
	r.Topology = history.Topology{Name: "independent"}
	for i := range 5 {
		r.Topology.Nodes = append(r.Topology.Nodes, history.Node{Name: fmt.Sprintf("redis-%d", 1+i), Kind: "redis", Role: "master"})
	}
	r.Lock, r.Command = "mine", "lockchaos run --lock mine --topology independent --seed 42"
	story := reports.Summarize(judged(r, s.history())).Story
	require.NotContains(t, story.String(), "ends the hold of the other")
	require.Empty(t, story.Cures)
	require.Contains(t, story.String(), "Look at whether a grant needs the votes of more than half of the servers")

	r.Topology = sentinel() // where one server has the only key
	story = reports.Summarize(judged(r, s.history())).Story
	require.Contains(t, story.String(), "ends the hold of the other")
}

// A release that is confirmed although it did nothing is not said to have ended a hold
// that goes on.
func TestNoReleaseEndsAHoldThatWasGivenBackLater(t *testing.T) {
	story := func(given float64) string {
		in := advised("mine", "lockchaos run --lock mine", func(s *script) {
			s.declare("orders")
			s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
			s.acquire(2, "orders", "b#1", "redis-1", 311, 312, 2000)
			s.release(1, "orders", "a#1", "redis-1", 400, 401)
			s.acquire(3, "orders", "c#1", "redis-1", given, given+1, 2000)
			s.release(2, "orders", "b#1", "redis-1", 500, 501)
		}, "", "")
		in.Report.Results = slices.DeleteFunc(in.Report.Results, func(r checker.Result) bool { return r.Name != "ownership" })
		return reports.Summarize(in).Story.String()
	}
	require.Contains(t, story(510), "That it ended the hold of client b is not shown, who gave it back at 0.501 s.")
	require.Contains(t, story(510), "confirm a release only if the server says that it removed the key")
	require.Contains(t, story(410), "what it ended was the hold of client b")
}
