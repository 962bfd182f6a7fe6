package reports_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/reports"
)

// What two clients were entitled to hold beside each other is told apart from what the record covers of it.
func TestStoryOverlap(t *testing.T) {
	for _, tt := range []struct {
		name  string
		until time.Duration
		lease float64
		want  string
	}{
		{"within the record", ms(800), 790, " for 300 ms"},
		{"beyond the record", ms(5000), 4990, " (500 ms of it observed)"},
		{"ended with the record, as by the checker", ms(1000), 4990, " (500 ms of it observed)"},
		{"without an end", history.Never, 0, " (500 ms of it observed)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{}
			s.acquire(1, "k", "a#1", "", 10, 11, tt.lease)
			s.acquire(2, "k", "b#1", "", 490, 500, tt.lease*2)
			s.observe(1000, "redis-1", history.ObserveEpoch, "1")
			h := s.history()
			in := reports.Input{History: h, Report: report(broken("mutual-exclusion", "", "", checker.Violation{
				Kind: checker.DoubleGrant, Lock: "k", From: ms(500), Until: tt.until,
				Events: []int64{find(h, history.Acquire, history.OK, "a#1"), find(h, history.Acquire, history.OK, "b#1")},
			}))}
			require.Equal(t, "Two clients held the lock k at the same time"+tt.want, reports.Summarize(in).Story.Headline)
		})
	}
}

func TestFaults(t *testing.T) {
	s := &script{}
	s.fault(history.Inject, "cut", "a>b", 5, 6, history.Fail, "", "still connected") // which no heal ends
	s.fault(history.Inject, "cut", "a>b", 10, 12, history.OK, "1 link refuses", "")
	s.fault(history.Inject, "latency", "a>b", 20, 21, history.OK, "", "")
	s.fault(history.Heal, "cut", "a>b", 25, 26, history.Fail, "", "busy") // and is tried again
	s.fault(history.Heal, "cut", "a>b", 30, 33, history.OK, "", "")
	s.fault(history.Inject, "reset", "a>b", 50, 51, history.OK, "2 connections", "")
	s.fault(history.Heal, "latency", "a>b", 60, 61, history.Fail, "", "no such link")
	s.fault(history.Inject, "kill", "redis-1", 70, 71, history.OK, "", "")
	s.observe(100, "redis-1", history.ObserveEpoch, "1")
	s.at(90, history.Event{Process: history.NoProcess, Type: history.Invoke, Op: history.Inject, Fault: "pause", Target: "redis-2"})
	want, err := json.Marshal([]reports.Fault{
		{Name: "cut", Life: history.Lasting, Effects: []history.Effect{history.Cuts}, Target: "a>b", Start: ms(5), End: ms(6), Error: "still connected"},
		{Name: "cut", Life: history.Lasting, Effects: []history.Effect{history.Cuts}, Target: "a>b", Start: ms(10), InEffect: ms(12), End: ms(33), Healed: true, OK: true, Interrupts: true, Effect: "1 link refuses"},
		{Name: "latency", Life: history.Lasting, Effects: []history.Effect{history.Delays}, Target: "a>b", Start: ms(20), InEffect: ms(21), End: ms(100), OK: true, HealError: "no such link"},
		{Name: "reset", Life: history.Momentary, Effects: []history.Effect{history.Disconnects}, Target: "a>b", Start: ms(50), InEffect: ms(51), End: ms(51), OK: true, Effect: "2 connections"},
		{Name: "kill", Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Restarts}, Target: "redis-1", Start: ms(70), InEffect: ms(71), End: ms(100), OK: true, Interrupts: true},
		{Name: "pause", Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Suspends}, Target: "redis-2", Start: ms(90), End: ms(100), Error: "never answered"},
	})
	require.NoError(t, err)
	got, err := json.Marshal(reports.Summarize(reports.Input{History: s.history()}).Faults)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}

