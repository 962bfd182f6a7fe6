package workload_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// Clients that hold for longer than their lease lose it, and a correct lock is not
// blamed for that.
func TestLongHoldsBlameNoCorrectLock_NoRace(t *testing.T) {
	for _, k := range workload.Kinds() {
		if k.Needs.Readers || k.Needs.Permits || k.Needs.Queue {
			continue // the lock in memory can't have these
		}
		t.Run(k.Name, func(t *testing.T) {
			for seed := range seeds(t) {
				c := workload.Config{
					Kinds: []string{k.Name}, Seed: seed, Clients: 4, Locks: 2,
					Lease: time.Second, Hold: 150 * time.Millisecond, Wait: 300 * time.Millisecond,
				}
				length := time.Minute
				if k.Name == "bursts" { // of which there are many more
					length /= 6
				}
				h := record(t, c, length, memory.New())
				report := checker.Check(t.Context(), h)
				require.Equal(t, checker.Valid, report.Verdict, "seed %d: %+v", seed, report)
				if k.Name != "bursts" && k.Name != "release-twice" && k.Name != "watchdog" { // which have no holds beyond a lease
					require.Positive(t, met(t, report)[history.MetExpiries], "seed %d", seed)
				}
			}
		})
	}
}

// reentries is a client with three grants of one owner, the second of which ends
// first, and the third last.
func reentries(t *testing.T, careless bool, then func(c *workload.Client)) *history.History {
	t.Helper()
	var b bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		r := history.NewRecorder(&b)
		r.Record(history.Event{Process: history.NoProcess, Op: history.Declare, Type: history.OK, Lock: "l", Kind: history.KindMutex, Reentrant: true})
		locker := memory.New()
		c := &workload.Client{Name: "a", Locker: locker, Recorder: r, Processes: &workload.Processes{}, Careless: careless}
		for i, lease := range []time.Duration{2 * time.Second, time.Second, 3 * time.Second} {
			ask := workload.Request{Locks: []string{"l"}, Lease: lease, Again: i > 0}
			require.Equal(t, history.OK, c.Ask(t.Context(), ask))
		}
		// Another client, whose requests make contention.
		other := &workload.Client{Name: "b", Locker: locker, Recorder: r, Processes: c.Processes}
		require.Equal(t, history.Fail, other.Acquire(t.Context(), "l", time.Second, 0))
		then(c)
		require.NoError(t, r.Close())
	})
	h, err := history.ReadAll(&b)
	require.NoError(t, err)
	return h
}

// outcomes are those of the operations of a kind, in the order of their invokes.
func outcomes(h *history.History, op history.Op) []history.Type {
	var all []history.Type
	for _, o := range h.Operations() {
		if o.Invoke.Op == op {
			all = append(all, o.Complete.Type)
		}
	}
	return all
}

// A refusal for one of several grants of an owner says nothing of the others.
func TestOnlyTheRefusalForTheLastGrantOfAnOwnerSaysThatItDoesNotHold(t *testing.T) {
	for _, tt := range []struct {
		after    time.Duration // of the grants
		releases []history.Type
		extend   history.Type // of the last of them, before
	}{
		{500 * time.Millisecond, []history.Type{history.OK, history.OK, history.OK}, history.OK},
		{1500 * time.Millisecond, []history.Type{history.OK, history.Info, history.OK}, history.OK},
		{2500 * time.Millisecond, []history.Type{history.Info, history.Info, history.OK}, history.OK},
		{3500 * time.Millisecond, []history.Type{history.Info, history.Info, history.Fail}, history.Info},
	} {
		t.Run(fmt.Sprint(tt.after), func(t *testing.T) {
			h := reentries(t, false, func(c *workload.Client) {
				time.Sleep(tt.after)
				require.Equal(t, tt.extend, c.Extend(t.Context(), time.Minute))
				for _, want := range tt.releases {
					require.Equal(t, want, c.ReleaseFirst(context.Background()))
				}
			})
			require.Equal(t, tt.releases, outcomes(h, history.Release))
			report := checker.Check(t.Context(), h)
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
		})
	}
}

// Once one of its grants is over, a careful client uses nothing under the others:
// the record claims, of all of them, the first end.
func TestAClientThatLostOneOfItsGrantsUsesNothingUnderTheOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		careless bool
		want     checker.Verdict
	}{
		"careful":  {false, checker.Valid},
		"careless": {true, checker.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			h := reentries(t, tt.careless, func(c *workload.Client) {
				time.Sleep(1500 * time.Millisecond)
				var register workload.Register
				use := func() (used bool) {
					return c.Read(t.Context(), "l", &register) == nil && c.Write(t.Context(), "l", &register) == history.OK
				}
				require.Equal(t, tt.careless, use(), "the second grant is over")
				for range 2 { // the first, and the one that is over
					c.ReleaseFirst(t.Context())
				}
				require.Equal(t, tt.careless, use(), "only the third is left, which goes on")
				require.Equal(t, history.OK, c.Release(t.Context()))
			})
			report := checker.Check(t.Context(), h)
			require.Equal(t, tt.want, report.Verdict, "%+v", report)
		})
	}
}

// The first end that was claimed counts, also when the grant that has it was
// released in time: until the next grant, the record says nothing else.
func TestAClientBelievesNoLongerThanItsRecordClaims(t *testing.T) {
	h := reentries(t, false, func(c *workload.Client) {
		require.Equal(t, history.OK, c.ReleaseFirst(t.Context())) // of 2 s
		require.Equal(t, history.OK, c.ReleaseFirst(t.Context())) // of 1 s, which is the claim
		time.Sleep(1500 * time.Millisecond)
		var register workload.Register
		require.Error(t, c.Read(t.Context(), "l", &register), "the third grant lasts for 3 s, and the claim is over")
		again := workload.Request{Locks: []string{"l"}, Lease: 3 * time.Second, Again: true}
		require.Equal(t, history.OK, c.Ask(t.Context(), again))
		require.NoError(t, c.Read(t.Context(), "l", &register), "the new claim is the end of the third grant")
		require.Equal(t, history.OK, c.Write(t.Context(), "l", &register))
	})
	report := checker.Check(t.Context(), h, checker.UseWithinLease(), checker.Ownership(), checker.MutualExclusion(), checker.Linearizability())
	require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
}
