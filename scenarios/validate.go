package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// Validate joins everything that is wrong with the scenario, so that nothing
// that could be known before is found out in the middle of a run.
func (s Scenario) Validate() error {
	return errors.Join(append(s.problems(), s.Lock.Validate())...)
}

// A stepError is what is wrong with a step, counted from 0.
type stepError struct {
	step int
	error
}

// Error calls the step as people count.
func (e stepError) Error() string { return fmt.Sprintf("step %d: %v", e.step+1, e.error) }

// Unwrap returns what is wrong.
func (e stepError) Unwrap() error { return e.error }

// problems are everything that is wrong with the scenario.
func (s Scenario) problems() []error {
	if s.Name == "" || s.Title == "" {
		return []error{errors.New("a scenario needs a name and a title")}
	}
	t, err := topologies.New(s.Topology, s.Servers)
	if err != nil {
		return []error{err}
	}
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, v := range append([]string{""}, s.VariantNames()...) {
		as := s.As(v)
		errs = append(errs, as.resourceFits(), as.lockFits(), as.ledgerFits(), as.Expect.validate())
	}
	for _, client := range slices.Sorted(maps.Keys(s.Clients)) {
		if zones := t.Of(topologies.Zone); !slices.Contains(zones, s.Clients[client]) {
			problem("client %s: %w", client, names.Unknown("zone", s.Clients[client], zones))
		}
	}
	for _, v := range s.Variants {
		if err := v.Servers.Validate(s.Topology); err != nil {
			problem("variant %s: %w", v.Name, err)
		}
	}
	if len(s.Steps) == 0 {
		problem("a scenario needs steps")
	}
	variants := append(s.VariantNames(), mainVariant)
	for i, step := range s.Steps {
		err := step.validate(s, t)
		if err == nil && step.Inject != "" {
			_, err = s.environment(t).Resolve(step.fault())
		}
		if err != nil {
			errs = append(errs, stepError{i, err})
		}
		for _, v := range slices.Concat(step.Only, step.Except) {
			if !slices.Contains(variants, v) {
				errs = append(errs, stepError{i, names.Unknown("variant", v, variants)})
			}
		}
	}
	for _, v := range variants {
		errs = append(errs, s.walk(v)...)
	}
	if s.Retries < 0 || s.Progress < 0 {
		problem("retries and progress must not be negative")
	}
	return dedupe(errs)
}

// dedupe drops problems that several variants share.
func dedupe(errs []error) []error {
	seen := map[string]bool{}
	return slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})
}

func (e Expectation) validate() error {
	if e.Verdict != string(checker.Valid) && e.Verdict != string(checker.Invalid) {
		return fmt.Errorf("expect valid or invalid, not %q", e.Verdict)
	}
	kinds := names.Of(checker.Kinds(), func(k checker.Kind) string { return k.Name })
	if e.Violation != "" && !slices.Contains(kinds, e.Violation) {
		return names.Unknown("kind of violation", e.Violation, kinds)
	}
	known := names.Of(checker.Standard(), checker.Checker.Name)
	for _, name := range e.Holds {
		if !slices.Contains(known, name) {
			return names.Unknown("property", name, known)
		}
	}
	return nil
}

// leastLease is the shortest lease that a script may ask for.
const leastLease = 10 * time.Millisecond