// Latencies are exact, and a percentile is given where its sample carries it.
func TestLatency(t *testing.T) {
	for _, tt := range []struct {
		grants              int
		p50, p95, p99, p999 float64
	}{{grants: 4}, {grants: 5, p50: 3}, {grants: 19, p50: 10}, {20, 10, 19, 0, 0}, {100, 50, 95, 99, 0}, {1000, 500, 950, 990, 999}} {
		s := &script{}
		for i := range tt.grants {
			from := float64(i) * 2000
			s.acquire(1, "k", fmt.Sprintf("a#%d", i), "", from, from+float64(i+1), 10)
		}
		got := reports.Summarize(reports.Input{History: s.history()})
		require.Equal(t, reports.Latency{
			Count: tt.grants, Mean: ms(float64(tt.grants+1) / 2), Min: ms(1), P50: ms(tt.p50), P95: ms(tt.p95), P99: ms(tt.p99), P999: ms(tt.p999), Max: ms(float64(tt.grants)),
		}, got.Latency["acquire"])
		require.Equal(t, reports.Outcomes{OK: tt.grants}, got.Operations["acquire"])
	}
}

// Whatever a checker hands over, a report comes out.
func TestAnyViolation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	kinds := []string{
		checker.DoubleGrant, checker.UseAfterLease, checker.LostUpdate, checker.ForeignRelease,
		checker.PrematureLoss, checker.NotLinearizable, "stuck", "something-new", "",
	}
	bases := []reports.Input{failover(), corpus("use-after-lease--overslept")(), corpus("premature-loss--watchdog")(), undecided()}
	for i := range 120 {
		in := bases[i%len(bases)]
		v := checker.Violation{Kind: kinds[i%len(kinds)], Explanation: "why"}
		if rng.IntN(4) > 0 {
			v.Lock = "orders"
		}
		for range rng.IntN(4) {
			v.Events = append(v.Events, rng.Int64N(int64(len(in.History.Events))+4)-2)
		}
		v.From = time.Duration(rng.Int64N(int64(3 * time.Second)))
		v.Until = v.From + time.Duration(rng.Int64N(int64(3*time.Second)))
		if rng.IntN(5) == 0 {
			v.Until = history.Never
		}
		in.Report = report(broken("p", "", "", v))
		require.NotEmpty(t, reports.Summarize(in).Story.Headline)
		if i%10 == 0 {
			require.NoError(t, reports.WriteHTML(io.Discard, in))
		}
	}
}

// A lock that was left to a request that was refused is told as that, and not as one that was free for no time.
func TestStoryOfARefusalThatHolds(t *testing.T) {
	s := reports.Summarize(corpus("stuck--refused-and-holds")()).Story
	require.Equal(t, "Client a was refused the lock orders, which was left to that request: no client holds it, and none can acquire it", s.Headline)
	lines := strings.Join(s.Lines(), "\n")
	require.Contains(t, lines, "redis-1 has the lock for that request, which was refused")
	require.NotContains(t, lines, "process -1")
}

// Every history that the checkers must reject has a story: with the moment of
// the violation, and in better words than the name of its kind.
func TestStoriesOfTheCorpus(t *testing.T) {
	files, err := filepath.Glob("../checker/testdata/invalid/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			h, err := history.ReadAll(f)
			require.NoError(t, err)
			in := reports.Input{History: h, Report: checker.Check(t.Context(), h)}
			r := reports.Summarize(in)
			require.True(t, slices.ContainsFunc(r.Story.Events, func(m reports.StoryEvent) bool { return m.Kind == reports.EventViolation }))
			require.True(t, slices.IsSortedFunc(r.Story.Events, func(a, b reports.StoryEvent) int { return cmp.Compare(a.At, b.At) }))
			kind, _, _ := strings.Cut(name, "--")
			kind, _, _ = strings.Cut(kind, "+")
			require.NotContains(t, strings.ToLower(r.Story.Headline), strings.ReplaceAll(kind, "-", " ")+" on ")
			require.NoError(t, reports.WriteHTML(io.Discard, in))
		})
	}
}

func TestStory_WeighsTheVerdict(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fault          string
		found, control checker.Verdict
		want           string
	}{
		{"flush", checker.Invalid, checker.Invalid, "was invalid too: a limit of these servers"},
		{"stall", checker.Invalid, checker.Valid, "was valid: these servers do not explain it"},
		{"flush", checker.Invalid, checker.Valid, "was valid, which may be luck"},
		{"stall", checker.Invalid, checker.Unknown, "which decides nothing"},
		{"stall", checker.Unknown, checker.Valid, "which decides nothing"},
	} {
		asked := history.Event{Process: -1, Op: history.Inject, Type: history.Invoke, Fault: tc.fault}
		hit := asked
		hit.Index, hit.Time, hit.Type = 1, 1, history.OK
		in := reports.Input{
			Run: history.Run{
				Lock: "own", Unpromised: []string{promises.NoToken, promises.NoReleaseTells},
				Control: &history.Control{Lock: "correct-key", Verdict: string(tc.control)},
			},
			History: &history.History{Events: []history.Event{asked, hit}}, Report: checker.Report{Verdict: tc.found},
		}
		weight := strings.Join(reports.Summarize(in).Story.Weight, "\n")
		require.Contains(t, weight, tc.want)
		require.Contains(t, weight, "The lock does not promise fencing tokens (their order is not judged), a refusal of a release")
	}
	require.Empty(t, reports.Summarize(reports.Input{History: &history.History{}}).Story.Weight)
}

