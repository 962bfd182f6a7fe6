package importers_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
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
		{"1795849365", "1795849365.5"}, {"1795849365000", "1795849365500"}, {"1795849365000000", "1795849365500000"},
		{"1795849365000000000", "1795849365500000000"}, {`"2026-11-28T07:02:45Z"`, `"2026-11-28T08:02:45.500+01:00"`},
		{`"2026-11-28 07:02:45+00"`, `"2026-11-28 07:02:45.5+00"`}, {`"2026-11-28 07:02:45"`, `"2026-11-28 07:02:45.5"`}, {`"1795849365000"`, `"1795849365500.0"`},
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

// No log of a lock that never grants twice is invalid, whatever its clients leave out of it, however coarse its stamps are, and
// wherever the log of a host breaks off; and of none with two holds at once, all of it logged, is the verdict valid. What is
// invalid stays so with more lines: those of one more client, or what one client does not log here.
func TestLog_Random(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := drawLog(r)
		judge := func(csv string) checker.Report {
			h, stamps, err := importers.Log(strings.NewReader(csv))
			require.NoError(t, err, "seed %d\n%s", seed, csv)
			return checker.CheckWithin(t.Context(), h, l.off+stamps.Unit, checker.OfLogs()...)
		}
		report := judge(l.csv)
		if l.wrong {
			require.NotEqual(t, checker.Valid, report.Verdict, "seed %d, off %v\n%s", seed, l.off, l.csv)
		} else {
			require.NotEqual(t, checker.Invalid, report.Verdict, "seed %d, off %v\n%s%+v", seed, l.off, l.csv, report.Results)
		}
		lines := strings.SplitAfter(l.csv, "\n")
		left := strings.Split(lines[1+r.IntN(len(lines)-2)], ",")[2] + []string{",held,", ",released,", ","}[r.IntN(3)]
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, left) })
		if less := strings.Join(lines, ""); len(lines) > 2 && judge(less).Verdict == checker.Invalid {
			require.Equal(t, checker.Invalid, report.Verdict, "seed %d, off %v\n%swithout %s", seed, l.off, l.csv, left)
		}
	}
}

// A drawnLog is what the clients of a lock have logged.
type drawnLog struct {
	csv   string
	off   time.Duration
	wrong bool // it was held twice for longer than stamps can hide
}

type drawnLine struct {
	at     time.Duration // by the right time
	stamp  time.Time
	client int
	text   string
}

type drawnClient struct {
	host                                      string
	logsRequest, logsLease, releasing, relsed bool
	free                                      time.Duration // from when on it may ask
}

