package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/simulation"
)

const (
	// simulatedSeeds are the seeds of a plan that names none.
	simulatedSeeds = "1-100"
	// shrinkBudget is how many runs it may take to make a failing plan small.
	shrinkBudget = 200
)

// Simulate has clients use a lock on simulated servers in virtual time, in many short
// runs: one for each seed of the plan, which draws what the clients do and what goes
// wrong. It needs no redis-server. The test fails at the first seed whose run shows a
// violation, with the report of the smallest plan of faults that still shows it, and
// says whether that was the same run when it was repeated. It fails, too, if the lock was
// never granted, or was granted without a request to the simulated servers.
//
// The lock must reach the servers by the clients of go-redis that it is given, and must
// not wait for a network with a mutex locked: time stands still in a bubble of package
// testing/synctest while it waits, and the test is ended with the stacks of all goroutines.
//
// Of the plan, Topology is single, sentinel, cluster or independent, or a comma list of them;
// Faults is a comma list of network, process, crash, clock, failover, client, safe, none and
// all, by default safe, which is network and process, and on sentinel and cluster network
// alone; Seeds are by default 1-100. Workload and Length must be empty. While it runs, the
// process has one processor and the random numbers of the seed, so that other tests must not
// run in parallel.
//
// The clients send no request again that a server may have carried out: a lock can't take the
// reply to a second copy for the answer to the first. A failover loses what no replica had,
// whatever the lock does: that a lock shows double-grant with it is a limit of Redis.
//
// No finding proves nothing, and a finding must be confirmed by [Run] on real servers.
func Simulate(t *testing.T, l Lock, p Plan) {
	t.Helper()
	silence()
	l = withLease(l)
	campaigns, list, err := p.campaigns(l)
	if err != nil {
		t.Fatalf("chaos.Simulate: %v", err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, k := range campaigns {
		t.Run("simulated-"+k.Topology, func(t *testing.T) {
			seed, small, err := firstFinding(t, l, k, list)
			switch {
			case err != nil:
				t.Fatalf("chaos.Simulate: %v", err)
			case small != nil:
				reportSimulated(t, l, *small, seed, small.Findings[0])
			}
		})
	}
}

// campaigns are those of a plan, with the seeds of each.
func (p Plan) campaigns(l Lock) ([]simulation.Campaign, []uint64, error) {
	list, err := seedsOf(p, simulatedSeeds)
	errs := []error{err}
	if p.Workload != "" || p.Length != 0 {
		errs = append(errs, errors.New("leave out Workload and Length: each seed draws them"))
	}
	var all []simulation.Campaign
	for _, name := range p.topologies(l) {
		k := simulation.Campaign{Topology: name, Faults: p.Faults}
		all, errs = append(all, k), append(errs, k.Validate(l))
	}
	return all, list, errors.Join(errs...)
}

// firstFinding is what the first seed shows that shows anything, made small; nil if none does.
func firstFinding(t *testing.T, l Lock, k simulation.Campaign, list []uint64) (uint64, *simulation.Result, error) {
	t.Helper()
	granted, denied := 0, ""
	for _, seed := range list {
		r, err := simulation.Do(t.Context(), t, l, simulation.Job{Campaign: k, Seed: seed})
		if err != nil {
			return seed, nil, fmt.Errorf("seed %d: %w", seed, err)
		}
		granted, denied = granted+r.Granted, cmp.Or(denied, r.Denied)
		if len(r.Findings) == 0 {
			continue
		}
		kind := r.Findings[0]
		small, err := simulation.Do(t.Context(), t, l, simulation.Job{Campaign: k, Seed: seed, Case: &r.Case, Shrink: kind, Budget: shrinkBudget, Again: 1, Keep: true})
		switch {
		case err != nil:
			return seed, nil, fmt.Errorf("seed %d: %w", seed, err)
		case !slices.Contains(small.Findings, kind):
			return seed, nil, fmt.Errorf("seed %d shows %s with %d faults, and not again: it depends on what a simulation does not fix", seed, kind, len(r.Case.Plan))
		}
		small.Findings = []string{kind}
		return seed, &small, nil
	}
	if granted == 0 {
		return 0, nil, fmt.Errorf("nothing is known of lock %s: no client was granted it in %d runs (a request ended with: %s)", l.Name, len(list), denied)
	}
	return 0, nil, nil
}

// reportSimulated fails the test with the report of a run.
func reportSimulated(t *testing.T, l Lock, r simulation.Result, seed uint64, kind string) {
	t.Helper()
	same := map[bool]string{true: "yes", false: "no"}[r.Same > 0]
	t.Logf("simulated, seed %d: %s with %d faults; replayed identically: %s", seed, kind, len(r.Case.Plan), same)
	for _, f := range r.Case.Plan {
		t.Logf("  %v", f)
	}
	dir, err := newDir(t, t.Name())
	p := played{dir: dir, failed: err}
	if err == nil {
		command := fmt.Sprintf("go test -run '%s'", pattern(t.Name()))
		if p.failed = r.Case.Write(history.Dir(dir), l, *r.Outcome, "package chaos", command); p.failed == nil {
			p.in, p.failed = judge.Run(t.Context(), dir)
			p.unexpected = mustBeValid(p.in)
		}
	}
	report(t, p)
}
