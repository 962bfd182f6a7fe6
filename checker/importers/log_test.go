package importers_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/importers"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// tries are those of a client that is refused a lock that is free.
var tries = func() string {
	var all []string
	for at := 2; at < 60; at++ {
		all = append(all, fmt.Sprintf("%d b request|%d.9 b refused", at, at))
	}
	return strings.Join(all, "|")
}()

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
		{"a host whose last lines have not arrived", "-2 a granted|-1 a releasing|0 a request 9000|0.1 a granted|1.2 b request|1.3 b granted|1.4 b releasing", 15 * time.Millisecond, checker.Valid},
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
		{"work after the lease", "0 .a request 1000|0.1 .a granted|1.5 .a held|2 .b granted|3 .b releasing", 0, checker.Invalid},
		{"work by the stamps at the end of the lease", "0 .a request 1000|0 .a granted|1 .a held|1.9 .b request|2 .b granted|3 .b releasing", 0, checker.Valid},
		{"work after an extension that was not answered", "0 .a request 1000|0.1 .a granted|0.9 .a extending 1000|1.5 .a held|3 .b granted|4 .b releasing", 0, checker.Valid},
		{"work after it was lost", "0 .a request 1000|0.1 .a granted|0.2 .a lost|0.3 .a held|2 .b granted|3 .b releasing", 0, checker.Invalid},
		{"work after the release", "0 .a granted|1 .a releasing|1.1 .a released|1.2 .a held|2 .b granted|3 .b releasing", 0, checker.Invalid},
		{"a release after the lease, in another's hold", "0 a request 1000|0.1 a granted|1.4 b request|1.5 b granted|2 a releasing|2.1 a released|3 b releasing", 15 * time.Millisecond, checker.Invalid},
		{"a second release, in another's hold", "0 a granted|1 a releasing|1.1 a released|1.5 b granted|2 a releasing|2.1 a released|3 b releasing", 15 * time.Millisecond, checker.Invalid},
		{"a second release of a free lock", "0 a granted|1 a releasing|1.1 a released|1.2 a releasing|1.3 a released|1.5 b granted|3 b releasing", 15 * time.Millisecond, checker.Valid},
		{"a second release long after the first", "0 .a granted|1 .a releasing|1.1 .a released|2 .b request|2.1 .b granted|3 .b releasing|50 .b request|50.1 .b granted|51 .b releasing|60 .a releasing|60.1 .a released", 0, checker.Valid},
		{"work that begins long after another's", "0 .a request|0.1 .a granted|1 .a releasing|1.1 .a released|2 .b granted|3 .b releasing|60 .c held|61 .c releasing", 0, checker.Valid},
		{"a stranger's release", "1.5 b granted|2 a releasing|2.1 a released|3 b releasing|4 c granted|5 c releasing", 15 * time.Millisecond, checker.Invalid},
		{"the log begins with a release", "1 a releasing|1.1 a released|1.5 b granted|2 b releasing|3 c granted|4 c releasing", 15 * time.Millisecond, checker.Valid},
		{"the log begins with work", "1 a held|1.1 a extended|1.2 a releasing|1.5 b granted|2 b releasing", 15 * time.Millisecond, checker.Valid},
		{"a client tries what it holds", "0 a granted|1 a request|1.1 a refused|2 a held|3 a releasing|4 b granted|5 b releasing", 15 * time.Millisecond, checker.Valid},
		{"a grant that was not logged", "0 a request|1 a held|2 a releasing|3 b granted|4 b releasing", 15 * time.Millisecond, checker.Valid},
		{"free for 59 s, to several clocks", "0 a request|0.1 a granted|1 a releasing|1.1 a released|" + tries + "|61 b request|61.1 b granted", 15 * time.Millisecond, checker.Invalid},
		{"free for 10 s by the stamps alone", "0 a request|0.1 a granted|1 a releasing|1.1 a released|2 b request|12 b granted", 15 * time.Millisecond, checker.Unknown},
		{"a long log", "0 a request|0.1 a granted|60 a releasing|60.1 a released|60.2 b request|60.3 b granted|120 b releasing", 15 * time.Millisecond, checker.Valid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log, err := importers.ReadLog(strings.NewReader(logOf(tt.lines)))
			require.NoError(t, err)
			report := checker.CheckWithin(t.Context(), log.History, tt.off, checker.OfLogs()...)
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
		first + at + "a,request,\n1795849365500,a,granted,\n": `line 3: time is "1795849365500", and "1795849365" in line 2: give one form of stamps in a log`,
		first + at + "a,taken,":                               `line 2: event is "taken": give one of held, extending`,
		first + at + ",granted,":                              `line 2: client is "": give a name`,
		first + "noon,a,held,":                                `line 2: time is "noon": give RFC 3339`,
		first + "1250,a,held,":                                `line 2: time is "1250": give RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits`,
		first + "1795849365.5e3,a,granted,":                   `line 2: time is "1795849365.5e3"`,
		first + "+179584936,a,granted,":                       `line 2: time is "+179584936"`,
		first + "9223372036854775807.9,a,granted,":            `line 2: time is "9223372036854775807.9"`,
		first + at + "a,granted,30":                           "line 2: lease_ms is given with granted, and a lease counts from the request",
		first + at + "a,granted":                              "record on line 2: wrong number of fields",
		first + at + "a,request,soon":                         `line 2: lease_ms is "soon": give milliseconds`,
		first + at + "a,request,NaN":                          `line 2: lease_ms is "NaN": give milliseconds`,
		"time,client,event,time\n1,a,held,1":                  `line 2: there are two columns "time"`,
		first + "2076-11-28T07:02:45Z,a,request,\n1990-01-01T00:00:00Z,b,request,":   "line 2: its time is decades after that of line 3",
		first + "0001-01-01T00:00:00Z,b,request,":                                    `line 2: time is "0001-01-01T00:00:00Z"`,
		"time,client,event,ttl_s\n" + at + "a,request,30\n":                          `line 1 has a column "ttl_s", which is not read: give lease_ms, milliseconds`,
		"time,client,event,mode\n" + at + "a,request,shared\n":                       `line 2: mode is "shared": give one of exclusive, read, write`,
		"time,client,event,host\n" + at + "a,request,x\n" + at + "a,granted,\n":      "line 3 has no host, and line 2 has one: give it in all lines or in none",
		"time,client,event,capacity\n" + at + "a,request,2\n" + at + "b,request,3\n": "line 3: capacity is 3, and was 2",
		"time,client,event,mode,permits\n" + at + "a,request,read,2\n":               `line 2: "lock" has permits and modes`,
		"SQLite format 3\x00": "it is no text",
		`{"time":1795849365,"client":"a","event":"granted"}` + "\n[7]":       "object 2: json: cannot unmarshal array",
		`{"z":1,"client":"a","y":2,"event":"granted","x":3}`:                 `object 1 has no column "time": give RFC 3339, such as 2026-11-28T07:02:45.123Z, or Unix time: 10 digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds; the columns are client, event, x, y, z`,
		`{"time":1795849365,"client":"a","event":"granted"} x`:               "object 2: invalid character",
		`{"time":1795849365,"client":"a","event":"granted", "Time":1}`:       `object 1: there are two columns "time"`,
		`[{"time":1795849365,"client":"a","event":"granted","token":"ten"}]`: `object 1: token is "ten": give a whole number`,
	} {
		_, err := importers.ReadLog(strings.NewReader(log))
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
		{`"2026-11-28T07:02:45Z"`, `"2026-11-28T08:02:45.5+0100"`},
		{`"2026-11-28 07:02:45"`, `"2026-11-28 07:02:45.5"`},
		{`"1795849365000"`, `"1795849365500.0"`},
	} {
		log, err := importers.ReadLog(strings.NewReader(fmt.Sprintf(
			`[{"time":%s,"client":"a","event":"granted","token":7},{"time":%s,"client":"a","event":"releasing"}]`, forms[0], forms[1])))
		require.NoError(t, err, forms)
		h := log.History
		require.Len(t, h.Events, 3)
		require.Equal(t, 500*time.Millisecond, h.Events[2].Time-h.Events[1].Time, forms)
		require.EqualValues(t, 7, h.Events[1].Token)
		require.Equal(t, time.Unix(1795849365, 0), log.Zero.Local().Add(h.Events[1].Time), forms)
	}
}

