package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/network"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
)

// The parameters of faults that lie in wait for one message.
const (
	paramCommand = "command" // which: a command or a script, and words of its arguments
	paramNth     = "nth"     // which of those, from 1
	paramThen    = "then"    // what becomes of the connection: reset or silent
	paramFor     = "for"     // how long it is delayed, in ms
)

// The values of "then".
const (
	thenReset  = "reset"
	thenSilent = "silent"
)

// lies reports whether the fault lies in wait: it takes effect when a message
// passes that it is aimed at.
func (k FaultKind) lies() bool {
	return slices.Contains([]string{
		"delay-command", "delay-reply", "drop-command", "drop-message", "drop-reply", "hold-command", "hold-reply",
	}, k.Name)
}

// spent reports whether such a fault is over once it struck.
func (k FaultKind) spent() bool { return k.lies() && !strings.HasPrefix(k.Name, "hold-") }

// A trapPlan is what the parameters of such a fault say.
type trapPlan struct {
	pattern network.Pattern
	silent  bool
	delay   time.Duration
}

// planTrap reads the parameters, and joins what is wrong with them.
func planTrap(fault string, params map[string]string) (trapPlan, error) {
	p := trapPlan{pattern: network.Pattern{
		Words: strings.Fields(params[paramCommand]), Nth: 1, Scripts: scriptNames(),
	}}
	var errs []error
	if len(p.pattern.Words) == 0 && fault != "drop-message" {
		errs = append(errs, fmt.Errorf("%s: say which command in the parameter %q, such as SET, or acquire for that script of the locks", fault, paramCommand))
	}
	if nth := params[paramNth]; nth != "" {
		n, err := strconv.ParseUint(nth, 10, 31)
		if err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("%s: nth must be a whole number from 1, not %q", fault, nth))
		}
		p.pattern.Nth = int(n)
	}
	switch then := params[paramThen]; {
	case then == "" || then == thenReset && strings.HasPrefix(fault, "drop-"):
	case then == thenSilent && strings.HasPrefix(fault, "drop-"):
		p.silent = true
	default:
		errs = append(errs, fmt.Errorf("%s: %w", fault, names.Unknown(paramThen, then, []string{thenReset, thenSilent})))
	}
	if strings.HasPrefix(fault, "delay-") {
		var err error
		if p.delay, err = milliseconds(params, paramFor); err == nil && p.delay == 0 {
			err = fmt.Errorf("%s: say for how many ms in the parameter %q", fault, paramFor)
		}
		errs = append(errs, err)
	}
	return p, errors.Join(errs...)
}

// scriptNames are the names of our locks' scripts, by their digests, which are
// worked out once.
var scriptNames = sync.OnceValue(func() map[string]string { //nolint:gochecknoglobals // a constant
	byDigest := map[string]string{}
	for name, source := range lock.Scripts() {
		byDigest[network.Digest(source)] = name
	}
	return byDigest
})

// buildTrap makes a fault that lies in wait on links.
func buildTrap(links []network.Link, s faults.Step) (faults.Fault, error) {
	plan, err := planTrap(s.Fault, s.Params)
	if err != nil {
		return nil, err
	}
	readers, err := network.Readers(links)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Fault, err)
	}
	switch s.Fault {
	case "delay-command":
		return network.DelayCommand(readers, plan.pattern, plan.delay), nil
	case "delay-reply":
		return network.DelayReply(readers, plan.pattern, plan.delay), nil
	case "drop-command":
		return network.DropCommand(readers, plan.pattern, plan.silent), nil
	case "drop-message":
		return network.DropMessage(readers, plan.pattern), nil
	case "drop-reply":
		return network.DropReply(readers, plan.pattern, plan.silent), nil
	case "hold-command":
		return network.HoldCommand(readers, plan.pattern), nil
	default:
		return network.HoldReply(readers, plan.pattern), nil
	}
}
