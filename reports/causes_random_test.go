package reports_test

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// A randomFault is a fault that may be in effect while clients go on, by its effects as
// they are told in docs/faults.md and not by what the reports take them for.
type randomFault struct {
	name, target string
	// server, zone and link are what it touches: no other party is concerned.
	server, zone string
	links        [][2]string
	effect       string // of "replaces", "isolates", "clock", "forgets", "restarts", "client", "link"
}

func randomFaults() []randomFault {
	return []randomFault{
		{name: "split-brain", target: "{redis-1 sentinel-1 zone-a}", effect: "isolates"},
		{name: "failover", effect: "replaces"},
		{name: "crash-failover", target: "redis-1", effect: "replaces"},
		{name: "clock-forward", target: "redis-1", server: "redis-1", effect: "clock"},
		{name: "clock-forward", target: "redis-3", server: "redis-3", effect: "clock"},
		{name: "flush", target: "redis-2", server: "redis-2", effect: "forgets"},
		{name: "restart", target: "redis-3", server: "redis-3", effect: "restarts"},
		{name: "pause", target: "zone-a", zone: "zone-a", effect: "client"},
		{name: "latency", target: "zone-b>redis-2", links: [][2]string{{"zone-b", "redis-2"}}, effect: "link"},
		{name: "cut", target: "redis-3>redis-1", links: [][2]string{{"redis-3", "redis-1"}}, effect: "link"},
		{name: "stall", target: "zone-a>redis-1", links: [][2]string{{"zone-a", "redis-1"}}, effect: "link"},
	}
}

// randomRun is a history of clients that are granted locks by servers at random, under
// faults that overlap each other at random: right and wrong alike.
func randomRun(seed uint64) reports.Input {
	rng := rand.New(rand.NewPCG(seed, 18))
	s := &script{}
	for i := range 3 {
		s.declare(fmt.Sprintf("lock-%d", i+1))
	}
	pick := rng.Perm(len(randomFaults()))[:rng.IntN(5)]
	for _, i := range pick {
		f := randomFaults()[i]
		at := 200 + 3000*rng.Float64()
		s.fault(history.Inject, f.name, f.target, at, at+5+50*rng.Float64(), history.OK, "seen", "")
		if rng.IntN(5) == 0 {
			s.at(3999, history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Observe, Node: history.ObserveClients, What: history.ObserveMet, Fault: f.name, Target: f.target, Value: "0"})
		}
		if f.effect == "replaces" || f.effect == "isolates" {
			s.observe(at+40, "redis-2", history.ObserveRole, "master")
			if rng.IntN(2) == 0 {
				s.observe(at+300+300*rng.Float64(), "redis-1", history.ObserveRole, "replica")
			}
		}
		if rng.IntN(4) > 0 {
			s.fault(history.Heal, f.name, f.target, at+300, at+300+500*rng.Float64(), history.OK, "", "")
		}
	}
	version := map[string]int{}
	for i := range 4 + rng.IntN(24) {
		lock := fmt.Sprintf("lock-%d", 1+rng.IntN(3))
		p, owner := 100+i, fmt.Sprintf("zone-%c.%d#%d", 'a'+rune(rng.IntN(2)), 1+rng.IntN(4), i)
		server := []string{"redis-1", "redis-1", "redis-2", "redis-3", ""}[rng.IntN(5)]
		from := 100 + 3400*rng.Float64()
		to := from + 1 + 30*rng.Float64()
		s.acquire(p, lock, owner, server, from, to, 100+400*rng.Float64())
		at := to + 60*rng.Float64()
		for range rng.IntN(3) {
			resource := lock + "-stock"
			value := fmt.Sprintf("%d>%d", version[resource], version[resource]+1)
			if rng.IntN(4) > 0 {
				version[resource]++
			}
			s.access(p, lock, owner, resource, value, at, at+1)
			at += 2 + 200*rng.Float64()
		}
		switch rng.IntN(5) {
		case 0:
		case 1:
			s.attempt(p, history.Release, lock, owner, at, at+1, history.Fail, "lock: not held")
		case 2:
			s.attempt(p, history.Release, lock, owner, at, at+1, history.Info, "timeout")
		default:
			s.release(p, lock, owner, server, at, at+1)
		}
	}
	s.observe(4000, "redis-1", history.ObserveEpoch, "1")
	r := run()
	r.Command = "lockchaos run --topology sentinel --seed 42"
	return judged(r, s.history())
}

