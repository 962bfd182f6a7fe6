package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// clientSpecs are the faults of a client that is an operating system's process of
// its own: it stands still, now and then or until the heal, or it is gone.
func clientSpecs() []Spec {
	specs := []Spec{
		{
			Name: "kill-client", Summary: "SIGKILL to a client of a script, which is gone for good",
			Life:     history.Momentary,
			Observed: "the process is gone",
			Pitfall:  "what it held, it holds until the lease runs out",
			New:      onClient(func(p ClientProcess, _ Step) change { return change{begin: did("is gone", p.Kill)} }),
		},
		{
			Name: "pause-client", Summary: "SIGSTOP to a client of a script, and SIGCONT at the heal",
			Life:     history.Lasting,
			Observed: "the kernel says that it stands still", Healed: "it goes on",
			Pitfall: "what it was sent waits in its socket, and is read when it wakes",
			New: onClient(func(p ClientProcess, _ Step) change {
				return change{begin: did("stands still", p.Pause), end: did("goes on", p.Resume)}
			}),
		},
		{
			Name: "throttle-client", Summary: "stop a client of a script and let it run, over and over, as a limit of its processor time does",
			Life:     history.Repeating,
			Params:   []Param{{Name: "stopped", Unit: "ms", Least: 1, Most: most, Default: "400"}, {Name: "runs", Unit: "ms", Least: 1, Most: most, Default: "100"}},
			Observed: "the kernel says that it stands still, and that it goes on", Healed: "it goes on",
			Pitfall: "it does everything late, and its clock goes on: its watchdog can miss the end of a lease",
			New: onClient(func(p ClientProcess, s Step) change {
				return throttle(p, millis(s, "stopped"), millis(s, "runs"))
			}),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target, specs[i].Needs = Client, AtClient, []topologies.Capability{topologies.Workers}
		specs[i].Effects = []history.Effect{history.StopsClient}
	}
	return specs
}

// clientClockSpecs are the faults of the wall clock of a zone's machine, as a driver there sees it. A lock that
// counts its leases by a monotonic clock, or has the server count them, withstands them.
func clientClockSpecs() []Spec {
	specs := []Spec{
		{
			Name: "client-clock-back", Summary: "set the wall clock of a zone's driver back, and to the true time at the heal",
			Pitfall: "the monotonic clock goes on as it is; to a driver that is linked statically, or asks the kernel itself, as Go's do, nothing happens",
			New:     onClientClock(-1),
		},
		{
			Name: "client-clock-forward", Summary: "set the wall clock of a zone's driver forward, and to the true time at the heal",
			Pitfall: "as of `client-clock-back`",
			New:     onClientClock(1),
		},
	}
	for i := range specs {
		s := &specs[i]
		s.Family, s.Target, s.Needs = Client, AtZone, []topologies.Capability{topologies.Workers}
		s.Life, s.Effects, s.Params = history.Lasting, []history.Effect{history.ShiftsClock}, []Param{stepParam()}
		s.Observed, s.Healed = "the driver reads the clock that is wrong", "the true time"
		s.Check, s.Candidates = inZone, shiftingClients
	}
	return specs
}

// shiftingClients are the candidates of a fault of a zone's clock: half of them are wrong by 0.5 to 1.5 leases.
func shiftingClients(e Environment) []Candidate {
	c := Candidate{Target: "zone-a|zone-b", Weight: 3}
	if by, lease := stepParam(), e.Lease.Milliseconds(); lease > 0 {
		c.Params = map[string]string{by.Name: fmt.Sprintf("%s|%d-%d", by.Draw, max(lease/2, int64(by.Least)), max(lease*3/2, int64(by.Least)))}
	}
	return []Candidate{c}
}

// inZone refuses a target that is no zone.
func inZone(t topologies.Topology, s Step) error {
	if zones := t.Of(topologies.Zone); !slices.Contains(zones, s.Target) {
		return names.Unknown("zone", s.Target, zones)
	}
	return nil
}

// A ClientClock is the wall clock that the driver of a zone sees.
type ClientClock interface {
	topologies.Clock
	// Reads is how often it was read so far.
	Reads() int64
}

var errUnread = fmt.Errorf("it did not read its wall clock within %v; a program that is linked statically, or asks the kernel itself, as Go's do, sees the true time", patience)

// onClientClock makes a fault of the clock of the zone that a step's target names, which goes in a direction.
func onClientClock(direction time.Duration) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		changed := false
		return change{
			begin: func(ctx context.Context) (string, error) {
				clock := site.ClientClocks[s.Target]
				if clock == nil {
					return "", errors.New("no driver is there whose clock can be changed")
				}
				changed = true
				before := clock.Reads()
				if err := clock.Set(direction*millis(s, "by"), 1); err != nil {
					return "", err
				}
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				err := await.Until(ctx, func() error {
					if clock.Reads() == before {
						return errUnread
					}
					return nil
				})
				if errors.Is(err, context.DeadlineExceeded) {
					err = errUnread
				}
				return "reads a wall clock that is " + aside(direction*millis(s, "by")), err
			},
			end: func(context.Context) (string, error) {
				if !changed {
					return "", nil
				}
				return "is shown the true time again", site.ClientClocks[s.Target].Set(0, 1)
			},
		}.of(s.Fault, "the driver of "+s.Target), nil
	}
}

// onClient makes a fault of the client that a step's target names.
func onClient(of func(ClientProcess, Step) change) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		p := site.Clients[s.Target]
		if p == nil {
			return nil, fmt.Errorf("%s: no client %q is a process of its own", s.Fault, s.Target)
		}
		return of(p, s).of(s.Fault, "client "+s.Target), nil
	}
}

// A ClientProcess is what a fault needs of a client. Each method waits until the
// kernel says that it took effect.
type ClientProcess interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Kill(ctx context.Context) error
}

// throttle stops a client and lets it run, in turns, as a container is treated
// that has used up its share of the processor. The first turn is seen.
func throttle(p ClientProcess, stopped, runs time.Duration) change {
	stop := func() {}
	return change{
		begin: func(ctx context.Context) (string, error) {
			if err := p.Pause(ctx); err != nil {
				return "", err
			}
			if err := p.Resume(ctx); err != nil {
				return "", err
			}
			stop = takeTurns(ctx, func(turns context.Context) func() {
				_ = p.Pause(turns) // it may be gone, which the heal finds
				return func() { _ = p.Resume(turns) }
			}, stopped, runs)
			return fmt.Sprintf("stands still for %v, runs for %v, and so on", stopped, runs), nil
		},
		end: func(ctx context.Context) (string, error) {
			stop()
			return "runs without stops", p.Resume(ctx)
		},
	}
}
