package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// Replay is the run that a record is of, with the plan that it followed; its
// seed is the record's, and its lock is one of locks. It fails for a record without
// settings, such as that of a script.
func Replay(run history.Run, locks Locks, allowExec bool) (RandomRun, error) {
	switch {
	case run.Scenario != "":
		return RandomRun{}, fmt.Errorf("it is the record of a scenario, which lockchaos reproduce %s plays again", run.Scenario)
	case len(run.Settings) == 0:
		return RandomRun{}, errors.New("it has no settings: an older lockchaos wrote it, or it is no record of a random run")
	}
	var s settings
	if err := json.Unmarshal(run.Settings, &s); err != nil {
		return RandomRun{}, fmt.Errorf("read its settings: %w", err)
	}
	l, unknown := locks.InFile(run.Lock, allowExec)
	r := RandomRun{
		Topology: run.Topology.Name, Lock: l, Kind: run.Workload, Faults: run.Faults,
		Servers: s.Options, Options: s.LockOptions, Workload: s.Config, Length: s.Length, Recorded: s.Recorded,
		Resource: ResourceConfig{Kind: run.Resource, Fencing: run.Fencing},
		Plan:     append([]faults.Step{}, run.Plan...),
		foreign:  run.Backend == history.Attached,
	}
	if unknown != nil {
		return r, unknown
	}
	return r, r.Validate()
}

// Control is the run again with the control lock: with the plan that was recorded, the
// same workload and the same servers. Its error says why that lock can't have it.
func (r RandomRun) Control(run history.Run, control LockSpec) (RandomRun, error) {
	r.Kind = r.kind()
	kinds, _ := workload.Parse(r.Kind) // which is validated below
	watched := slices.ContainsFunc(kinds, func(k workload.Kind) bool { return k.Needs.Watched })
	control.Watchdog = control.Watchdog || watched && !control.Foreign && !control.Endless // as all of ours have
	control.Foreign = true                                                                 // faults of commands are aimed at what it sends
	r.Lock, r.Plan = control, append([]faults.Step{}, run.Plan...)
	return r, r.Validate()
}

// The settings of a run are what Replay needs of it beside what its record has anyway.
// A field of these types that has a name in JSON is recorded and replayed.
type settings struct {
	Length   time.Duration `json:"length"`
	Recorded bool          `json:"recorded,omitempty"`
	topologies.Options
	LockOptions
	workload.Config
}

// settings encodes them. The defaults of the workload are filled in by then: they may
// change.
func (r RandomRun) settings() (json.RawMessage, error) {
	return json.Marshal(settings{r.Length, r.Recorded, r.Servers, r.Options, r.Workload})
}
