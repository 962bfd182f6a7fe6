package checker_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

func ExampleCheckReader() {
	const lines = `{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a","lease":3000000000}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a"}
{"time":2000000000,"process":2,"type":"invoke","op":"acquire","lock":"k","owner":"b","lease":3000000000}
{"time":2900000000,"process":2,"type":"ok","op":"acquire","lock":"k","owner":"b"}
`
	report, err := checker.CheckReader(context.Background(), history.NewReader(strings.NewReader(lines)), checker.MutualExclusion())
	if err != nil {
		fmt.Println(err)
		return
	}
	v := report.Results[0].Violations[0]
	fmt.Println(report.Verdict, v.Kind, v.Events, v.Until-v.From)
	// Output: invalid double-grant [1 3] 0s
}
