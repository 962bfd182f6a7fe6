package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// RunVersion is the version of the run.json format that this package writes.
const RunVersion = 1

// NoFaults is [Run.Faults] of a run that is to have none.
const NoFaults = "none"

// The values of [Run.Backend] of a run in virtual time, on servers that were simulated, and of one on servers that others started.
const (
	Simulated = "simulated"
	Attached  = "attach"
)

// A Run is the record of what was run, beside what was observed: everything a
// report needs to draw the run, and a person to repeat it. It is plain data,
// written as run.json before the first event and again at the end.
type Run struct {
	Version int `json:"version"`
	// Program is the version of lockchaos that ran.
	Program string `json:"program"`
	// Command repeats the run.
	Command  string `json:"command"`
	Seed     uint64 `json:"seed"`
	Scenario string `json:"scenario,omitempty"` // empty for a random run
	Title    string `json:"title,omitempty"`    // what the scenario shows, in a sentence
	Source   string `json:"source,omitempty"`   // who described this failure first
	Expect   string `json:"expect,omitempty"`   // the verdict that a scenario expects
	// AbortReason says which step of a scenario could not be done, and why. A run
	// with one has shown nothing.
	AbortReason string `json:"unmet,omitempty"`
	// Unsuited says why a scenario can't be asked of the lock, where that is not the
	// scenario's own: the lock answered otherwise than a step needs, and the script
	// ended there. What is violated until then is, and a run without a violation is
	// not valid.
	Unsuited string `json:"unsuited,omitempty"`
	// Spared says at which step the lock, where it is not the scenario's own, did not
	// show the bug that the scenario is about. The script ended there.
	Spared string `json:"spared,omitempty"`
	// ClaimLostTo says who else drove the servers by the end. A run with it has
	// shown nothing: what was seen may be the other's work.
	ClaimLostTo string `json:"unclaimed,omitempty"`
	// DriverFault says what the driver of the lock did wrong. A run with it is never
	// valid.
	DriverFault string `json:"driver_fault,omitempty"`
	// Failed says what the harness could not do, such as to heal a fault or to stop
	// a server. A run with it is never valid.
	Failed string `json:"failed,omitempty"`
	// Cures are what would have prevented the violations of a scenario.
	Cures []string `json:"cures,omitempty"`
	// Progress is how long a lock of the scenario may stay free and asked for;
	// 0: the checker's own bound.
	Progress time.Duration `json:"progress,omitempty"`

	// Backend is what the servers ran in: process, container, attach, or [Simulated].
	Backend  string   `json:"backend,omitempty"`
	Topology Topology `json:"topology"`
	// Servers are the server versions, by what they run: "redis": "7.0.15", "valkey": "8.0.1"; and that of what a driver wraps.
	Servers map[string]string `json:"servers,omitempty"`
	// Watchdog is the lease that a watchdog renews, of a hold for which none was asked; 0: it is not known.
	Watchdog time.Duration `json:"watchdog,omitempty"`
	// Machine is what the clients ran on, and servers that are local processes; nil
	// where that was not recorded.
	Machine *Machine `json:"machine,omitempty"`
	// Clients are the clients of a script by name, with the zone that each is in: of a
	// random run the names say it.
	Clients map[string]string `json:"clients,omitempty"`
	Lock    string            `json:"lock"`
	// Unpromised are what the lock does not promise, and is not judged by or asked for:
	// the names of the gaps in package promises.
	Unpromised []string `json:"unpromised,omitempty"`
	Workload   string   `json:"workload,omitempty"`
	// Resource is what the locks protected: register, ledger, redis. Fencing says
	// that it refused stale tokens.
	Resource string `json:"resource,omitempty"`
	Fencing  bool   `json:"fencing,omitempty"`
	// Ledger is what a ledger saw; nil where there was none.
	Ledger *Ledger `json:"ledger,omitempty"`
	// Faults names the mix that Plan was drawn from; [NoFaults] is none.
	Faults string `json:"faults,omitempty"`
	// SkippedFaults says which faults of the mix the deployment can't have, and why.
	SkippedFaults []string `json:"left_out,omitempty"`
	// LateFaults is how many faults, the last of the plan, did not come, because those before took longer than
	// planned.
	LateFaults int `json:"late_faults,omitempty"`
	// Plan is what a random run followed. Settings are its other settings, as one JSON
	// object: those of the workload, the lock and the topology, in the terms of the
	// packages that define them.
	Plan     []PlannedStep   `json:"plan,omitempty"`
	Settings json.RawMessage `json:"settings,omitempty"`
	// Control is what came of the same plan with the control lock; nil: it was not run.
	Control *Control `json:"control,omitempty"`
	// Confirmation is what real servers showed of a simulated run; nil: they were not asked.
	Confirmation *Confirmation `json:"confirmation,omitempty"`
	// Causes are what came of playing the run again; empty: it was not.
	Causes []Cause `json:"causes,omitempty"`

	Started  time.Time     `json:"started"` // wall clock, for people
	Duration time.Duration `json:"duration"`
	// Events is how many events the history has. Zero where the run did not end in order, and
	// in records of earlier versions.
	Events      int64 `json:"events,omitempty"`
	Interrupted bool  `json:"interrupted,omitempty"`
}