// Whatever histories have, alone or at once: every violation is in exactly one cause, the
// numbers agree everywhere, no cause names a fault that touched no server and no client
// of what it explains, its story tells that fault, and no cure is offered against what
// was not there.
func TestCausesOfRandomHistories_NoRace(t *testing.T) {
	several := 0
	for seed := range uint64(120) {
		in := randomRun(seed)
		r := reports.Summarize(in)
		page := htmlOf(t, in)
		if len(r.Causes) > 1 {
			several++
		}
		causesAddUp(t, seed, &r)
		for i := range r.Causes {
			causeFits(t, seed, in, page, &r, &r.Causes[i])
		}
		if seed%8 == 0 {
			allReportsAgree(t, seed, page, &r)
		}
	}
	require.Greater(t, several, 40, "histories with several causes")
}

// causesAddUp compares the causes with the findings of the checkers.
func causesAddUp(t *testing.T, seed uint64, r *reports.Results) {
	t.Helper()
	found := map[string]map[string]bool{} // by kind: place and time
	proofs := map[string]bool{}
	each := func(do func(v *checker.Violation)) {
		for i := range r.Properties {
			for j := range r.Properties[i].Violations {
				do(&r.Properties[i].Violations[j])
			}
		}
	}
	key := func(v *checker.Violation) string { return fmt.Sprint(v.Lock, " ", v.From, " ", v.Until) }
	each(func(v *checker.Violation) {
		if v.Kind != checker.NotLinearizable {
			proofs[fmt.Sprint(v.Events)], proofs[key(v)] = true, true
		}
	})
	all := map[string]bool{}
	each(func(v *checker.Violation) {
		if v.Kind == checker.NotLinearizable && (proofs[fmt.Sprint(v.Events)] || proofs[key(v)]) {
			return // another engine's finding in the same
		}
		if found[v.Kind] == nil {
			found[v.Kind] = map[string]bool{}
		}
		found[v.Kind][key(v)], all[key(v)] = true, true
	})
	told := map[string]int{}
	total := 0
	for _, c := range r.Causes {
		for kind, n := range c.Violations {
			require.Positive(t, n)
			told[kind] += n
			total += n
		}
		require.LessOrEqual(t, c.From, c.Until, "seed %d", seed)
		require.True(t, strings.HasPrefix(strings.Replace(c.Impact, "at least ", "", 1), titleCounts(c.Title)), "seed %d: %s\n%s", seed, c.Title, c.Impact)
	}
	require.Equal(t, len(all), total, "seed %d: %v, told %v", seed, found, told)
	for kind, n := range told {
		require.LessOrEqual(t, n, len(found[kind]), "seed %d: %s", seed, kind)
	}
}

// titleCounts is what a title counts.
func titleCounts(title string) string {
	_, counts, _ := strings.Cut(title, " s: ")
	return counts
}

// causeFits compares a cause with what its fault can have touched.
func causeFits(t *testing.T, seed uint64, in reports.Input, page string, r *reports.Results, c *reports.Cause) {
	t.Helper()
	where := fmt.Sprintf("seed %d: %s", seed, c.Title)
	var inEffect []randomFault // from the first event of the story to the violation
	begin, end := c.Story.Events[0].At, c.Until
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.OK && (f.Met == nil || *f.Met > 0) && f.Start <= end {
			at := slices.IndexFunc(randomFaults(), func(k randomFault) bool { return k.name == f.Name && k.target == f.Target })
			inEffect = append(inEffect, randomFaults()[at])
		}
	}
	require.LessOrEqual(t, begin, end, where)
	for _, cure := range c.Story.Cures {
		need := map[string][]string{
			"acknowledged":          {"replaces", "isolates", "link"},
			"min-replicas-to-write": {"isolates"},
			"slew":                  {"clock"},
			"append-only":           {"restarts"},
			"noeviction":            {"forgets"},
		}
		for word, effects := range need {
			if !strings.Contains(cure, word) {
				continue
			}
			require.NotEmpty(t, c.Fault, "%s: %s", where, cure)
			require.True(t, slices.ContainsFunc(inEffect, func(f randomFault) bool { return slices.Contains(effects, f.effect) }), "%s: %s", where, cure)
		}
	}
	if c.Fault == "" {
		require.NotContains(t, c.Title, "split-brain", where)
		return
	}
	at := slices.IndexFunc(r.Faults, func(f reports.Fault) bool { return f.Name == c.Fault && f.Target == c.Target })
	require.GreaterOrEqual(t, at, 0, where)
	f := &r.Faults[at]
	require.True(t, f.OK && (f.Met == nil || *f.Met > 0), "%s: no request met it", where)
	require.LessOrEqual(t, f.Start, c.Until, where)
	require.True(t, slices.ContainsFunc(c.Story.Events, func(m reports.StoryEvent) bool {
		return m.Kind == reports.EventFault && m.At >= f.Start && m.At <= f.InEffect
	}), "%s: the story does not tell it:\n%s", where, c.Story.String())
	known := inEffect[slices.IndexFunc(inEffect, func(k randomFault) bool { return k.name == c.Fault && k.target == c.Target })]

	// Every violation of the cause has a client and a server that it touched, as far as
	// they are known.
	for _, row := range rowsOf(page) {
		if row.cause != causeNumber(r, c) {
			continue
		}
		if known.zone != "" && !row.follows {
			require.Contains(t, row.clients, known.zone, where)
		}
		if row.blind || row.follows {
			continue
		}
		if known.server != "" {
			masters := mastersAt(in.History, c.Until)
			require.True(t, strings.Contains(row.servers, known.server) || masters[known.server], "%s: %+v", where, row)
		}
		for _, l := range known.links {
			if strings.HasPrefix(l[0], "zone") {
				require.Contains(t, row.clients, l[0], where)
			}
			require.True(t, strings.Contains(row.servers, l[1]) || strings.Contains(row.servers, l[0]) || mastersAt(in.History, c.Until)[l[1]], "%s: %+v", where, row)
		}
	}
}

