package importers_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/importers"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
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
		{"the release was not logged before it was sent", "0 a granted|1 a released|0.96 b granted|2 b released", 15 * time.Millisecond, checker.Unknown},
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
			h, _, err := importers.Log(strings.NewReader(logOf(tt.lines)))
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
	const first, at = "time,client,event,lease_ms\n", "1795849365,"
	for log, want := range map[string]string{
		"":                           "the log is empty",
		first:                        "the log is empty",
		"time,event\n" + at + "held": `line 2 has no column "client": give a name; the columns are time, event`,
		first + at + "a,request,\n1795849365500,a,granted,":                        `line 3: time is "1795849365500", and "1795849365" in line 2: give one form of stamps in a log`,
		`[{"time":1795849365,"client":"a","event":"granted"}`:                      "the array does not end",
		first + at + "a,taken,":                                                    `line 2: event is "taken": give one of request, granted`,
		first + at + ",granted,":                                                   `line 2: client is "": give a name`,
		first + "noon,a,held,":                                                     `line 2: time is "noon": give RFC 3339`,
		first + "1250,a,held,":                                                     `line 2: time is "1250": give RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits`,
		first + "1795849365.5e3,a,granted,":                                        `line 2: time is "1795849365.5e3"`,
		first + "+179584936,a,granted,":                                            `line 2: time is "+179584936"`,
		first + "9223372036854775807.9,a,granted,":                                 `line 2: time is "9223372036854775807.9"`,
		first + at + "a,released,":                                                 `line 2: event is "released", and a does not hold "lock": log granted before`,
		first + at + "a,granted,\n" + at + "a,released,\n" + at + "a,held,":        `line 4: event is "held", and a does not hold "lock"`,
		first + at + "a,granted,30":                                                "line 2: lease_ms is given with granted, and a lease counts from the request",
		first + at + "a,granted":                                                   "record on line 2: wrong number of fields",
		first + at + "a,request,soon":                                              `line 2: lease_ms is "soon": give milliseconds`,
		first + at + "a,request,NaN":                                               `line 2: lease_ms is "NaN": give milliseconds`,
		first + at + "a,granted,\n" + at + "a,extended,":                           `line 3: event is "extended", and a waits for an answer to nothing: this event comes after extending`,
		first + at + "a,granted,\n" + at + "a,unknown,":                            `line 3: event is "unknown", and a waits for an answer to nothing`,
		first + at + "a,request,\n" + at + "a,releasing,":                          `line 3: event is "releasing", and a waits for an answer to request: this event comes after nothing, extending, releasing`,
		"time,client,event,time\n1,a,held,1":                                       `line 2: there are two columns "time"`,
		first + "2026-11-28T07:02:45Z,a,request,\n0001-01-01T00:00:00Z,b,request,": "line 2: its time is decades after that of line 3",
		`{"time":1795849365,"client":"a","event":"granted"}` + "\n[7]":             "object 2: json: cannot unmarshal array",
		`{"z":1,"client":"a","y":2,"event":"granted","x":3}`:                       `object 1 has no column "time": give RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds; the columns are client, event, x, y, z`,
		`{"time":1795849365,"client":"a","event":"granted"} x`:                     "object 2: invalid character",
		`{"time":1795849365,"client":"a","event":"granted", "Time":1}`:             `object 1: there are two columns "time"`,
		`[{"time":1795849365,"client":"a","event":"granted","token":"ten"}]`:       `object 1: token is "ten": give a whole number`,
	} {
		_, _, err := importers.Log(strings.NewReader(log))
		require.ErrorContains(t, err, want, log)
	}
}

