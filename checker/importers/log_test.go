package importers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/importers"
)

// What logs prove. Times are Unix seconds from 1795849365 on.
func TestLog_Verdicts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		lines string
		off   time.Duration
		want  checker.Verdict
	}{
		{"correct, 200 ms apart", "0 a granted|1 a releasing|1.2 b granted|2 b releasing", 15 * time.Millisecond, checker.Valid},
		{"requests before the other's release tell no less", "0 a request|0.1 a granted|0.995 b request|1 a releasing|1.2 b granted|2 b releasing", 15 * time.Millisecond, checker.Valid},
		{"20 ms apart", "0 a granted|1 a releasing|1.02 b granted|2 b releasing", 15 * time.Millisecond, checker.Unknown},
		{"granted twice for 40 ms", "0 a granted|1 a releasing|0.96 b granted|2 b releasing", 15 * time.Millisecond, checker.Invalid},
		{"granted twice for 20 ms", "0 a granted|1 a releasing|0.98 b granted|2 b releasing", 15 * time.Millisecond, checker.Unknown},
		{"one clock", "0 a granted|1 a releasing|0.98 b granted|2 b releasing", 0, checker.Invalid},
		{"the release was not logged before it was sent", "0 a granted|1 a released|0.96 b granted|2 b released", 15 * time.Millisecond, checker.Valid},
		{"but work was", "0 a granted|0.99 a held|1 a released|0.9 b granted|2 b released", 15 * time.Millisecond, checker.Invalid},
		{"a client that crashed and came back", "0 a granted|5 b granted|6 b releasing|7 a request|7.1 a granted", 15 * time.Millisecond, checker.Valid},
		{"a lease that was over", "0 a request 1000|0.1 a granted|1.2 b request 1000|1.3 b granted|1.4 b releasing|2 a releasing|2.1 a released", 15 * time.Millisecond, checker.Valid},
		{"an extension", "0 a request 1000|0.1 a granted|0.9 a extending 1000|0.91 a extended|1.2 b request 1000|1.3 b granted|1.4 b releasing|1.6 a held", 15 * time.Millisecond, checker.Invalid},
		{"an extension that does not say for how long", "0 a request 1000|0.1 a granted|0.9 a extending|0.91 a extended|2.3 b granted|2.4 b releasing|9 a request", 15 * time.Millisecond, checker.Valid},
		{"a host whose last lines have not arrived", "-2 a granted|-1 a releasing|0 a request 9000|0.1 a granted|1.3 b granted|1.4 b releasing", 15 * time.Millisecond, checker.Valid},
		{"a crash", "-2 a granted|-1 a releasing|0 a request 9000|0.1 a granted|1.3 b granted|1.4 b releasing|2 a.other request", 15 * time.Millisecond, checker.Invalid},
		{"a release that was not answered", "0 a request|0.1 a granted|1 a releasing|2 a request|2.1 a granted|3 a releasing|4 b granted", 15 * time.Millisecond, checker.Valid},
		{"a refusal of what was not logged", "0 a granted|1 a releasing|2 b granted|3 b releasing|4 a refused", 15 * time.Millisecond, checker.Valid},
		{"told twice", "0 a request 1000|0.1 a granted|1.5 a extending 1000|1.6 a refused|1.6 a lost|2 b granted|3 b releasing", 15 * time.Millisecond, checker.Valid},
		{"a hold at one stamp", "0 .b request|1 .a request|1 .a granted|1 .a releasing|1 .a released|1 .b granted|2 .b releasing", 0, checker.Valid},
		{"the next hold at the stamp of a release, which comes later in the file", "0 .a request|1 .b request|0.5 .a granted|1 .b granted|1 .b releasing|1 .a held|1 .a releasing", 0, checker.Valid},
		{"the lease is over at the stamp of the next grant", "0 .c refused|0 .a request 1000|0.1 .a granted|0.2 .b request|1 .b granted|2 .b releasing|3 .c refused", 0, checker.Valid},
		{"a late answer, of a grant that is long over", "0 .b granted|1 .b releasing|1 .a granted|0 .c refused", 0, checker.Valid},
		{"the log begins in a hold", "0 .a request|20 .a granted|21 .a releasing|22 .b request|22.1 .b granted", 0, checker.Unknown},
		{"free for long after a release", "0 .a request|0.1 .a granted|1 .a releasing|1.1 .a released|2 .b request|20 .b granted", 0, checker.Invalid},
		{"an answer that never came", "0 a request 1000|1 a unknown|1.5 b request 1000|1.6 b granted|1.7 b releasing|3 a request 1000|3.1 a granted", 15 * time.Millisecond, checker.Valid},
		{"one client alone", "0 a granted|1 a releasing", 15 * time.Millisecond, checker.Unknown},
		{"a long log", "0 a request|0.1 a granted|60 a releasing|60.1 a released|60.2 b request|60.3 b granted|120 b releasing", 15 * time.Millisecond, checker.Valid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, err := importers.Log(strings.NewReader(logOf(tt.lines)))
			require.NoError(t, err)
			report := checker.CheckWithin(t.Context(), h, tt.off, checker.OfLogs()...)
			require.Equal(t, tt.want, report.Verdict, "%+v", report.Results)
		})
	}
}

