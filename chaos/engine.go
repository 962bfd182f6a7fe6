package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// A playable is something that can be run, and judged afterwards.
type playable struct {
	// run leaves its record in the folder of the setup.
	run func(ctx context.Context, s harness.Config) error
	// unexpected says in what the verdict is not the one that is expected; nil if it is.
	unexpected func(reports.Input) error
	// limit is how long it may take at most.
	limit time.Duration
}

// patience is how long a run may take beyond its length, to start servers, and to
// inject and heal faults.
const patience = 2 * time.Minute

// random is a run of a workload under faults.
func random(r harness.RandomRun) playable {
	r.Workload.Wait = r.Wait()
	return playable{
		run:        r.Run,
		unexpected: mustBeValid,
		limit:      2*r.Length + patience,
	}
}

// mustBeValid says in what a verdict is not valid; nil if it is.
func mustBeValid(in reports.Input) error {
	if in.Report.Verdict == checker.Valid {
		return nil
	}
	return fmt.Errorf("expected %s, got %s", checker.Valid, in.Report.Verdict)
}

// underLock is a scenario, or a variant of one, that a lock plays.
func underLock(name string, l harness.LockSpec, expect checker.Verdict) (scenarios.Scenario, error) {
	var s scenarios.Scenario
	var variant string
	var err error
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		s, err = scenarios.Load(name, nil, false)
	} else {
		s, variant, err = scenarios.Find(name, nil)
	}
	if err != nil {
		return s, err
	}
	if s, err = s.Under(l, variant); err != nil {
		return s, err
	}
	s.Expect, s.Cures = scenarios.Expectation{Verdict: string(expect)}, nil
	return s, nil
}

// scripted is a scenario.
func scripted(s scenarios.Scenario) playable {
	return playable{
		run:        s.Run,
		unexpected: func(in reports.Input) error { return s.Expect.Met(in.Run, in.Report) },
		limit:      patience,
	}
}

// setup is that of a run that leaves its record in a folder.
func setup(dir, command string, seed uint64) harness.Config {
	return harness.Config{
		Dir: dir, Backend: process.Backend{}, BackendName: "process", Seed: seed, Program: "package chaos", Command: command,
	}
}

// play runs it and judges the record. There may be a record in spite of an error.
func (p playable) play(ctx context.Context, s harness.Config) (in reports.Input, err error) {
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, s) }()
	select {
	case err = <-ended:
	case <-time.After(p.limit):
		where := filepath.Join(s.Dir, "goroutines.txt")
		return in, errors.Join(
			fmt.Errorf("the run did not end within %v: a call of the lock does not return, and ignores its context; %s shows all goroutines", p.limit, where),
			history.WriteFile(where, func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 2) }))
	}
	if !history.Dir(s.Dir).Exists() {
		return in, cmp.Or(err, errors.New("nothing was recorded"))
	}
	in, judged := judge.Run(context.WithoutCancel(ctx), s.Dir)
	return in, errors.Join(err, judged)
}
