package importers_test

import (
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
)

// No log of a lock that never grants twice is invalid, whatever its clients leave out of it, however coarse its stamps are, and
// wherever the log of a host breaks off; and of none with two holds at once, all of it logged, is the verdict valid.
func TestLog_Random(t *testing.T) {
	t.Parallel()
	n, first := uint64(1000), uint64(0)
	if text := os.Getenv("LOCKCHAOS_LOGS"); text != "" { // more, and others
		var err error
		n, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		first = n
	}
	verdicts := map[string]int{}
	for i := range n {
		seed := first + i
		l := drawLog(rand.New(rand.NewPCG(seed, 1)))
		h, err := importers.Log(strings.NewReader(l.csv))
		require.NoError(t, err, "seed %d\n%s", seed, l.csv)
		report := checker.CheckWithin(t.Context(), h, l.off, checker.OfLogs()...)
		report.Results = slices.DeleteFunc(report.Results, func(r checker.Result) bool { return r.Verdict == checker.Valid })
		verdicts[fmt.Sprint(l.wrong, report.Verdict)]++
		if l.wrong {
			require.NotEqual(t, checker.Valid, report.Verdict, "seed %d, off %v\n%s", seed, l.off, l.csv)
		} else {
			require.NotEqual(t, checker.Invalid, report.Verdict, "seed %d, off %v\n%s%+v", seed, l.off, l.csv, report.Results)
		}
	}
	t.Log(verdicts)
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
		off += unit
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