// validate checks a step by itself, unless it is one of the plan of faults.
func (step ScriptStep) validate(s Scenario, t topologies.Topology) error {
	count := func(fields ...string) int {
		return len(slices.DeleteFunc(fields, func(f string) bool { return f == "" }))
	}
	if count(step.Client, step.Await, step.Inject, step.Heal, step.Require) != 1 {
		return errors.New("want exactly one of client, inject, heal, require, await")
	}
	if step.Symptom && step.Until == "" {
		return errors.New(`a symptom needs "until": how the step ends with the bug`)
	}
	if err := step.asksWell(); err != nil {
		return err
	}
	clients := slices.Sorted(maps.Keys(s.Clients))
	switch {
	case step.Client != "":
		if !slices.Contains(clients, step.Client) {
			return names.Unknown("client", step.Client, clients)
		}
		if count(step.Acquire, step.Extend, step.Release, step.Read, step.Write, step.Access) != 1 {
			return errors.New("want exactly one of acquire, extend, release, read, write, access")
		}
		if untils := step.untils(); step.Until != "" && !slices.Contains(untils, step.Until) {
			return names.Unknown("until", step.Until, untils)
		}
		if step.Background && !step.requests() && step.Write == "" {
			return errors.New("only acquire, extend, release and write can go on in the background")
		}
		if step.Background && step.Until != "" {
			return errors.New(`say "until" where the step in the background is awaited`)
		}
		if step.Extend != "" && step.Lease == 0 {
			return errors.New("extend needs a lease")
		}
		if step.Lease != 0 && step.Lease < leastLease {
			return fmt.Errorf("lease must be at least %v, not %v", leastLease, step.Lease)
		}
		if step.Wait < 0 || step.Wait >= stepTimeout {
			return fmt.Errorf("wait must be from 0 to below %v, how long a step may take, and not %v", stepTimeout, step.Wait)
		}
	case step.Inject != "": // see [faults.Environment.Resolve]
	case step.Heal != "":
		spec, err := step.spec()
		if spec.OneShot() {
			return fmt.Errorf("%s is over once it fired, so there is nothing to heal; await it", step.Heal)
		}
		return err
	case step.Await != "":
		if spec, err := step.spec(); err == nil && !slices.Contains(clients, step.Await) {
			if spec.Life != history.Triggered {
				return fmt.Errorf("%s does not wait for a message, so there is nothing to await", step.Await)
			}
			return nil
		}
		if !slices.Contains(clients, step.Await) {
			return fmt.Errorf("await: %w", names.Unknown("client or fault", step.Await, clients))
		}
	default:
		if known := []string{requireHeld, requireAbsent, requireWritten, requireUnwritten}; !slices.Contains(known, step.Require) {
			return names.Unknown("require", step.Require, known)
		}
		if !slices.Contains(clients, step.Of) {
			return fmt.Errorf("of: %w", names.Unknown("client", step.Of, clients))
		}
		if step.ofLedger() && (step.In == "" || len(step.On) > 0) {
			return fmt.Errorf(`require %s needs a resource in "in", and no servers in "on"`, step.Require)
		}
		if step.ofLedger() {
			return nil
		}
		if step.In != "" {
			return fmt.Errorf(`require %s is of servers, which stand in "on", and not in "in"`, step.Require)
		}
		servers := t.Servers()
		for _, name := range step.On {
			if !slices.Contains(servers, name) {
				return names.Unknown("server", name, servers)
			}
		}
		if len(step.On) == 0 {
			return errors.New(`require needs servers in "on"`)
		}
	}
	return nil
}

// asksWell checks how an acquire asks for its lock.
func (step ScriptStep) asksWell() error {
	plain := step.Mode == "" && step.Permits == 0 && len(step.And) == 0 && !step.Again
	switch modes := []string{string(history.Read), string(history.Write)}; {
	case step.Acquire == "" && !plain:
		return errors.New(`"mode", "permits", "and" and "again" go with acquire`)
	case step.Release == "" && step.First:
		return errors.New(`"first" goes with release`)
	case step.Mode != "" && !slices.Contains(modes, string(step.Mode)):
		return names.Unknown("mode", string(step.Mode), modes)
	case step.Permits < 0:
		return fmt.Errorf("permits must be at least 1, not %d", step.Permits)
	}
	for i, name := range step.locks() {
		if name == "" || slices.Contains(step.locks()[:i], name) {
			return fmt.Errorf(`"and" names other locks than %s, each once`, step.Acquire)
		}
	}
	return nil
}

// kindFits refuses what the lock can't be asked for.
func (s Scenario) kindFits() error {
	l := s.Lock
	if l.Name == "" { // it is not known yet
		return nil
	}
	if s.Permits < 0 {
		return fmt.Errorf("%s: permits must be at least 1, not %d", s.Name, s.Permits)
	}
	if s.Permits > history.MaxAmount {
		return fmt.Errorf("%s: permits must be at most %d, not %d", s.Name, history.MaxAmount, s.Permits)
	}
	if s.Permits > 0 && l.Kind != history.KindSemaphore {
		return fmt.Errorf("%s: permits are of a semaphore, and lock %s is none", s.Name, l.Name)
	}
	for _, step := range s.Steps {
		switch {
		case step.Acquire == "": // see [ScriptStep.asksWell]
		case step.Mode != "" && l.Kind != history.KindRW:
			return fmt.Errorf("%s: %s in mode %s, and lock %s has no readers and writers", s.Name, step, step.Mode, l.Name)
		case step.Permits > 0 && l.Kind != history.KindSemaphore:
			return fmt.Errorf("%s: %s with permits, and lock %s is no semaphore", s.Name, step, l.Name)
		case step.Permits > max(s.Permits, 1):
			return fmt.Errorf("%s: %s with %d permits, and it has %d: say permits: %d beside lock", s.Name, step, step.Permits, max(s.Permits, 1), step.Permits)
		case len(step.And) > 0 && !l.Together:
			return fmt.Errorf("%s: %s together, and lock %s grants one lock at a time", s.Name, step, l.Name)
		}
	}
	return nil
}