// Wall clocks of several forms are one instant, and JSON is what CSV is.
func TestLog_Times(t *testing.T) {
	t.Parallel()
	for _, forms := range [][2]string{
		{"1795849365", "1795849365.5"},
		{"1795849365000", "1795849365500"},
		{"1795849365000000", "1795849365500000"},
		{"1795849365000000000", "1795849365500000000"},
		{`"2026-11-28T07:02:45Z"`, `"2026-11-28T08:02:45.500+01:00"`},
		{`"2026-11-28 07:02:45+00"`, `"2026-11-28 07:02:45.5+00"`},
		{`"2026-11-28 07:02:45"`, `"2026-11-28 07:02:45.5"`},
		{`"1795849365000"`, `"1795849365500.0"`},
	} {
		h, stamps, err := importers.Log(strings.NewReader(fmt.Sprintf(
			`[{"time":%s,"client":"a","event":"granted","token":7},{"time":%s,"client":"a","event":"releasing"}]`, forms[0], forms[1])))
		require.NoError(t, err, forms)
		require.Len(t, h.Events, 3)
		require.Equal(t, 500*time.Millisecond, h.Events[2].Time-h.Events[1].Time, forms)
		require.EqualValues(t, 7, h.Events[1].Token)
		require.Equal(t, time.Unix(1795849365, 0), stamps.Zero.Local().Add(h.Events[1].Time), forms)
	}
}

// A CSV file without a last newline may have been cut off in its last token, 12, which is no smaller one then.
func TestLog_CutOff(t *testing.T) {
	t.Parallel()
	const log = "time,client,event,token\n1795849365,a,request,\n1795849366,a,granted,7\n1795849367,a,releasing,\n1795849368,b,request,\n1795849369,b,granted,1"
	for rest, want := range map[string]checker.Verdict{"": checker.Valid, "\n": checker.Invalid, "2\n": checker.Valid} {
		h, _, err := importers.Log(strings.NewReader(log + rest))
		require.NoError(t, err)
		report := checker.Check(t.Context(), h, checker.FencingOrder())
		require.Equal(t, want, report.Verdict, "%q: %+v", rest, report.Results)
	}
}

// Spreadsheets begin a file with a byte order mark, and programs write names in capital letters.
func TestLog_Names(t *testing.T) {
	t.Parallel()
	for _, log := range []string{
		"\ufefftime,Host,client,EVENT\r\n1795849365,one,a,granted\r\n1795849366,two,a,granted\r\n",
		`[{"Time":1795849365,"Host":"one","Client":"a","Event":"granted"},{"Time":1795849366,"Host":"two","Client":"a","Event":"granted"}]`,
		"time,host,client,event\n1795849365,a/b,c,granted\n1795849366,a%2Fb,c,granted\n",
		`[{"time":1795849365,"host":"one/two","client":"a","event":"granted"},{"time":1795849366,"host":"one","client":"two/a","event":"granted"}]`,
	} {
		h, _, err := importers.Log(strings.NewReader(log))
		require.NoError(t, err, log)
		require.NotEqual(t, h.Events[0].Clock, h.Events[len(h.Events)-1].Clock, log)
		require.NotEqual(t, h.Events[0].Owner, h.Events[len(h.Events)-1].Owner, log)
	}
}

// No log of a possible history is invalid, whatever its clients leave out of it, however coarse its stamps are, and how wrong its
// clocks; and of none with two holds at once, all of it logged, is the verdict valid. What is invalid stays so with more lines.
func TestLog_Random(t *testing.T) {
	t.Parallel()
	const seed = 5
	g, r := oracle.NewGenerator(seed), rand.New(rand.NewPCG(seed, 1))
	possible, twice := 0, 0
	for n := range 6000 {
		h := g.Next()
		lines, unit, off := logLines(r, h)
		if lines == nil {
			continue
		}
		judge := func(lines []string) checker.Verdict {
			log := "time,host,client,event,lease_ms\n" + strings.Join(lines, "")
			h, stamps, err := importers.Log(strings.NewReader(log))
			if err != nil {
				return "" // of what clients did as several processes
			}
			return checker.CheckWithin(t.Context(), h, off+stamps.Unit, checker.OfLogs()...).Verdict
		}
		all := judge(lines)
		less := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			return strings.Contains(line, []string{",a,", ",b,", ",released,", ",releasing,", ",extended,"}[n%5])
		})
		switch k := oracle.Judge(h).Locks[0]; {
		case all == "" || len(k.Doubts) > 0: // to a log, each request is of an owner of its own
			continue
		case k.Possible:
			possible++
			require.NotEqual(t, checker.Invalid, all, "history %d, off %v\n%s", n, off, lines)
		case twiceGranted(t, h) > 2*unit:
			twice++
			require.NotEqual(t, checker.Valid, all, "history %d, off %v\n%s", n, off, lines)
		}
		if all != checker.Invalid && len(less) > 0 {
			require.NotEqual(t, checker.Invalid, judge(less), "history %d, off %v\n%s", n, off, lines)
		}
	}
	t.Log(possible, twice)
	require.Greater(t, possible, 300)
	require.Greater(t, twice, 5)
}

