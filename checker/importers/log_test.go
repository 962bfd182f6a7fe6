package importers_test

import (
	"cmp"
	"errors"
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

// judge judges a log, whose history must be one that can be read.
func judge(t *testing.T, log string, off time.Duration) checker.Report {
	t.Helper()
	read, err := importers.ReadLog(strings.NewReader(log))
	require.NoError(t, err, log)
	again := history.History{Events: slices.Clone(read.History.Events)}
	require.NoError(t, again.Accept(), log)
	return checker.CheckWithin(t.Context(), read.History, off, checker.OfLogs(read.Unit, read.Refusals)...)
}

func TestLog_Verdicts(t *testing.T) {
	t.Parallel()
	cases, err := os.ReadFile("testdata/verdicts.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(cases)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		title, lines, _ := strings.Cut(strings.TrimSpace(line), ": ")
		of := strings.SplitN(title, " ", 3)
		off, err := time.ParseDuration(of[1])
		require.NoError(t, err)
		log := "time,host,client,event,lease_ms\n"
		for line := range strings.SplitSeq(lines, "|") {
			f := append(strings.Fields(line), "")
			at, err := time.ParseDuration(f[0] + "s")
			require.NoError(t, err)
			for event := range strings.SplitSeq(strings.ReplaceAll(f[2], "acquired", "request granted"), " ") {
				log += time.Unix(1795849365, 1e6).Add(at).UTC().Format(time.RFC3339Nano) + "," + strings.Split(f[1], ".")[0] + "," + f[1] + "," + event + "," + f[3] + "\n"
			}
		}
		report := judge(t, log, off)
		require.Equal(t, checker.Verdict(of[0]), report.Verdict, "%s\n%s%+v", title, log, report.Results)
	}
}

// What can't be read is refused by what its error says, and what is not read, or contradicts the lines before it, is named.
func TestRefuses(t *testing.T) {
	t.Parallel()
	cases, err := os.ReadFile("testdata/refused.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(cases)) {
		of, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of == "#" {
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		require.NoError(t, err, line)
		text, err := strconv.Unquote(quoted)
		require.NoError(t, err, line)
		if of == "jepsen" {
			_, err = importers.Jepsen(strings.NewReader(text))
		} else if log, refused := importers.ReadLog(strings.NewReader(text)); refused == nil {
			err = errors.New(strings.Join(log.Notes, "\n"))
		} else {
			err = refused
		}
		require.ErrorContains(t, err, strings.TrimSpace(rest[len(quoted):]), line)
	}
	_, err = importers.Jepsen(strings.NewReader(strings.Repeat("[", 2000)))
	require.ErrorContains(t, err, "line 1: values lie more than 1000 deep")
}

// Wall clocks of several forms are one instant; JSON is what CSV is; names of clients differ as clients do.
func TestLog_Forms(t *testing.T) {
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
		log, err := importers.ReadLog(strings.NewReader(fmt.Sprintf(`[{"time":%s,"client":"a","event":"request"},{"time":%s,"client":"a","event":"granted","token":7}]`, forms[0], forms[1])))
		require.NoError(t, err, forms)
		h := log.History
		require.Len(t, h.Events, 3)
		require.Equal(t, 500*time.Millisecond, h.Events[2].Time+1-log.Unit-h.Events[1].Time, forms)
		require.EqualValues(t, 7, h.Events[2].Token)
		require.Equal(t, time.Unix(1795849365, 0), log.Zero.Local().Add(h.Events[1].Time), forms)
	}
	for _, log := range []string{
		"\ufefftime,Host,client,EVENT\r\n1795849365,one,a,request\r\n1795849366,two,a,request\r\n",
		"time,host,client,event\n1795849365,a/b,c,request\n1795849366,a%2Fb,c,request\n",
		`[{"Time":1795849365,"Host":"one/two","client":"a","event":"request"},{"time":1795849366,"host":"one","client":"two/a","event":"request"}]`,
	} {
		read, err := importers.ReadLog(strings.NewReader(log))
		require.NoError(t, err, log)
		first, last := read.History.Events[1], read.History.Events[len(read.History.Events)-1]
		require.NotEqual(t, first.Clock, last.Clock, log)
		require.NotEqual(t, first.Owner, last.Owner, log)
	}
}

// No log of a possible history is invalid, whatever its clients leave out of it, however coarse its stamps are, and how wrong its
// clocks; and with fewer lines nothing is that was not with all.
func TestLog_Random(t *testing.T) {
	t.Parallel()
	const seed = 5
	g, r := oracle.NewGenerator(seed), rand.New(rand.NewPCG(seed, 1))
	possible := 0
	for n := range 4000 {
		h := g.Next()
		lines, off := logLines(r, h)
		k := oracle.Judge(h).Locks[0]
		if lines == nil || len(k.Doubts) > 0 { // to a log, each request is of an owner of its own
			continue
		}
		const names = "time,host,client,event,lease_ms\n"
		all := judge(t, names+strings.Join(lines, ""), off)
		if k.Possible {
			possible++
			require.NotEqual(t, checker.Invalid, all.Verdict, "history %d, off %v\n%s\n%+v", n, off, lines, all.Results)
		}
		left := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			return strings.Contains(line, []string{",a,", ",b,", ",released,", ",releasing,", ",extended,"}[n%5])
		})
		if all.Verdict != checker.Invalid && len(left) > 0 {
			less := judge(t, names+strings.Join(left, ""), off)
			require.NotEqual(t, checker.Invalid, less.Verdict, "history %d, off %v\n%s\n%+v", n, off, left, less.Results)
		}
	}
	require.Greater(t, possible, 200)
}

