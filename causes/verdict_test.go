package causes

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/reports"
)

// experiment is one of a split brain and a pause, of which outcome says which runs show a double grant.
func experiment(names []string, control string, outcome func(a Arm, round int) bool) Experiment {
	e := Experiment{Cluster: Cluster{Kind: "double-grant"}, Control: control, Least: 5, Most: 10, LeastControl: 5}
	for i, name := range names {
		e.Faults = append(e.Faults, reports.Fault{Name: name, Start: time.Duration(i) * time.Second})
		e.suspect([]int{i})
	}
	e.Play = func(_ context.Context, a Arm, round int) (Played, error) {
		if outcome(a, round) {
			return Played{Kinds: []string{"lost-update", "double-grant"}}, nil
		}
		return Played{Kinds: []string{"lost-update"}}, nil
	}
	return e
}

func TestMeasure(t *testing.T) {
	has := func(a Arm, f int) bool {
		return slices.Contains(a.Faults, f)
	}
	one, two := []string{"split-brain"}, []string{"kill", "pause"}
	for _, tt := range []struct {
		name    string
		faults  []string
		control string
		outcome func(a Arm, round int) bool
		verdict string
		roles   []string
		text    string
	}{
		{
			"a limit", one, "correct-key", func(a Arm, _ int) bool { return has(a, 0) }, history.CauseDeployment,
			[]string{history.RoleNeeded},
			"A limit of this deployment: with split-brain 5 of 5 runs show a double grant, without it 0 of 5, with a correct lock 5 of 5",
		},
		{
			"a defect that a fault shows", one, "correct-key", func(a Arm, _ int) bool { return has(a, 0) && !a.Control }, history.CauseLock,
			[]string{history.RoleNeeded},
			"A defect of the lock: with split-brain 5 of 5 runs show a double grant, without it 0 of 5, with a correct lock 0 of 5",
		},
		{
			"a defect behind another clock",
			[]string{"clock-rate"},
			"correct-key", func(a Arm, round int) bool { return has(a, 0) && !a.Control && round >= 3 }, history.CauseUndecided,
			[]string{history.RoleNeeded},
			"Not decided: with clock-rate 7 of 10 runs show a double grant, without it 0 of 10, with a correct lock 0 of 10",
		},
		{
			"a defect without faults", one, "correct-key", func(a Arm, round int) bool { return !a.Control && round%2 == 0 }, history.CauseLock,
			[]string{history.RoleNotNeeded},
			"A defect of the lock: without any fault 3 of 5 runs show a double grant",
		},
		{
			"too rare", one, "correct-key", func(a Arm, round int) bool { return has(a, 0) && !a.Control && round == 0 }, history.CauseUndecided,
			[]string{history.RoleUndecided},
			"Not decided: with split-brain 1 of 10 runs show a double grant, without it 0 of 10, with a correct lock 0 of 10",
		},
		{
			"a single run of the control", one, "correct-key", func(a Arm, round int) bool { return has(a, 0) && (!a.Control || round == 3) }, history.CauseUndecided,
			[]string{history.RoleNeeded},
			"Not decided: with split-brain 10 of 10 runs show a double grant, without it 0 of 10, with a correct lock 1 of 10",
		},
		{
			"two runs of the control", one, "correct-key", func(a Arm, round int) bool { return has(a, 0) && (!a.Control || round < 2) }, history.CauseDeployment,
			[]string{history.RoleNeeded},
			"A limit of this deployment: with split-brain 5 of 5 runs show a double grant, without it 0 of 5, with a correct lock 2 of 5",
		},
		{
			"once of the lock", one, "correct-key", func(a Arm, round int) bool { return has(a, 0) && (round == 0 || a.Control && round < 4) }, history.CauseDeployment,
			[]string{history.RoleUndecided},
			"A limit of this deployment: with split-brain 1 of 10 runs show a double grant, without it 0 of 10, with a correct lock 4 of 10",
		},
		{
			"far more often of the control", one, "correct-key", func(a Arm, round int) bool { return has(a, 0) && (a.Control || round == 0) }, history.CauseUndecided,
			[]string{history.RoleUndecided},
			"Not decided: with split-brain 1 of 10 runs show a double grant, without it 0 of 10, with a correct lock 10 of 10",
		},
		{
			"no control", one, "", func(a Arm, _ int) bool { return has(a, 0) }, history.CauseUndecided,
			[]string{history.RoleNeeded},
			"Not decided: with split-brain 10 of 10 runs show a double grant, without it 0 of 10",
		},
		{
			"two that need each other", two, "redlock", func(a Arm, _ int) bool { return has(a, 0) && has(a, 1) }, history.CauseDeployment,
			[]string{history.RoleWithOthers, history.RoleWithOthers},
			"A limit of this deployment: with all faults 5 of 5 runs show a double grant, without kill 0 of 5 (needed with others), without pause 0 of 5 (needed with others), without any 0 of 5, with a correct lock 5 of 5",
		},
		{
			"one of two", two, "redlock", func(a Arm, _ int) bool { return has(a, 0) }, history.CauseDeployment,
			[]string{history.RoleNeeded, history.RoleUndecided},
			"A limit of this deployment: with all faults 10 of 10 runs show a double grant, without kill 0 of 10 (needed), without pause 10 of 10 (not decided), without any 0 of 10, with a correct lock 10 of 10",
		},
		{
			"either", two, "redlock", func(a Arm, _ int) bool { return has(a, 0) || has(a, 1) }, history.CauseDeployment,
			[]string{history.RoleOneOf, history.RoleOneOf},
			"A limit of this deployment: with all faults 5 of 5 runs show a double grant, without kill 5 of 5 (one of several), without pause 5 of 5 (one of several), without any 0 of 5, with a correct lock 5 of 5",
		},
		{
			"two of one name, and more than are measured",
			[]string{"cut", "cut", "pause", "flush"},
			"correct-key", func(a Arm, _ int) bool { return has(a, 0) && has(a, 3) && !a.Control }, history.CauseLock,
			[]string{history.RoleWithOthers, history.RoleUndecided, history.RoleUndecided},
			"A defect of the lock: with all faults 10 of 10 runs show a double grant, without cut at 0.000 s 0 of 10 (needed with others), without cut at 1.000 s 10 of 10 (not decided), without pause 10 of 10 (not decided), without any 0 of 10, with a correct lock 0 of 10 (not measured alone: flush at 3.000 s)",
		},
		{
			"no fault at all", nil, "correct-key", func(Arm, int) bool { return true }, history.CauseLock, nil,
			"A defect of the lock: without any fault 5 of 5 runs show a double grant",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := experiment(tt.faults, tt.control, tt.outcome).Measure(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.text, c.Text)
			require.Equal(t, tt.verdict, c.Verdict)
			require.Equal(t, tt.roles, names.Of(c.Faults, func(f history.Suspect) string { return f.Role }))
			for _, a := range c.Arms {
				require.Equal(t, reports.Interval(a.Seen, a.N), a.Interval)
			}
		})
	}
}