// A CSV file without a last newline may have been cut off in its last token, 12, which is no smaller one then.
func TestLog_CutOff(t *testing.T) {
	t.Parallel()
	const log = "time,client,event,token\n1795849365,a,request,\n1795849366,a,granted,7\n1795849367,a,releasing,\n1795849368,b,request,\n1795849369,b,granted,1"
	for rest, want := range map[string]checker.Verdict{"": checker.Valid, "\n": checker.Invalid, "2\n": checker.Valid} {
		read, err := importers.ReadLog(strings.NewReader(log + rest))
		require.NoError(t, err)
		report := checker.Check(t.Context(), read.History, checker.FencingOrder())
		require.Equal(t, want, report.Verdict, "%q: %+v", rest, report.Results)
	}
}

// What is not read, and what contradicts the lines before it, is named.
func TestLog_Notes(t *testing.T) {
	t.Parallel()
	const first, at = "time,client,event,epoch,token\n", "1795849365"
	for lines, want := range map[string]string{
		at + ",a,granted,x,7\n":                           "columns not used: epoch",
		at + ",a,granted,x,7\n" + at + ",a,granted,x,7\n": "1 line: each is there before, and counts once",
		at + ",a,granted,x,\n" + at + "1,a,rel":           "the last line was cut off, and is not read",
		at + ".1,a,granted,,\n" + at + ".2,a,releasing,,\n" + at + ".3,a,released,,\n" + at + ".4,a,released,,\n": "line 5: released of a: it does not hold the lock, which line 4 ended",
	} {
		log, err := importers.ReadLog(strings.NewReader(first + lines))
		require.NoError(t, err)
		require.Contains(t, strings.Join(log.Notes, "\n"), want)
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
		read, err := importers.ReadLog(strings.NewReader(log))
		require.NoError(t, err, log)
		h := read.History
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
			read, err := importers.ReadLog(strings.NewReader(log))
			require.NoError(t, err)
			requireHistory(t, read.History, log)
			return checker.CheckWithin(t.Context(), read.History, off+read.Unit, checker.OfLogs()...).Verdict
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

// requireHistory asserts that a history is one that can be read.
func requireHistory(t *testing.T, h *history.History, log string) {
	t.Helper()
	var b bytes.Buffer
	for i := range h.Events {
		require.NoError(t, json.NewEncoder(&b).Encode(h.Events[i]))
	}
	_, err := history.ReadAll(&b)
	require.NoError(t, err, log)
}

// Correct logs of all shapes convict no lock, and a lock that granted twice, or a client that works after its lease, is found
// in each. More logs: LOCKCHAOS_LOGS=20000 LOCKCHAOS_LOGS_SEED=2.
func TestLog_RandomShapes(t *testing.T) {
	t.Parallel()
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return otherwise
		}
		return n
	}
	verdicts := map[checker.Verdict]int{}
	first := number("LOCKCHAOS_LOGS_SEED", 1) * 1_000_000
	for seed := first; seed < first+number("LOCKCHAOS_LOGS", 600); seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			for planted, want := range []checker.Verdict{"", checker.Invalid, checker.Invalid} {
				g := randomLog(rand.New(rand.NewPCG(uint64(seed), 3)), planted) //nolint:gosec // from 0 on
				text := "time,host,client,lock,event,lease_ms,token,mode,permits,capacity\n" + strings.Join(g.lines, "\n") + "\n"
				log, err := importers.ReadLog(strings.NewReader(text))
				require.NoError(t, err, text)
				requireHistory(t, log.History, text)
				report := checker.CheckWithin(t.Context(), log.History, g.off+log.Unit, checker.OfLogs()...)
				if planted > 0 {
					require.Equal(t, want, report.Verdict, "planted %d, off %v\n%s\n%+v", planted, g.off, text, report.Results)
				} else {
					require.NotEqual(t, checker.Invalid, report.Verdict, "off %v\n%s\n%+v", g.off, text, report.Results)
					verdicts[report.Verdict]++
				}
			}
		})
	}
	t.Log(verdicts)
	require.NotZero(t, verdicts[checker.Valid])
}