// logLines are what the clients of a mutex log, each by the clock of its host; none where a log can't tell what a client knew.
func logLines(r *rand.Rand, h *history.History) (lines []string, off time.Duration) {
	unit := []time.Duration{time.Nanosecond, time.Microsecond, time.Millisecond, time.Second}[r.IntN(4)]
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
			return nil, 0
		case e.Op == history.Declare:
			continue
		case busy[e.LockOwner()] && e.Type == history.Invoke: // it does two things at a time
			return nil, 0
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
	return lines, off
}

// Correct logs of all shapes convict no lock, and a lock that granted twice, or a client that works after its lease, is found
// in each. More logs: LOCKCHAOS_LOGS=20000 LOCKCHAOS_LOGS_SEED=2.
func TestLog_RandomShapes(t *testing.T) {
	t.Parallel()
	verdicts := map[string]int{}
	logs, _ := strconv.Atoi(os.Getenv("LOCKCHAOS_LOGS"))
	first, _ := strconv.ParseUint(os.Getenv("LOCKCHAOS_LOGS_SEED"), 10, 64)
	for seed := range cmp.Or(logs, 600) {
		seed := cmp.Or(first, 1)*1_000_000 + uint64(seed) //nolint:gosec // from 0 on
		for planted := range 3 {
			g := randomLog(rand.New(rand.NewPCG(seed, 3)), planted)
			text := "time,host,client,lock,event,lease_ms,token,mode\n" + strings.Join(g.lines, "\n") + "\n"
			report := judge(t, text, g.off)
			verdicts[fmt.Sprint(g.unit, " planted ", planted, " ", report.Verdict)]++
			if (report.Verdict == checker.Invalid) != (planted > 0) {
				t.Errorf("seed %d, planted %d, off %v\n%s\n%+v", seed, planted, g.off, text, report.Results)
			}
		}
	}
	t.Log(verdicts)
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
	case late || g.lease > 0 && g.IntN(5) == 0: // it slept
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
	g.unit = []time.Duration{1, time.Microsecond, time.Millisecond, time.Second}[r.IntN(4)]
	g.off = time.Duration(r.Int64N(int64(30 * time.Millisecond)))
	for range 1 + r.IntN(3) {
		g.offsets = append(g.offsets, time.Duration(r.Int64N(int64(2*g.off+1)))-g.off)
	}
	g.lease = []time.Duration{0, time.Second, 5 * time.Second}[r.IntN(3)]
	for _, name := range []string{"request", "refused", "releasing", "released", "held", "lost", "token", "inner"} {
		g.without[name] = planted == 0 && r.IntN(4) == 0
	}
	g.without["inner"] = g.without["inner"] || g.unit == time.Second // whose lines must be in order
	shared, last := planted == 0 && r.IntN(3) == 0, time.Second
	busy := make([]time.Duration, 8)
	for range 2 + r.IntN(8) {
		until, n, mode := last, 1, ""
		if shared {
			n = 1 + r.IntN(2)
			mode = []string{"write", "read"}[n-1]
		}
		clients, from := r.Perm(len(busy)), last // tokens are in the order of grants
		for _, c := range clients[:n] {
			asked := max(busy[c]+2*time.Second+5*g.unit, last-g.upTo(300*time.Millisecond))
			granted, end := g.hold(c, asked, from, mode)
			from, until, busy[c] = granted, max(until, end), end
		}
		if c := clients[n]; !shared && busy[c]+3*time.Second < last && until > last+10*time.Millisecond { // it is refused
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
	case g.IntN(3) == 0 && g.without["inner"]: // else the log may begin in a hold, and seem to end at the end of an inner one
		g.lines = g.lines[g.IntN(n/2):]
	case g.IntN(3) == 0 && g.without["inner"]:
		at := g.IntN(n)
		if !g.without["request"] || !strings.Contains(g.lines[at], "granted") { // else two holds look like one
			g.lines = slices.Delete(g.lines, at, at+1)
		}
	case g.IntN(3) == 0:
		at := g.IntN(n)
		g.lines = slices.Insert(g.lines, g.IntN(n), g.lines[at])
	case g.IntN(3) == 0:
		g.Shuffle(n, func(i, j int) { g.lines[i], g.lines[j] = g.lines[j], g.lines[i] })
	}
}
