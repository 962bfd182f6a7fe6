package workload_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// met is what the judge counted.
func met(t *testing.T, r checker.Report) map[string]int {
	t.Helper()
	for _, result := range r.Results {
		if result.Met != nil {
			return result.Met
		}
	}
	t.Fatal("nothing was counted")
	return nil
}

func TestEveryKindMeetsWhatItIsFor(t *testing.T) {
	meets := map[string][]string{"crash,re-entrant": {history.MetCrashes, history.MetReentries}} // these two take turns
	for _, k := range workload.Kinds() {
		if !k.Needs.Readers && !k.Needs.Permits && !k.Needs.Queue { // the twin in memory can't have these; scenarios run them on servers
			meets[k.Name] = k.Meets
		}
	}
	for kinds, names := range meets {
		t.Run(kinds, func(t *testing.T) {
			h := record(t, workload.Config{Kinds: strings.Split(kinds, ","), Wait: 300 * time.Millisecond}, 6*time.Second, memory.New())
			report := checker.CheckRun(t.Context(), history.Run{Duration: h.End()}, h, checker.RunOptions{Meets: names})
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
			found := met(t, report)
			for _, name := range names {
				require.Positive(t, found[name], "%s: %v", name, found)
			}
		})
	}
}

func TestReEntriesAreReleasedInEitherOrder(t *testing.T) {
	var mu sync.Mutex
	depths := map[string][]int{} // of the grants of each owner, in the order of their releases
	record(t, workload.Config{Kinds: []string{"re-entrant"}, Wait: 300 * time.Millisecond}, 6*time.Second, released{memory.New(), func(ctx context.Context, h *lock.Hold) error {
		mu.Lock()
		depths[h.Lease().Owner] = append(depths[h.Lease().Owner], h.Lease().Holds)
		mu.Unlock()
		return h.Release(ctx)
	}})
	oldest, newest := 0, 0
	for _, of := range depths {
		if len(of) > 1 && of[0] == 1 {
			oldest++
		} else if len(of) > 1 {
			newest++
		}
	}
	require.Positive(t, oldest)
	require.Greater(t, newest, oldest)
}

// pair grants two locks of a locker as one.
type pair struct{ lock.Locker }

func (p pair) Ask(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
	var members []lock.Member
	for _, name := range r.Locks {
		members = append(members, lock.Member{Locker: p.Locker, Name: name})
	}
	m, err := lock.NewMultiLock(members...)
	if err != nil {
		return nil, err
	}
	return m.Acquire(ctx, o)
}

func TestARequestForSeveralLocksIsAnOperationOnEach(t *testing.T) {
	locks := memory.New()
	c, end := clientOf(t, pair{locks})
	both := workload.Request{Locks: []string{"x", "y"}, Lease: time.Minute}
	require.Equal(t, history.OK, c.Ask(t.Context(), both))
	registers := map[string]*workload.Register{"x": {}, "y": {}}
	for _, name := range []string{"y", "x"} {
		require.NoError(t, c.Read(t.Context(), name, registers[name]))
		require.Equal(t, history.OK, c.Write(t.Context(), name, registers[name]))
	}
	other := &workload.Client{Name: "b", Locker: pair{locks}, Recorder: c.Recorder, Processes: c.Processes}
	require.Equal(t, history.Fail, other.Ask(t.Context(), both))
	require.Equal(t, history.OK, c.Release(t.Context()))
	h := end()
	report := checker.Check(t.Context(), h)
	require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
	require.Equal(t, 1, met(t, report)[history.MetSeveral])
	require.Equal(t, 2, met(t, report)[history.MetRefusals])
	used := map[string]string{} // under which lock each resource was used
	for _, e := range answers(h, history.Access) {
		used[e.Resource] = e.Lock
	}
	require.Equal(t, map[string]string{"x": "x", "y": "y"}, used)
}

func TestALockWithOneModeRefusesOthers(t *testing.T) {
	for _, r := range []workload.Request{{Locks: []string{"a", "b"}}, {Locks: []string{"a"}, Mode: history.Read}, {}} {
		_, err := workload.Ask(t.Context(), memory.New(), r, lock.Options{Lease: time.Second})
		require.ErrorContains(t, err, "one lock at a time")
	}
}

func TestALedgerForgetsNothing(t *testing.T) {
	l := workload.Register{Ledger: true}
	want := []workload.Change{{Value: 1, Owner: "a", Token: 3}, {Value: 1, Owner: "b", Token: 2}}
	for i, c := range want {
		n, err := l.Read(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, min(i, 1), n)
		require.NoError(t, l.Write(t.Context(), c))
	}
	require.Equal(t, want, l.Changes())
}

// A run with few grants has what its workload is there for, also where only some holders do
// it. Without [workload.Config.Soon] one of these 50 seeds has no late release.
func TestAShortRunHasWhatOnlySomeHoldersDo_NoRace(t *testing.T) {
	for kinds, want := range map[string]string{
		"late-release":                         history.MetExpiries,
		"contended,release-twice,late-release": history.MetExpiries,
		"crash":                                history.MetCrashes,
		"contended,crash,bursts":               history.MetCrashes,
	} {
		t.Run(kinds, func(t *testing.T) {
			for seed := range uint64(50) {
				c := workload.Config{
					Kinds: strings.Split(kinds, ","), Seed: seed, Soon: true, Clients: 8, Locks: 1,
					Lease: time.Second, Hold: 20 * time.Millisecond, Wait: 500 * time.Millisecond,
				}
				h := record(t, c, 3*time.Second, memory.New())
				require.Positive(t, met(t, checker.Check(t.Context(), h))[want], "seed %d", seed)
			}
		})
	}
}
