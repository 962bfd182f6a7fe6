package scenarios

import (
	"fmt"
	"strconv"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/clock"
	"github.com/lockchaos/lockchaos/faults/disk"
	"github.com/lockchaos/lockchaos/topologies"
)

// The parameters of faults of clocks.
const (
	paramBy      = "by"      // milliseconds
	paramPercent = "percent" // faster
)

// instrumented is the setup for a run with these faults: where they interfere
// with clocks or disks, its backend starts servers that let them. All other
// runs are spared that.
func (s Setup) instrumented(asked []string) (Setup, error) {
	for _, fault := range asked {
		for _, c := range controls(fault) {
			if c != topologies.Clocks && c != topologies.Disks {
				continue
			}
			b, ok := s.Backend.(topologies.Instrumenter)
			if !ok {
				return s, fmt.Errorf("%s %w: it takes servers that are local processes (--backend process)", fault, ErrImpossible)
			}
			s.Backend = b.Instrumented()
			return s, nil
		}
	}
	return s, nil
}

// buildClock makes a fault of one server's clock, or of its disk.
func buildClock(d topologies.Deployment, server topologies.Server, s faults.Step) (faults.Fault, error) {
	if s.Fault == "shutdown" {
		return disk.Shutdown(server), nil
	}
	c, there := d.Clock(server.Name()), d.Disk(server.Name())
	if c == nil || there == nil {
		return nil, fmt.Errorf("%s: %s has its machine's clock and disk", s.Fault, server.Name())
	}
	switch s.Fault {
	case "clock-forward", "clock-back":
		by, err := milliseconds(s.Params, paramBy)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Fault, err)
		}
		if s.Fault == "clock-back" {
			by = -by
		}
		return clock.Step(server, c, by), nil
	case "clock-rate":
		percent, err := percentage(s)
		if err != nil {
			return nil, err
		}
		return clock.Rate(server, c, percent), nil
	case "clock-freeze":
		return clock.Freeze(server, c), nil
	case "stall-disk":
		return disk.Stall(server, there), nil
	default:
		return disk.PowerCut(server, there), nil
	}
}

func percentage(s faults.Step) (float64, error) {
	percent, err := strconv.ParseFloat(s.Params[paramPercent], 64)
	if err != nil || percent == 0 || percent <= -100 {
		return 0, fmt.Errorf(`%s: want how much faster in the parameter %q, above -100 and not 0, and not %q`, s.Fault, paramPercent, s.Params[paramPercent])
	}
	return percent, nil
}

// checkClock checks what a step says of a fault of clocks.
func checkClock(step ScriptStep) error {
	s := faults.Step{Fault: step.Inject, Params: step.Params}
	switch step.Inject {
	case "clock-forward", "clock-back":
		by, err := milliseconds(step.Params, paramBy)
		if err == nil && by == 0 {
			err = fmt.Errorf("say by how many milliseconds in the parameter %q", paramBy)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.Inject, err)
		}
	case "clock-rate":
		_, err := percentage(s)
		return err
	}
	return nil
}