// On real servers one run without a fault that shows it may be an accident of the machine, and two are none.
func TestAccidents(t *testing.T) {
	for shown, want := range map[int]string{1: history.CauseUndecided, 2: history.CauseLock} {
		e := experiment([]string{"split-brain"}, "correct-key", func(a Arm, round int) bool { return len(a.Faults) == 0 && !a.Control && round < shown })
		e.Accidents = 1
		c, err := e.Measure(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, c.Verdict, c.Text)
	}
}

// What comes too rarely for its intervals to tell is decided by more runs of the arms that decide, and of no other.
func TestRareViolationsTakeMoreRuns(t *testing.T) {
	for control, want := range map[bool]string{false: history.CauseLock, true: history.CauseDeployment} {
		e := experiment([]string{"stall", "delay-reply"}, "correct-key", func(a Arm, round int) bool { return len(a.Faults) == 2 && round%16 == 9 && (!a.Control || control) })
		e.MostDeciding = 320
		c, err := e.Measure(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, c.Verdict, c.Text)
		without, _ := arm(&c, history.ArmWithout, 0)
		require.Equal(t, 10, without.N)
	}
}

// That the control lock shows nothing says nothing against another lock whose clients did something else.
func TestAnotherWorkloadOfTheControlAccusesNobody(t *testing.T) {
	e := experiment([]string{"kill"}, "correct-key", func(a Arm, _ int) bool { return len(a.Faults) > 0 && !a.Control })
	e.ControlWorkload = "contended"
	c, err := e.Measure(t.Context())
	require.NoError(t, err)
	require.Equal(t, history.CauseUndecided, c.Verdict)
	require.Contains(t, c.Text, "a correct lock (workload contended) 0 of 10")
}