// What was measured stands in all reports, in a table with each way to play the run once, and the faults in
// effect are no cause without it.
func TestMeasuredCausesAreShown(t *testing.T) {
	t.Parallel()
	in := failover()
	in.Run.Scenario, in.Run.Command = "", "lockchaos run --topology sentinel --seed 1"
	r := reports.Summarize(in)
	require.Empty(t, r.Causes)
	require.Equal(t, "lockchaos run --topology sentinel --seed 1 --causes", r.Next)
	require.Contains(t, r.Story.InEffect, "In effect at the time: ")
	attached := in
	attached.Run.Backend = "attach"
	require.Empty(t, reports.Summarize(attached).Next, "it can't be played again")

	in.Run.Causes = []history.Cause{{
		Kind: "double-grant", Verdict: history.CauseDeployment, Text: "A limit of this deployment: with split-brain 5 of 5 runs show a double grant, without it 0 of 5, with a correct lock 5 of 5",
		Faults: []history.Suspect{{Fault: "split-brain", Target: "{redis-1}", Role: history.RoleNeeded}}, Control: "correct-key",
		Arms: []history.Arm{
			{Arm: history.ArmAll, Seen: 5, N: 5, Interval: reports.Interval(5, 5)},
			{Arm: history.ArmNone, N: 5, Interval: reports.Interval(0, 5)},
			{Arm: history.ArmWithout, Same: true, N: 5},
			{Arm: history.ArmOnly, Same: true, Seen: 5, N: 5},
			{Arm: history.ArmControl, Seen: 5, N: 5, Interval: reports.Interval(5, 5)},
		},
	}}
	r = reports.Summarize(in)
	require.Equal(t, in.Run.Causes, r.Causes)
	require.Empty(t, r.Next, "it is measured")
	var text, terminal, markdown, page bytes.Buffer
	require.NoError(t, reports.WriteText(&text, r, reports.TextOptions{}))
	require.Contains(t, strings.Join(strings.Fields(text.String()), " "), "measured "+in.Run.Causes[0].Text)
	require.NoError(t, reports.WriteText(&terminal, r, reports.TextOptions{Width: 80, Dir: "runs/1"}))
	require.Contains(t, terminal.String(), "measured   A limit of this deployment: with split-brain")
	require.LessOrEqual(t, strings.Count(terminal.String(), "\n"), 14)
	require.NoError(t, reports.WriteMarkdown(&markdown, r))
	require.Contains(t, markdown.String(), "| with the faults of the run | 5 of 5 | 56 to 100 % |\n| without any fault | 0 of 5 | 0 to 44 % |\n| with correct-key, a correct lock, in its place | 5 of 5 | 56 to 100 % |\n\n")
	require.NoError(t, reports.WriteHTML(&page, in))
	require.Contains(t, page.String(), `<td>without any fault</td><td class="num">0 of 5</td>`)
	require.NotContains(t, page.String(), "<td>without split-brain")
	require.Regexp(t, `(?s)A limit of this deployment: with.*<b>May help:</b>.*class="causes"`, page.String(), "the table comes after what it shows")
	require.NotContains(t, page.String(), "Measured of other violations")
	require.Contains(t, page.String(), "✗ invalid – a limit of this deployment")
	in.Run.Causes = append(in.Run.Causes, in.Run.Causes[0])
	in.Run.Causes[1].Verdict, in.Run.Causes[1].Until = history.CauseUndecided, history.Never
	require.Equal(t, history.CauseUndecided, reports.Summarize(in).Causes[0].Verdict, "that of what is told comes first")
	page.Reset()
	require.NoError(t, reports.WriteHTML(&page, in))
	require.Equal(t, 1, strings.Count(page.String(), "Measured of other violations</summary>"))
	require.NotContains(t, page.String(), "invalid – a limit", "they do not say the same")
}
