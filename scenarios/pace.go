package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults/network"
	"github.com/lockchaos/lockchaos/topologies"
)

// The parameters of faults that change the pace of links.
const (
	paramRate = "rate" // bytes a second
	paramDown = "down" // ms
	paramUp   = "up"   // ms
)

// defaultTurn is how long a link that flaps is cut, and mended, at a time.
const defaultTurn = 200 * time.Millisecond

// bytesPerSecond is the rate of a limited bandwidth.
func bytesPerSecond(params map[string]string) (int, error) {
	n, err := strconv.ParseUint(params[paramRate], 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("bandwidth: rate must be a whole number of bytes a second, above 0, and not %q", params[paramRate])
	}
	return int(n), nil
}

// lateness is how late the end of a connection is.
func lateness(params map[string]string) (time.Duration, error) {
	by, err := milliseconds(params, paramBy)
	if err == nil && by == 0 {
		err = fmt.Errorf("slow-close: say by how many ms in the parameter %q", paramBy)
	}
	return by, err
}

// turns are how long a link that flaps is cut, and mended, at a time.
func turns(params map[string]string) (down, up time.Duration, err error) {
	down, errDown := milliseconds(params, paramDown)
	up, errUp := milliseconds(params, paramUp)
	return cmp.Or(down, defaultTurn), cmp.Or(up, defaultTurn), errors.Join(errDown, errUp)
}

// checkLinks checks what a fault of links is aimed at, and its parameters.
func checkLinks(t topologies.Topology, kind FaultKind, target string, params map[string]string) error {
	var err error
	switch {
	case kind.parts():
		_, _, err := divided(t, kind.Name, target, params)
		return err
	case kind.lies():
		_, err = planTrap(kind.Name, params)
	case kind.Name == "bandwidth":
		_, err = bytesPerSecond(params)
	case kind.Name == "slow-close":
		_, err = lateness(params)
	case kind.Name == "flap":
		_, _, err = turns(params)
	}
	if err != nil {
		return err
	}
	if inner, ok := toResource(target); ok {
		single, err := topologies.ByName(topologies.Single)
		if err != nil {
			return err
		}
		t, target = single, inner
	}
	_, err = t.Select(target)
	return err
}

// toResource is what a target means in the topology of the protected resource,
// and reports false if it means none of its links: "zone-a>resource" is one.
func toResource(target string) (inner string, ok bool) {
	from, ok := strings.CutSuffix(target, ">resource")
	return from + ">redis-1", ok
}

// concerned are the links that a step's fault is put on.
func concerned(t topologies.Topology, step ScriptStep) ([]topologies.Link, error) {
	if parts(step.Inject) {
		links, _, err := divided(t, step.Inject, step.Target, step.Params)
		return links, err
	}
	if _, ok := toResource(step.Target); ok {
		return t.Select(string(topologies.Client)) // its own are as these
	}
	return t.Select(step.Target)
}

// unlinked says why no link of a deployment can have a fault, if so.
func unlinked(d topologies.Deployment, kind FaultKind) error {
	var lack error
	var has func(topologies.Wire) bool
	switch {
	case kind.lies():
		lack = network.ErrUnread
		has = func(w topologies.Wire) bool { _, ok := w.(network.Reader); return ok }
	case kind.Name == "bandwidth", kind.Name == "slow-close":
		lack = network.ErrPace
		has = func(w topologies.Wire) bool { _, ok := w.(network.Pacer); return ok }
	default:
		return nil
	}
	for _, l := range d.Topology().Links {
		if w := d.Wire(l.Name()); w != nil && has(w) {
			return nil
		}
	}
	return lack
}