// lockFits refuses steps that mean nothing with the lock, of a scenario as one
// variant has it.
func (s Scenario) lockFits() error {
	l := s.Lock
	if err := s.kindFits(); err != nil {
		return err
	}
	if (l.InProcess != nil || l.Together) && len(s.Apart()) > 0 {
		return fmt.Errorf("%s: client %s can't be paused or killed, since lock %s is in the harness's own memory, or asked for several at once", s.Name, s.Apart()[0], l.Name)
	}
	if l.InProcess != nil && slices.ContainsFunc(s.Steps, ScriptStep.ofServers) {
		return fmt.Errorf("%s: require asks servers, and lock %s has none", s.Name, l.Name)
	}
	if l.Connects && s.Retries > 0 {
		return fmt.Errorf("%s: its clients send a request again when no reply comes, and the clients of lock %s decide that by themselves", s.Name, l.Name)
	}
	hitsSubscribers := func(spec *faults.Spec) bool { return spec.Hits == faults.HitsSubscribers }
	if l.Foreign && !l.Subscribes && slices.ContainsFunc(s.faults(), hitsSubscribers) {
		return fmt.Errorf("%s: a message of the server is lost, and lock %s is not known to wait for any", s.Name, l.Name)
	}
	if l.Name != "" && !l.Extend && slices.ContainsFunc(s.Steps, func(step ScriptStep) bool { return step.Extend != "" }) {
		return fmt.Errorf("%s: a client extends its hold, which lock %s can't", s.Name, l.Name)
	}
	return nil
}

// walk goes through the steps of a variant in order, and checks what depends on
// the ones before.
func (s Scenario) walk(variant string) []error {
	var errs []error
	busy := map[string]ScriptStep{} // what a client has in the background
	reading := map[string]string{}  // which resource a client has read, and not yet written
	asked := map[string][]string{}  // which locks it asked for last, as one owner
	injected := map[string]int{}
	aimed := map[[2]string]bool{} // fault and target
	for i, step := range s.Steps {
		if !step.takenBy(variant) {
			continue
		}
		problem := func(format string, args ...any) {
			errs = append(errs, stepError{i, fmt.Errorf(format, args...)})
		}
		open, last := reading[step.Client], cmp.Or(strings.Join(asked[step.Client], " and "), "nothing")
		if doing, ok := busy[step.Client]; ok {
			problem("client %s is busy in the background (%s): await it first", step.Client, doing)
		}
		if step.Background {
			busy[step.Client] = step
		}
		switch {
		case step.Await != "":
			doing, ok := busy[step.Await]
			switch {
			case !ok && step.Until == untilLost && s.Clients[step.Await] != "":
				switch {
				case len(asked[step.Await]) == 0:
					problem("client %s has asked for no lock yet", step.Await)
				case slices.Contains(s.Apart(), step.Await):
					problem("client %s is a process of its own, as the target of a fault: what it is told can't be awaited", step.Await)
				}
			case ok && step.Until != "" && !slices.Contains(doing.untils(), step.Until):
				problem("%w", names.Unknown("until", step.Until, doing.untils()))
			case !ok && s.Clients[step.Await] != "":
				problem("client %s does nothing in the background", step.Await)
			case !ok && (injected[step.Await] == 0 || step.Target != "" && !aimed[[2]string{step.Await, step.Target}]):
				problem("await %s: nothing has injected it", strings.TrimSpace(step.Await+" "+step.Target))
			}
			delete(busy, step.Await)
		case step.Inject != "":
			injected[step.Inject]++
			aimed[[2]string{step.Inject, step.Target}] = true
		case step.Heal != "":
			if injected[step.Heal]--; injected[step.Heal] < 0 {
				problem("heal %s: nothing has injected it", step.Heal)
			}
		case step.Require != "":
			if len(asked[step.Of]) == 0 {
				problem("client %s has asked for no lock yet", step.Of)
			}
		case step.Write != "" && open == "":
			problem("write without a read")
		case step.Write != "":
			if open != step.Write {
				problem("client %s has read %s, and writes %s", step.Client, open, step.Write)
			}
			delete(reading, step.Client)
		case open != "":
			problem("client %s has read %s and must write it first", step.Client, open)
		case step.Read != "":
			reading[step.Client] = step.Read
		case step.Again && len(asked[step.Client]) == 0:
			problem("client %s asks again, and has asked for no lock yet", step.Client)
		case step.Acquire != "" && !step.Again:
			asked[step.Client] = []string{step.Acquire}
		case step.Acquire != "" && !slices.Contains(asked[step.Client], step.Acquire):
			asked[step.Client] = append(asked[step.Client], step.Acquire)
		case step.Extend != "" && !slices.Contains(asked[step.Client], step.Extend):
			problem("client %s extends %s, and asked for %s last", step.Client, step.Extend, last)
		case step.Release != "" && !slices.Contains(asked[step.Client], step.Release):
			problem("client %s releases %s, and asked for %s last", step.Client, step.Release, last)
		}
	}
	for _, client := range slices.Sorted(maps.Keys(busy)) {
		errs = append(errs, fmt.Errorf("client %s is still busy in the background at the end (%s): await it", client, busy[client]))
	}
	return errs
}

// takenBy reports whether a variant takes the step.
func (step ScriptStep) takenBy(variant string) bool {
	return !slices.Contains(step.Except, variant) && (len(step.Only) == 0 || slices.Contains(step.Only, variant))
}