// A Control is a run with the same seed and plan of a lock that does the least that
// is correct on these servers: what it can't withstand is a limit of the deployment.
type Control struct {
	// Lock is the control lock, and Dir its run directory, in that of the run.
	Lock string `json:"lock"`
	Dir  string `json:"dir"`
	// Verdict is valid, invalid or unknown.
	Verdict string `json:"verdict"`
}

// A Confirmation says whether real servers showed the violation of a simulated run.
type Confirmation struct {
	// Violation is the kind that was looked for.
	Violation string `json:"violation"`
	// Confirmed says that a run on real servers showed it.
	Confirmed bool `json:"confirmed"`
	// Attempts is how many runs there were.
	Attempts int `json:"attempts"`
	// Scenario is the file that was played, and Run the directory of the run that showed
	// the violation, both in the directory of the simulated run.
	Scenario string `json:"scenario,omitempty"`
	Run      string `json:"run,omitempty"`
	// Why says why the last attempt did not show it, or why there was none.
	Why string `json:"why,omitempty"`
}

// Simulation says in a word or two what the violations of a run were seen on: "simulated",
// "simulated, confirmed", "simulated only" if real servers did not show them; empty for a
// run on real servers.
func (r Run) Simulation() string {
	switch {
	case r.Backend != Simulated:
		return ""
	case r.Confirmation == nil:
		return "simulated"
	case r.Confirmation.Confirmed:
		return "simulated, " + r.Confirmation.Violation + " confirmed on real servers"
	default:
		return "simulated only, " + r.Confirmation.Violation + " not confirmed on real servers"
	}
}

// A Ledger is what resources saw that forget nothing.
type Ledger struct {
	// Changes is how many were written.
	Changes int `json:"changes"`
	// Forks is how many wrote a version that was there already: of each two, one
	// update was lost.
	Forks int `json:"forks"`
	// Stale is how many came with a token smaller than one before.
	Stale int `json:"stale"`
}

// A Topology is the drawing of a deployment: its parties and the links
// between them.
type Topology struct {
	Name string `json:"name"`
	// Options are how it was sized and tuned, where that was not by default.
	Options map[string]string `json:"options,omitempty"`
	Nodes   []Node            `json:"nodes"`
	Links   []Link            `json:"links"`
}

// A Node is one party of a topology: a server, a sentinel or a zone of clients.
type Node struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`           // redis, sentinel, zone
	Role    string `json:"role,omitempty"` // at the start: master, replica
	Of      string `json:"of,omitempty"`   // at the start: a replica's master
	Address string `json:"address,omitempty"`
}

// A Link is one direction of dialling between two parties.
type Link struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // client, replication, monitor, gossip, bus
	From string `json:"from"`
	To   string `json:"to"`
}

// A PlannedStep is one fault of a plan, before it is run: At is when it begins, from the start of the plan, and For how long
// it lasts. Zero: it has no duration.
type PlannedStep struct {
	At     time.Duration     `json:"at"`
	For    time.Duration     `json:"for,omitempty"`
	Fault  string            `json:"fault"`
	Target string            `json:"target,omitempty"`
	Params map[string]string `json:"params,omitempty"`
}

// A Machine is what clients and local servers ran on. What is not known is empty.
type Machine struct {
	OS     string `json:"os"`               // as Go calls it: linux, darwin
	Arch   string `json:"arch"`             // as Go calls it: amd64, arm64
	Kernel string `json:"kernel,omitempty"` // its release
	CPUs   int    `json:"cpus"`             // that the program may use
	Go     string `json:"go"`               // what lockchaos was built with
}

// maxRun is the longest record of a run that [ReadRun] accepts, in bytes.
const maxRun = 64 << 20

// ReadRun reads the record of a run. It refuses what no run writes: another
// version, numbers that are negative or absurd, fields that are there twice or in
// another spelling, and anything behind the object.
func ReadRun(r io.Reader) (Run, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxRun+1))
	switch {
	case err != nil:
		return Run{}, err
	case len(b) > maxRun:
		return Run{}, fmt.Errorf("longer than %d bytes", maxRun)
	case len(bytes.TrimSpace(b)) == 0:
		return Run{}, errors.New("it is empty")
	}
	var run Run
	if _, err := readObject(b, "want one JSON object", &run); err != nil {
		return Run{}, err
	}
	if run.Version != RunVersion {
		return Run{}, fmt.Errorf("version %d, want %d", run.Version, RunVersion)
	}
	if err := inRange("", reflect.ValueOf(run)); err != nil {
		return Run{}, err
	}
	return run, nil
}

// inRange says which number of a value is negative, or greater than any time.
func inRange(path string, v reflect.Value) error {
	switch v = reflect.Indirect(v); {
	case v.CanInt() && (v.Int() < 0 || v.Int() > int64(MaxTime)):
		return fmt.Errorf("field %q: %d is out of range", path, v.Int())
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if err := inRange(path, v.Index(i)); err != nil {
				return err
			}
		}
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for field, value := range v.Fields() {
			if err := inRange(strings.TrimPrefix(path+"."+nameOf(field), "."), value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Late says which faults of the plan did not come because those before took longer; empty: all came.
func (r *Run) Late() string {
	if r.LateFaults == 0 {
		return ""
	}
	return fmt.Sprintf("the last %d of %d faults of the plan, because those before took longer than planned", r.LateFaults, len(r.Plan))
}
