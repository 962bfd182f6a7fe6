package importers_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/importers"
)

func ExampleJepsen() {
	h, err := importers.Jepsen(strings.NewReader(`
		{:process 0, :type :invoke, :f :acquire, :value nil, :time 1000000}
		{:process 0, :type :ok,     :f :acquire, :value nil, :time 2000000}
		{:process 1, :type :invoke, :f :acquire, :value nil, :time 3000000}
		{:process 1, :type :ok,     :f :acquire, :value nil, :time 4000000}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	report := checker.Check(context.Background(), h, checker.MutualExclusion())
	fmt.Println(report.Verdict, report.Results[0].Violations[0].Kind)
	// Output: invalid double-grant
}