// A logMaker makes the log of a lock that worked, with some of its lines left out, twice, or in another order.
type logMaker struct {
	*rand.Rand

	off, unit time.Duration
	offsets   []time.Duration // of the clocks
	lease     time.Duration
	token     int
	without   map[string]bool
	rows      []logLine
	lines     []string
}

type logLine struct {
	at   time.Duration
	text string
}

func (g *logMaker) upTo(d time.Duration) time.Duration { return 1 + time.Duration(g.Int64N(int64(d))) }

func (g *logMaker) put(at time.Duration, client int, event string, token int, mode string) {
	lease := ""
	if g.lease > 0 && (event == "request" || event == "extending") {
		lease = strconv.FormatInt(g.lease.Milliseconds(), 10)
	}
	host := client % len(g.offsets)
	stamp := time.Unix(1795849365, 0).Add(at + g.offsets[host]).Truncate(g.unit).UTC().Format(time.RFC3339Nano)
	text := fmt.Sprintf("%s,h%d,w%d,k,%s,%s,", stamp, host, client, event, lease)
	if token > 0 && !g.without["token"] {
		text += strconv.Itoa(token)
	}
	if mode == "" {
		mode = ",,"
	}
	if g.rows = append(g.rows, logLine{at, text + "," + mode}); g.without[event] {
		g.rows = g.rows[:len(g.rows)-1]
	}
}