// logOf is the CSV of lines "seconds client event lease_ms"; the name of a client begins with its host, up to a dot.
func logOf(lines string) string {
	csv := "time,host,client,event,lease_ms\n"
	for line := range strings.SplitSeq(lines, "|") {
		f := append(strings.Fields(line), "")
		at, err := time.ParseDuration(f[0] + "s")
		if err != nil {
			panic(err)
		}
		csv += time.Unix(1795849365, 0).Add(at).UTC().Format(time.RFC3339Nano) + "," + strings.Split(f[1], ".")[0] + "," + f[1] + "," + f[2] + "," + f[3] + "\n"
	}
	return csv
}

func TestLog_Refuses(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		"":                                  "the log is empty",
		"time,event\n":                      `line 1: there is no column "client"`,
		"time,client,event\n1,a,taken\n":    `line 2: event is "taken": give one of request, granted`,
		"time,client,event\n1,,granted\n":   "line 2: it names no client",
		"time,client,event\nnoon,a,held\n":  `line 2: time is "noon": give RFC 3339`,
		"time,client,event\n5,a,released\n": `line 2: a has released "lock", which it was not granted`,
		// Leases, requests and JSON.
		"time,client,event,lease_ms\n5,a,granted,30\n":                              "line 2: a lease counts from the request",
		"time,client,event,lease_ms\n5,a,request,soon\n":                            `line 2: lease_ms is "soon": give milliseconds`,
		"time,client,event\n1,a,request\n2,a,releasing\n":                           "line 3: a begins another request (releasing) before the answer to its last one (acquire)",
		"time,client,event,time\n":                                                  `line 1: there are two columns "time"`,
		"time,client,event,lease_ms\n5,a,request,NaN\n":                             `line 2: lease_ms is "NaN": give milliseconds`,
		"time,client,event\n1795849365,a,request\n0001-01-01T00:00:00Z,b,request\n": "line 2: its time is decades after that of line 3",
		`{"time":1,"client":"a","event":"granted"}` + "\n[7]":                       "object 2 is no JSON object",
		`[{"time":1,"client":"a","event":"granted","token":"ten"}]`:                 `line 1: token is "ten"`,
	} {
		_, err := importers.Log(strings.NewReader(log))
		require.ErrorContains(t, err, want, log)
	}
}

// Wall clocks of several forms are one instant, and JSON is what CSV is.
func TestLog_Times(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"1795849365.5", "1795849365500", "1795849365500000", "1795849365500000000", `"2026-11-28T07:02:45.5Z"`, `"2026-11-28T08:02:45.500+01:00"`,
		`"2026-11-28 07:02:45.5+00"`, `"2026-11-28 07:02:45.5"`, `"1795849365500.0"`,
	} {
		h, err := importers.Log(strings.NewReader(`[{"time":1795849365,"client":"a","event":"granted","token":7},{"time":` + at + `,"client":"a","event":"releasing"}]`))
		require.NoError(t, err, at)
		require.Len(t, h.Events, 3)
		require.Equal(t, 500*time.Millisecond, h.Events[2].Time-h.Events[1].Time, at)
		require.EqualValues(t, 7, h.Events[1].Token)
	}
}

// Spreadsheets begin a file with a byte order mark, and programs write names in capital letters.
func TestLog_Names(t *testing.T) {
	t.Parallel()
	for _, log := range []string{
		"\ufefftime,Host,client,EVENT\r\n1,one,a,granted\r\n2,two,a,granted\r\n",
		`[{"Time":1,"Host":"one","Client":"a","Event":"granted"},{"Time":2,"Host":"two","Client":"a","Event":"granted"}]`,
		`[{"time":1,"host":"one/two","client":"a","event":"granted"},{"time":2,"host":"one","client":"two/a","event":"granted"}]`,
	} {
		h, err := importers.Log(strings.NewReader(log))
		require.NoError(t, err, log)
		require.NotEqual(t, h.Events[0].Clock, h.Events[len(h.Events)-1].Clock, log)
		require.NotEqual(t, h.Events[0].Owner, h.Events[len(h.Events)-1].Owner, log)
	}
}
