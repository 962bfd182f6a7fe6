package history

import "time"

// A Cause is what came of playing a run again up to violations of one kind, with and without the
// faults that were in effect then. It is a measurement, and no inference from times.
type Cause struct {
	// Kind is that of the violations, which lie From and Until in the run.
	Kind  string        `json:"kind"`
	From  time.Duration `json:"from"`
	Until time.Duration `json:"until"`
	// Verdict is [CauseLock], [CauseDeployment] or [CauseUndecided], and Text the same in a
	// sentence, with its counts.
	Verdict string `json:"verdict"`
	Text    string `json:"text"`
	// Faults are those that were measured: at most three that were in effect, or ended before, in order of time.
	Faults []Suspect `json:"faults,omitempty"`
	// Control is the lock of the arm [ArmControl]; empty: none suits the run. ControlWorkload is
	// what its clients did, where that is not what those of the run did.
	Control         string `json:"control,omitempty"`
	ControlWorkload string `json:"control_workload,omitempty"`
	Arms            []Arm  `json:"arms"`
	// Likelihood says from when on runs that went on otherwise showed the violation, and what came right before; empty:
	// that was not measured, which takes a simulated run.
	Likelihood string `json:"likelihood,omitempty"`
}

// What a measurement can show of violations.
const (
	CauseLock       = "lock"       // a defect of the lock
	CauseDeployment = "deployment" // a limit of the deployment, which a correct lock meets as well
	CauseUndecided  = "undecided"
)

// A Suspect is a fault that was measured, with what that shows of it.
type Suspect struct {
	Fault  string        `json:"fault"`
	Target string        `json:"target,omitempty"`
	Start  time.Duration `json:"start"`
	End    time.Duration `json:"end"`
	Role   string        `json:"role"`
}

// What a measurement can show of a fault.
const (
	RoleNeeded     = "needed"             // without it the violation is gone, or rarer, and it is enough alone
	RoleWithOthers = "needed with others" // without it the violation is gone, or rarer, and it is not enough alone
	RoleOneOf      = "one of several"     // alone it is enough, and without it others are
	RoleNotNeeded  = "not needed"         // the violation is there without any fault
	RoleUndecided  = "not decided"        // the intervals overlap
)

// An Arm is a way to play the run again, and how often that showed the violation.
type Arm struct {
	// Arm is one of [ArmAll] and so on, and Fault the index of the suspect that it leaves out, or
	// has alone.
	Arm   string `json:"arm"`
	Fault int    `json:"fault"`
	// From is the instant after which the runs of [ArmFrom] go on otherwise.
	From time.Duration `json:"from,omitempty"`
	// Same says that its faults, and so its runs, are those of an arm before it: with a single
	// fault, to leave it out is to have none.
	Same bool `json:"same,omitempty"`
	// Seen of N runs showed the violation; Interval is where the true share lies in 95 of 100
	// cases, from 0 to 1. Runs that could not be judged are not counted.
	Seen     int        `json:"seen"`
	N        int        `json:"n"`
	Interval [2]float64 `json:"interval"`
	// Dirs are the run directories, in that of the run; none of simulated runs, which are not kept.
	Dirs []string `json:"dirs,omitempty"`
}

// The arms of a measurement.
const (
	ArmAll     = "all"     // all faults, at the times that were recorded
	ArmWithout = "without" // all but one, in whose place nothing happens
	ArmOnly    = "only"    // one alone
	ArmNone    = "none"    // no fault
	ArmControl = "control" // all faults, and the control lock
	ArmFrom    = "from"    // all faults, and other choices of the network and the clients from an instant on
)