// hold is one of a client, that was free from some time on; it returns when the lock is free again.
func (g *logMaker) hold(client int, asked, from time.Duration, mode string) (granted, until time.Duration) {
	granted = max(asked, from) + g.upTo(5*time.Millisecond)
	g.token++
	token := g.token
	g.put(asked, client, "request", 0, mode)
	g.put(granted, client, "granted", token, mode)
	ends, over, at := asked+g.lease, granted+g.lease, granted
	if g.lease == 0 {
		ends, over = history.Never, history.Never
	}
	for range g.IntN(4) {
		next := at + g.upTo(200*time.Millisecond)
		if next+2*time.Millisecond >= ends {
			break
		}
		switch at = next; g.IntN(4) {
		case 0:
			at += g.upTo(time.Millisecond)
			g.put(next, client, "extending", 0, mode)
			g.put(at, client, "extended", 0, mode)
			if g.lease > 0 {
				ends, over = next+g.lease, at+g.lease
			}
		case 1:
			if mode == "" && !g.without["token"] && !g.without["inner"] { // a grant within
				g.put(at, client, "request", 0, mode)
				g.put(at+1, client, "granted", token, mode)
				g.put(at+2, client, "releasing", 0, mode)
				g.put(at+3, client, "released", 0, mode)
				at += 4
			}
		default:
			g.put(at, client, "held", 0, mode)
		}
	}
	sent := at + g.upTo(100*time.Millisecond)
	late := sent >= ends
	switch {
	case g.lease > 0 && g.IntN(5) == 0: // it crashed
		return granted, over
	case late || g.lease > 0 && g.IntN(5) == 0 && !g.without["request"]: // it slept
		sent = max(sent, over) + g.upTo(time.Second)
		if g.IntN(2) == 0 {
			g.put(max(at+1, ends), client, "lost", 0, mode)
		}
		g.put(sent, client, "releasing", 0, mode)
		g.put(sent+g.upTo(time.Millisecond), client, "refused", 0, mode)
		return granted, over
	default:
		done := sent + g.upTo(2*time.Millisecond)
		g.put(sent, client, "releasing", 0, mode)
		g.put(done, client, "released", 0, mode)
		return granted, sent + time.Duration(g.Int64N(int64(done-sent)))
	}
}