// A failover that a correct lock survives, whose grants a replica acknowledged, excuses none.
func TestAnAcknowledgedGrantIsNotLost(t *testing.T) {
	for name, want := range map[string]string{"crash-failover": history.CauseLock, "split-brain": history.CauseUndecided} {
		e := experiment([]string{name}, "correct-key", func(a Arm, round int) bool { return len(a.Faults) > 0 && !a.Control && round >= 3 })
		e.Acks = 1
		c, err := e.Measure(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, c.Verdict, c.Text)
	}
}

// Of clients that stand still no server is to blame.
func TestFaultsOfClientsAreNoLimitOfTheServers(t *testing.T) {
	for fault, want := range map[string]string{"pause-client": "A limit of any such lock: with pause-client 5 of 5", "split-brain": "A limit of this deployment: with split-brain 5 of 5"} {
		c, err := experiment([]string{fault}, "correct-key", func(a Arm, _ int) bool { return len(a.Faults) > 0 }).Measure(t.Context())
		require.NoError(t, err)
		require.Contains(t, c.Text, want)
	}
}

// Faults that take no effect again are not tried for ever.
func TestFaultsThatNeverTakeEffectAgain(t *testing.T) {
	e := experiment([]string{"kill"}, "correct-key", nil)
	e.Play = func(_ context.Context, a Arm, _ int) (Played, error) {
		return Played{Undecided: a.kind != history.ArmNone, Dir: a.Name}, nil
	}
	c, err := e.Measure(t.Context())
	require.NoError(t, err)
	require.Len(t, c.Arms[0].Dirs, e.Least)
	require.Equal(t, "Not decided: the run was played 5 times again, and each time a fault took no effect, or it could not be judged", c.Text)
}

// Arms are played in turns, and what could not be judged counts only where it shows the violation.
func TestArmsTakeTurns(t *testing.T) {
	e := experiment([]string{"kill"}, "correct-key", nil)
	var order []string
	e.Play = func(_ context.Context, a Arm, round int) (Played, error) {
		order = append(order, a.Name)
		p := Played{Undecided: round < 2, Dir: a.Name}
		if a.kind == history.ArmAll && round == 0 {
			p.Kinds = []string{"double-grant"}
		}
		if len(order) == 14 {
			return p, errors.New("the disk is full")
		}
		return p, nil
	}
	c, err := e.Measure(t.Context())
	require.ErrorContains(t, err, "the disk is full")
	require.Equal(t, []string{"all", "none", "control", "all"}, order[:4])
	require.Equal(t, [2]int{1, 4}, [2]int{c.Arms[0].Seen, c.Arms[0].N}, "the second run could not be judged")
	require.Equal(t, [2]int{0, 2}, [2]int{c.Arms[1].Seen, c.Arms[1].N})
	require.Len(t, c.Arms[0].Dirs, 5)
}
