package reports_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// Any history and any verdict make a report.
func ExampleWriteText() {
	h, err := history.ReadAll(strings.NewReader(`
{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a","lease":3000000000}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a","expires":3000000000}
{"time":2000000000,"process":2,"type":"invoke","op":"acquire","lock":"k","owner":"b","lease":3000000000}
{"time":2900000000,"process":2,"type":"ok","op":"acquire","lock":"k","owner":"b","expires":5000000000}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	results := reports.Summarize(reports.Input{
		Run:     history.Run{Seed: 7},
		History: h,
		Report: checker.Report{Verdict: checker.Invalid, Results: []checker.Result{{
			Name: "mutual-exclusion", Verdict: checker.Invalid, Summary: "k was granted twice",
			Violations: []checker.Violation{{
				Kind: checker.DoubleGrant, Lock: "k", Events: []int64{1, 3},
				From: 2900 * time.Millisecond, Until: 3000 * time.Millisecond,
			}},
		}}},
	})
	if err := reports.WriteText(os.Stdout, results, reports.TextOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ✗ INVALID  Two clients held the lock k at the same time
	//   seed 7
	//   0.001 s    client a was granted k (lease 3,000 ms, entitled until 3.000 s)
	//   ✗ 2.900 s  client b was granted k (lease 3,000 ms, entitled until 5.000 s)
	//   faults     No fault was injected.
	//   ✗ violated 1 double grant, at 2.900 s
	//   weigh      What happened is certain, and the run had no fault: look for a defect of the lock, or
	//              of its driver.
	//   look at    whether to find the lock free and to acquire it is one step on the server, whether the
	//              key lives as long as the lease, whether a release and an extension compare the owner in
	//              the step that changes the key, whether a grant counts from before its request, and
	//              whether no connection takes an error or a late reply for one
	//   seed       7
}