// mastersAt are the servers that were masters at some time until an instant.
func mastersAt(h *history.History, until interface{ Nanoseconds() int64 }) map[string]bool {
	masters := map[string]bool{"redis-1": true}
	for _, e := range h.Events {
		if e.What == history.ObserveRole && e.Value == "master" && e.Time.Nanoseconds() <= until.Nanoseconds() {
			masters[e.Node] = true
		}
	}
	return masters
}

func causeNumber(r *reports.Results, c *reports.Cause) int {
	return 1 + slices.IndexFunc(r.Causes, func(other reports.Cause) bool { return other.Title == c.Title })
}

// A tableRow is a violation in the table of the page.
type tableRow struct {
	clients, servers string
	blind            bool // it is not known who granted all of it
	follows          bool // of a kind that may follow from another violation
	cause            int
}

var (
	tableRows  = regexp.MustCompile(`(?s)<table id="violations">.*?</table>`)
	tableLines = regexp.MustCompile(`<tr( class="told")?>(.*?)</tr>`)
	tableCells = regexp.MustCompile(`<td[^>]*>(.*?)</td>`)
)

func rowsOf(page string) []tableRow {
	var rows []tableRow
	for _, line := range tableLines.FindAllStringSubmatch(tableRows.FindString(page), -1) {
		cells := tableCells.FindAllStringSubmatch(line[2], -1)
		if len(cells) < 6 {
			continue
		}
		row := tableRow{clients: cells[3][1], servers: cells[4][1], cause: 1}
		row.follows = !strings.Contains(cells[1][1], "double grant") && !strings.Contains(cells[1][1], "loss") && !strings.Contains(cells[1][1], "foreign")
		row.blind = strings.Count(row.clients, ",") > strings.Count(row.servers, ",") || row.servers == ""
		if len(cells) > 6 {
			row.cause, _ = strconv.Atoi(cells[6][1])
		}
		rows = append(rows, row)
	}
	return rows
}

// allReportsAgree compares what each format says.
func allReportsAgree(t *testing.T, seed uint64, page string, r *reports.Results) {
	t.Helper()
	rows := rowsOf(page)
	byCause := map[int]int{}
	for _, row := range rows {
		byCause[row.cause]++
	}
	for i, c := range r.Causes {
		n := 0
		for _, of := range c.Violations {
			n += of
		}
		require.Equal(t, n, byCause[i+1], "seed %d: rows of cause %d", seed, i+1)
	}
	var stored reports.Results
	require.NoError(t, json.Unmarshal(written(t, func(w io.Writer) error { return reports.WriteJSON(w, *r) }), &stored))
	require.Equal(t, r.Causes, stored.Causes)
	for name, out := range map[string]string{
		"page":     page,
		"text":     string(written(t, func(w io.Writer) error { return reports.WriteText(w, *r, reports.TextOptions{Width: 400}) })),
		"whole":    strings.Join(strings.Fields(string(written(t, func(w io.Writer) error { return reports.WriteText(w, *r, reports.TextOptions{}) }))), " "),
		"markdown": strings.ReplaceAll(string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, *r) })), `\`, ""),
	} {
		require.True(t, strings.Contains(strings.ToLower(out), string(r.Verdict)), name)
		require.True(t, strings.Contains(out, r.Story.Headline), "seed %d, %s: %s", seed, name, r.Story.Headline)
		for i, c := range r.Causes {
			if len(r.Causes) > 1 && (name != "text" || i < 4) {
				require.True(t, strings.Contains(html.UnescapeString(out), c.Title), "seed %d, %s: %s", seed, name, c.Title)
			}
		}
	}
}
