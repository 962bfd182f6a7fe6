package harness_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A stubbornDeployment says that it could not be stopped.
type stubbornDeployment struct{ topologies.Deployment }

func (d stubbornDeployment) Close() error {
	return errors.Join(d.Deployment.Close(), errors.New("redis-1 goes on"), errors.New("so does redis-2"))
}

// What the harness could not do is in the record, for whoever judges it again.
func TestARunWhoseCleanUpFailsIsNotValid(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	setup.Backend = wrapped(func(d topologies.Deployment) topologies.Deployment { return stubbornDeployment{d} })
	r := harness.RandomRun{
		Topology: "single", Lock: runtest.Lock("mutex"), Faults: faults.MixNone, Length: 500 * time.Millisecond,
		Workload: workload.Config{Locks: 1, Wait: 500 * time.Millisecond},
	}
	require.ErrorContains(t, r.Run(t.Context(), setup), "redis-1 goes on")
	run, h, report := runtest.Judged(t, setup.Dir)
	require.Equal(t, "redis-1 goes on; so does redis-2", run.Failed)
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Equal(t, "the harness failed: redis-1 goes on; so does redis-2", report.Results[len(report.Results)-1].Summary)
	// With some properties too, and for no other reason.
	report = harness.Judge(t.Context(), run, h, "mutual-exclusion")
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Len(t, report.Results, 2)
	require.Equal(t, checker.Valid, verdictOf(t, report, "mutual-exclusion"))
	run.Failed = ""
	require.Equal(t, checker.Valid, harness.Judge(t.Context(), run, h).Verdict)
	require.Equal(t, checker.Valid, harness.Judge(t.Context(), run, h, "mutual-exclusion").Verdict)
}

// verdictOf is what a report says of a property.
func verdictOf(t *testing.T, report checker.Report, property string) checker.Verdict {
	t.Helper()
	for _, r := range report.Results {
		if r.Name == property {
			return r.Verdict
		}
	}
	t.Fatalf("%s was not judged: %+v", property, report)
	return ""
}
