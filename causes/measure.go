package causes

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// An Experiment is a cluster with what plays its run again.
type Experiment struct {
	Cluster

	// Control is the name of the control lock; empty: none suits the run. ControlWorkload is its
	// workload, where it can't have that of the run.
	Control, ControlWorkload string
	// Least and Most are how many runs each arm has: Least first, then twice as many until the
	// measurement is decided. Where the intervals of the lock and of the control overlap then, the arms that decide the
	// verdict go on, to MostDeciding.
	Least, Most, MostDeciding int
	// LeastControl is how many runs of the control lock have to be without the violation before that says
	// something against the lock under test.
	LeastControl int
	// Accidents is how many runs without any fault may show the violation before that is a defect of the lock: on real servers one
	// may be an accident of the machine, such as an election because it was busy.
	Accidents int
	// Acks is how many replicas acknowledge each grant, of the control lock as well.
	Acks int
	// Play plays an arm once. Rounds count from 0, and each has choices of its own.
	Play func(ctx context.Context, a Arm, round int) (Played, error)
	// Told is told of each run; nil: it is dropped.
	Told func(a history.Arm, done, of int)
}

// Shows says why a lock can't have a kind of violation, whatever its servers do, so that it is no control of it; nil if it can.
func Shows(l harness.LockSpec, kind string) error {
	can := true
	switch kind {
	case checker.FenceRegress, checker.FenceDuplicate, checker.StaleAccess:
		can = l.Token
	case checker.Overtaken:
		can = l.Place
	case checker.OverCapacity:
		can = l.Kind == history.KindSemaphore
	}
	if !can {
		return fmt.Errorf("lock %s can't have the violation %s", l.Name, kind)
	}
	return nil
}

// An Arm is one way to play the run again.
type Arm struct {
	// Faults are the indices of those that it has, of [Cluster.Faults].
	Faults []int
	// Control says that the control lock takes the place of the lock under test.
	Control bool
	// Name is short, and different from that of any other arm.
	Name string

	kind    string
	suspect int
	same    int // the index of the first arm with the same faults; -1: there is none before
}

// A Played is what came of a run.
type Played struct {
	// Kinds are those of its violations.
	Kinds []string
	// Undecided says that it could not be judged, or that a fault of it took no effect: it counts
	// for nothing unless it shows the violation.
	Undecided bool
	// Dir is its run directory; empty: there is none.
	Dir string
}

// rolesWithin bounds how many times the least runs are played for what single faults do, once the verdict is
// decided.
const rolesWithin = 4

// Arms are the ways to play the run again.
func (e Experiment) Arms() []Arm {
	every := make([]int, len(e.Faults))
	for i := range every {
		every[i] = i
	}
	arms := []Arm{
		{Faults: every, Name: history.ArmAll, kind: history.ArmAll},
		{Faults: []int{}, Name: history.ArmNone, kind: history.ArmNone},
	}
	for i, s := range e.Suspects {
		without := slices.DeleteFunc(slices.Clone(every), func(f int) bool { return f == s })
		arms = append(arms,
			Arm{Faults: without, Name: fmt.Sprintf("%s-%d", history.ArmWithout, i+1), kind: history.ArmWithout, suspect: i},
			Arm{Faults: []int{s}, Name: fmt.Sprintf("%s-%d", history.ArmOnly, i+1), kind: history.ArmOnly, suspect: i})
	}
	if e.Control != "" {
		arms = append(arms, Arm{Faults: every, Control: true, Name: history.ArmControl, kind: history.ArmControl})
	}
	for i := range arms { // without the only fault is without any
		arms[i].same = slices.IndexFunc(arms[:i], func(b Arm) bool { return b.Control == arms[i].Control && slices.Equal(b.Faults, arms[i].Faults) })
	}
	return arms
}

// Ways are how many arms differ from all others.
func (e Experiment) Ways() int {
	n := 0
	for _, a := range e.Arms() {
		if a.same < 0 {
			n++
		}
	}
	return n
}

// Measure plays the arms in turns, so that a machine that becomes slower does so for all of them, and
// says what that shows. When ctx ends before, it says what was counted so far.
func (e Experiment) Measure(ctx context.Context) (history.Cause, error) {
	c := history.Cause{Kind: e.Kind, From: e.From, Until: e.Until, Control: e.Control, ControlWorkload: e.ControlWorkload}
	for _, s := range e.Suspects {
		f := e.Faults[s]
		c.Faults = append(c.Faults, history.Suspect{Fault: f.Name, Target: f.Target, Start: f.Start, End: f.End})
	}
	arms := e.Arms()
	for _, a := range arms {
		c.Arms = append(c.Arms, history.Arm{Arm: a.kind, Fault: a.suspect, Same: a.same >= 0, Interval: reports.Interval(0, 0)})
	}
	done, runs, ways, most := 0, 0, e.Ways(), max(e.Most, e.MostDeciding)
	for goal := e.Least; ; {
		for round := done; round < goal; round++ {
			for i, a := range arms {
				if ctx.Err() != nil {
					return e.decide(c), nil //nolint:nilerr // what was counted stands
				}
				if done >= e.Most && a.same < 0 && !a.decides() {
					continue
				}
				if a.same >= 0 {
					same := c.Arms[a.same]
					c.Arms[i].Seen, c.Arms[i].N, c.Arms[i].Interval = same.Seen, same.N, same.Interval
					continue
				}
				p, err := e.Play(ctx, a, round)
				if err != nil {
					return e.decide(c), fmt.Errorf("play the run again, %s: %w", a.Name, err)
				}
				count(&c.Arms[i], p, e.Kind)
				if runs++; e.Told != nil {
					e.Told(c.Arms[i], runs, goal*ways)
				}
			}
		}
		told := e.decide(c)
		if all, _ := arm(&c, history.ArmAll, 0); all.N == 0 { // more runs would hardly meet the faults either
			return told, nil
		}
		if done = goal; goal >= most || goal >= e.Most && (apart(&c) || told.Verdict != history.CauseUndecided) || decided(told, goal >= rolesWithin*e.Least) {
			return told, nil
		}
		if goal = min(2*goal, e.Most); done >= e.Most {
			goal = min(2*done, most)
		}
	}
}

// apart reports whether more runs would say nothing else: there is no control, or it shows nothing that often.
func apart(c *history.Cause) bool {
	all, _ := arm(c, history.ArmAll, 0)
	control, controlled := arm(c, history.ArmControl, 0)
	return !controlled || control.Seen == 0 && rarer(control, all)
}

// decides reports whether the verdict rests on an arm, and not only what a single fault does.
func (a Arm) decides() bool { return a.kind != history.ArmWithout && a.kind != history.ArmOnly }

// count adds a run to its arm.
func count(a *history.Arm, p Played, kind string) {
	if p.Dir != "" {
		a.Dirs = append(a.Dirs, p.Dir)
	}
	shows := slices.Contains(p.Kinds, kind)
	if shows {
		a.Seen++
	}
	if shows || !p.Undecided {
		a.N++
	}
	a.Interval = reports.Interval(a.Seen, a.N)
}