// logLines are what the clients of a mutex log, each by the clock of its host; none where a log can't tell what a client knew.
func logLines(r *rand.Rand, h *history.History) (lines []string, unit, off time.Duration) {
	unit = []time.Duration{time.Nanosecond, time.Microsecond, time.Millisecond}[r.IntN(3)]
	off = time.Duration(r.Int64N(int64(30 * time.Millisecond)))
	offsets := []time.Duration{off, -off, time.Duration(r.Int64N(int64(2*off+1))) - off}
	open, busy, base := map[int]history.Event{}, map[string]bool{}, time.Unix(1795849365, r.Int64N(int64(time.Second)))
	for i := range h.Events {
		e := &h.Events[i]
		asked := open[e.Process]
		open[e.Process] = *e
		if e.Op == history.Access || e.Op == history.Crash {
			continue
		}
		named := map[history.Op][2]string{history.Acquire: {"request", "granted"}, history.Extend: {"extending", "extended"}, history.Release: {"releasing", "released"}}
		event := map[history.Type]string{history.Invoke: named[e.Op][0], history.OK: cmp.Or(named[e.Op][1], "lost"), history.Fail: "refused", history.Info: "unknown"}[e.Type]
		switch {
		case e.Lock != "k" || e.Reentrant || e.Drift > 0 || e.Kind != "" && e.Kind != history.KindMutex, e.Expires > 0 && e.Expires != asked.Time+asked.Lease:
			return nil, 0, 0
		case e.Op == history.Declare:
			continue
		case busy[e.LockOwner()] && e.Type == history.Invoke: // it does two things at a time
			return nil, 0, 0
		}
		owner, lease := e.LockOwner(), ""
		busy[owner] = e.Type == history.Invoke
		if e.Type == history.Invoke && e.Lease > 0 {
			lease = fmt.Sprint(e.Lease.Milliseconds())
		}
		host := int(owner[len(owner)-1]) % len(offsets)
		at := base.Add(e.Time + offsets[host]).Truncate(unit).UTC().Format(time.RFC3339Nano)
		lines = append(lines, fmt.Sprintf("%s,h%d,%s,%s,%s\n", at, host, owner, event, lease))
	}
	return lines, unit, off
}

// twiceGranted is for how long two grants that were answered, and released by what their owners did next, held the lock at once.
func twiceGranted(t *testing.T, h *history.History) (longest time.Duration) {
	t.Helper()
	for _, v := range checker.Check(t.Context(), h, checker.MutualExclusion()).Results[0].Violations {
		released := 0
		for _, i := range v.Events[:2] {
			e := &h.Events[i]
			next := slices.IndexFunc(h.Events[i+1:], func(n history.Event) bool { return n.LockOwner() == e.LockOwner() && n.Op.OfHolder() })
			if e.Op == history.Acquire && e.Type == history.OK && next >= 0 && h.Events[int(i)+1+next].Op == history.Release {
				released++
			}
		}
		if v.Kind == checker.DoubleGrant && released == 2 {
			longest = max(longest, v.Until-v.From)
		}
	}
	return longest
}