func drawLog(r *rand.Rand) drawnLog {
	chance := func(one int) bool { return r.IntN(one) == 0 }
	unit := []time.Duration{1, time.Microsecond, time.Millisecond, time.Second}[r.IntN(4)]
	scale := min([]time.Duration{unit, 10 * unit, 100 * unit}[r.IntN(3)]+time.Microsecond, 2*time.Second) // no wait is as long as 10 s
	span := func() time.Duration { return 1 + time.Duration(r.Int64N(int64(scale))) }
	wrong := chance(4)
	lease := time.Duration(0)
	if !wrong && !chance(3) {
		lease = time.Duration(1+r.IntN(40)) * scale / 8
		if lease < time.Microsecond || chance(2) {
			lease = lease.Round(time.Millisecond) + time.Millisecond
		}
	}
	hosts := 1 + r.IntN(3)
	off, offsets, cuts := time.Duration(0), make([]time.Duration, hosts), make([]time.Duration, hosts)
	if hosts > 1 {
		off = time.Duration(r.Int64N(int64(2*scale))) + 1
		for i := range offsets {
			offsets[i] = time.Duration(r.Int64N(int64(2*off))) - off
		}
	}
	clients := make([]drawnClient, 1+hosts+r.IntN(3))
	for i := range clients {
		c := &clients[i]
		*c = drawnClient{host: fmt.Sprint("h", i%hosts), logsRequest: !chance(4), releasing: !chance(4), relsed: !chance(4)}
		c.logsLease = c.logsRequest && lease > 0
		if wrong {
			c.logsRequest, c.releasing = true, true
		}
	}
	var lines []drawnLine
	base := time.Unix(1795849365, r.Int64N(int64(time.Second)))
	log := func(i int, at time.Duration, event, rest string) {
		lines = append(lines, drawnLine{at: at, stamp: base.Add(at + offsets[i%hosts]).Truncate(unit), client: i, text: event + "," + rest})
	}
	ms := func(i int) string {
		if !clients[i].logsLease {
			return ","
		}
		return strconv.FormatFloat(float64(lease)/1e6, 'f', -1, 64) + ","
	}
	type hold struct {
		from, until time.Duration
		host        int
	}
	var held []hold
	now, token := 10*scale, 0 // the lock is free
	for range 3 + r.IntN(10) {
		i := r.IntN(len(clients))
		c := &clients[i]
		asked := max(c.free, now-span())
		if wrong && chance(4) {
			now -= span()
		}
		effect := max(asked, now) + span()
		if chance(3) {
			effect = max(asked, now) + 1
		}
		got := effect + span()/4 + 1
		if lease > 0 && c.logsRequest && chance(8) { // it never hears of the grant
			log(i, asked, "request", ms(i))
			log(i, got, "unknown", ",")
			c.free, now = got+1, effect
			if chance(2) {
				now += lease
			}
			token++
			continue
		}
		if c.logsRequest {
			log(i, asked, "request", ms(i))
		}
		token++
		log(i, got, "granted", ","+fmt.Sprint(token))
		at, over := got, effect+lease
		sure := got
		lost := false
		for lease > 0 && chance(3) && !lost {
			send := at + span()/2 + 1
			does := send + span()/4 + 1
			if !c.logsLease && does >= over {
				break
			}
			at = does + span()/4 + 1
			log(i, send, "extending", map[bool]string{true: ",", false: ms(i)}[chance(4) && does < over && send+lease > at+8*scale])
			if does < over {
				over = does + lease
				log(i, at, "extended", ",")
			} else {
				log(i, at, "refused", ",")
				if lost = true; chance(2) {
					log(i, at+1, "lost", ",")
					at++
				}
			}
		}
		send := at + span() + 1
		if chance(4) {
			send = at + 1
		}
		does := send + span()/4 + 1
		told := does + span()/4 + 1
		gone := lease > 0 && (lost || does >= over)
		if gone && !lost && (!c.logsLease || strings.HasSuffix(lines[len(lines)-2].text, "extending,,")) || lease > 0 && chance(6) { // it crashes
			c.free, now = at+1, over
			if chance(2) && at+1 < over {
				log(i, at+1, "held", ",")
				c.free++
			}
			continue
		}
		if chance(4) && send-1 > at && !gone {
			log(i, send-1, "held", ",")
		}
		if c.releasing {
			log(i, send, "releasing", ",")
			sure = send
		}
		switch {
		case c.releasing && lease > 0 && chance(6):
			log(i, told, "unknown", ",")
		case c.releasing && gone && chance(2):
			log(i, told, "refused", ",")
		case c.relsed:
			log(i, told, "released", ",")
		}
		c.free = told + 1
		if now = does; gone {
			now = over
		}
		if wrong {
			held = append(held, hold{got, sure, i % hosts})
		}
	}
	l := drawnLog{off: off}
	for i, a := range held {
		for _, b := range held[:i] {
			l.wrong = l.wrong || min(a.until, b.until)-max(a.from, b.from) > 2*unit
		}
	}
	for i := range cuts {
		cuts[i] = 1 << 60
		if !wrong && chance(3) {
			cuts[i] = now - span()*time.Duration(r.IntN(10))
		}
	}
	if wrong && !l.wrong {
		return drawLog(r)
	}
	slices.SortStableFunc(lines, func(a, b drawnLine) int { return int(a.at - b.at) })
	if chance(2) {
		slices.SortStableFunc(lines, func(a, b drawnLine) int { return a.client - b.client })
	}
	l.csv = "time,host,client,event,lease_ms,token\n"
	for _, line := range lines {
		if c := clients[line.client]; line.at < cuts[line.client%hosts] {
			l.csv += fmt.Sprintf("%s,%s,c%d,%s\n", line.stamp.UTC().Format(time.RFC3339Nano), c.host, line.client, line.text)
		}
	}
	if strings.Count(l.csv, "\n") == 1 {
		return drawLog(r)
	}
	return l
}