func randomLog(r *rand.Rand, planted int) *logMaker {
	g := &logMaker{Rand: r, without: map[string]bool{}, token: r.IntN(50)}
	g.unit = []time.Duration{1, time.Microsecond, time.Millisecond}[r.IntN(3)]
	g.off = time.Duration(r.Int64N(int64(30 * time.Millisecond)))
	for range 1 + r.IntN(3) {
		g.offsets = append(g.offsets, time.Duration(r.Int64N(int64(2*g.off+1)))-g.off)
	}
	g.lease = []time.Duration{0, time.Second, 5 * time.Second}[r.IntN(3)]
	for _, name := range []string{"request", "refused", "releasing", "released", "held", "lost", "token", "inner"} {
		g.without[name] = planted == 0 && r.IntN(4) == 0
	}
	g.without["inner"] = g.without["inner"] || g.unit > time.Microsecond || g.without["released"] != g.without["releasing"]
	kind, last := r.IntN(3), time.Second
	if planted > 0 {
		kind = 0
	}
	busy := make([]time.Duration, 8)
	for range 2 + r.IntN(8) {
		until, n, mode := last, 1, []string{"", "write,,", ",1,2"}[kind]
		switch {
		case kind == 1 && r.IntN(2) == 0:
			n, mode = 2, "read,,"
		case kind == 2:
			n = 1 + r.IntN(2)
		}
		clients, from := r.Perm(len(busy)), last // tokens are in the order of grants
		for _, c := range clients[:n] {
			asked := max(busy[c]+2*time.Second+5*g.unit, last-g.upTo(300*time.Millisecond))
			granted, end := g.hold(c, asked, from, mode)
			from, until, busy[c] = granted, max(until, end), end
		}
		if c := clients[n]; kind == 0 && busy[c]+3*time.Second < last && until > last+10*time.Millisecond { // it is refused
			busy[c] = last + 9*time.Millisecond
			g.put(last+6*time.Millisecond, c, "request", 0, mode)
			g.put(busy[c], c, "refused", 0, mode)
		}
		last = until + []time.Duration{0, g.upTo(50 * time.Millisecond), g.upTo(3 * time.Second), 15 * time.Second}[r.IntN(4)]
	}
	if last += 20 * time.Second; planted > 0 {
		g.lease = 10 * time.Second
		long := 5*(g.off+g.unit) + time.Second
		g.put(last, 10, "request", 0, "")
		g.put(last+1, 10, "granted", g.token+1, "")
		if planted == 1 { // the lock grants it twice
			g.put(last+1, 11, "request", 0, "")
			g.put(last+2, 11, "granted", g.token+2, "")
			g.put(last+long, 11, "releasing", 0, "")
		}
		g.put(last+long, 10, "releasing", 0, "")
		if planted == 2 { // it works after its lease
			g.rows = g.rows[:len(g.rows)-1]
			g.put(last+g.lease+long, 10, "held", 0, "")
		}
	}
	g.spoil(planted)
	return g
}

// spoil loses lines, and puts them in another order.
func (g *logMaker) spoil(planted int) {
	slices.SortStableFunc(g.rows, func(a, b logLine) int { return cmp.Compare(a.at, b.at) })
	for _, row := range g.rows {
		g.lines = append(g.lines, row.text)
	}
	switch n := len(g.lines); {
	case planted > 0:
	case g.IntN(3) == 0 && g.without["inner"]: // of a lock with leases, some must be left
		if cut := g.lines[g.IntN(n/2):]; g.lease == 0 || g.without["request"] || strings.Contains(strings.Join(cut, ""), "request") {
			g.lines = cut
		}
	case g.IntN(3) == 0:
		at := g.IntN(n)
		if !strings.Contains(g.lines[at], ",request,") && (!g.without["request"] && g.without["inner"] || !strings.Contains(g.lines[at], "granted")) {
			g.lines = slices.Delete(g.lines, at, at+1)
		}
	case g.IntN(3) == 0:
		at := g.IntN(n)
		g.lines = slices.Insert(g.lines, g.IntN(n), g.lines[at])
	case g.IntN(3) == 0:
		g.Shuffle(n, func(i, j int) { g.lines[i], g.lines[j] = g.lines[j], g.lines[i] })
	}
}
