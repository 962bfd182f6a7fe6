package checker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// turns is a history of n legal holds of one lock, by processes that wait for
// one another.
func turns(n int) *history.History {
	h := &history.History{}
	add := func(process, i int, op history.Op, typ history.Type, at time.Duration) {
		h.Events = append(h.Events, history.Event{
			Index: int64(len(h.Events)), Time: at, Process: process, Type: typ, Op: op, Lock: "k",
			Owner: "o" + strconv.Itoa(i),
		})
		if op == history.Acquire {
			h.Events[len(h.Events)-1].Lease = time.Second
		}
	}
	at := time.Duration(0)
	for i := range n {
		if i == 0 {
			add(0, 0, history.Acquire, history.Invoke, at+1)
			add(0, 0, history.Acquire, history.OK, at+2)
		}
		// The next one asks while this one holds.
		add((i+1)%5, i+1, history.Acquire, history.Invoke, at+3)
		add(i%5, i, history.Release, history.Invoke, at+4)
		add(i%5, i, history.Release, history.OK, at+6)
		add((i+1)%5, i+1, history.Acquire, history.OK, at+8)
		at += 10
	}
	return h
}

func result(t *testing.T, r checker.Report, name string) checker.Result {
	t.Helper()
	for _, result := range r.Results {
		if result.Name == name {
			return result
		}
	}
	require.Failf(t, "no such result", "%s in %+v", name, r)
	return checker.Result{}
}

func TestStandardLeavesOutWhatDoesNotApply(t *testing.T) {
	t.Parallel()
	r := checker.Check(t.Context(), turns(5))
	var names []string
	for _, result := range r.Results {
		names = append(names, result.Name)
	}
	require.Equal(t, []string{"assumptions", "mutual-exclusion", "ownership", "linearizability", "progress"}, names)
	require.Equal(t, checker.Valid, r.Verdict)
	require.Len(t, checker.Standard(), 10)

	alone := checker.FencingOrder().Check(t.Context(), turns(5))
	require.Equal(t, checker.Unknown, alone.Verdict, "what does not apply is not valid")
}

func TestOnlyTheCheckersThatAreGiven(t *testing.T) {
	t.Parallel()
	r := checker.Check(t.Context(), turns(5), checker.MutualExclusion())
	require.Len(t, r.Results, 1)
	require.Equal(t, "mutual-exclusion", r.Results[0].Name)
}

func TestNoTimeIsUnknown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := checker.Check(ctx, turns(5))
	require.Equal(t, checker.Unknown, r.Verdict)
	for _, result := range r.Results {
		require.Equal(t, checker.Unknown, result.Verdict, result.Name)
		require.Contains(t, result.Summary, "no time left")
	}
}

func TestALongHistoryIsJudged_NoRace(t *testing.T) {
	t.Parallel()
	h := turns(checker.SearchOperations)
	require.Equal(t, checker.Valid, checker.Linearizability().Check(t.Context(), h).Verdict)
}

func TestALongHistoryWithAViolationIsSearchedAroundIt_NoRace(t *testing.T) {
	t.Parallel()
	h := turns(checker.SearchOperations)
	for i := range h.Events[:len(h.Events)-1] {
		if e := &h.Events[len(h.Events)-1-i]; e.Op == history.Release && e.Type == history.OK {
			e.Type = history.Fail
			break
		}
	}
	r := checker.Check(t.Context(), h)
	require.Equal(t, checker.Invalid, result(t, r, "ownership").Verdict)
	require.Equal(t, checker.Invalid, result(t, r, "linearizability").Verdict)
}

func TestBeyondTheBudgetIsUnknown_NoRace(t *testing.T) {
	t.Parallel()
	// The likeliest order does not explain the beginning: x was granted the lock
	// and gave it back before y was answered, long before the answers to x.
	h := &history.History{}
	for i, e := range []history.Event{
		{Process: 90, Type: history.Invoke, Op: history.Acquire, Owner: "x"},
		{Process: 90, Type: history.Info, Op: history.Acquire, Owner: "x"},
		{Process: 91, Type: history.Invoke, Op: history.Acquire, Owner: "y"},
		{Process: 92, Type: history.Invoke, Op: history.Release, Owner: "x"},
		{Process: 91, Type: history.OK, Op: history.Acquire, Owner: "y"},
		{Process: 92, Type: history.OK, Op: history.Release, Owner: "x"},
		{Process: 91, Type: history.Invoke, Op: history.Release, Owner: "y"},
		{Process: 91, Type: history.OK, Op: history.Release, Owner: "y"},
	} {
		e.Index, e.Time, e.Lock, e.Lease = int64(i), time.Duration(i), "k", time.Second
		h.Events = append(h.Events, e)
	}
	for _, e := range turns(checker.SearchOperations).Events {
		e.Index += 8
		e.Time += 8
		h.Events = append(h.Events, e)
	}
	// The outcome of the first release is unknown, and its owner says so at the
	// end: nowhere in between is the state of the lock known.
	for i := range h.Events {
		if e := &h.Events[i]; e.Op == history.Release && e.Owner == "o0" && e.Type == history.OK {
			e.Type = history.Info
		}
	}
	last := h.Events[len(h.Events)-1]
	for _, typ := range []history.Type{history.Invoke, history.Fail} {
		last.Index++
		last.Time++
		last.Process, last.Owner, last.Op, last.Type = 99, "o0", history.Release, typ
		h.Events = append(h.Events, last)
	}
	r := checker.Check(t.Context(), h)
	search := result(t, r, "linearizability")
	require.Equal(t, checker.Unknown, search.Verdict)
	require.Contains(t, search.Summary, "more than are searched for another")
	require.Equal(t, checker.Unknown, r.Verdict)
}

func TestListsTheFirstAndCountsAll(t *testing.T) {
	t.Parallel()
	h := &history.History{}
	for i := range checker.MaxListed + 200 {
		for _, typ := range []history.Type{history.Invoke, history.OK} {
			h.Events = append(h.Events, history.Event{
				Index: int64(len(h.Events)), Time: time.Duration(len(h.Events)), Process: i, Type: typ,
				Op: history.Acquire, Lock: "k", Owner: strconv.Itoa(i),
			})
		}
	}
	r := checker.MutualExclusion().Check(t.Context(), h)
	require.Equal(t, checker.MaxListed+199, r.Total)
	require.Len(t, r.Violations, checker.MaxListed)
	checkProofs(t, h, r)
}

// Two engines that differ are never hidden.
func TestEnginesThatDifferMakeTheReportUnknown(t *testing.T) {
	t.Parallel()
	r, differ := checker.Disagreement(t.Context(), turns(5), "k")
	require.True(t, differ)
	require.Equal(t, "engines-agree", r.Name)
	require.Equal(t, checker.Unknown, r.Verdict)
	require.Contains(t, r.Summary, "a defect of the checker")
}

func TestCheckDoesNotChangeTheHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		h := made(seed)
		before := oracle.Lines(h)
		checker.Check(t.Context(), h)
		require.Equal(t, before, oracle.Lines(h))
	}
}

func TestReportIsJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(checker.Check(t.Context(), load(t, "testdata/invalid/double-grant--format-example.jsonl")))
	require.NoError(t, err)
	require.Contains(t, string(text), `"verdict":"invalid"`)
	require.Contains(t, string(text), `"kind":"double-grant"`)
}

func TestPicture(t *testing.T) {
	t.Parallel()
	h := load(t, "testdata/invalid/double-grant--format-example.jsonl")
	for i := range h.Events {
		if h.Events[i].Owner == "a" {
			h.Events[i].Owner = "<script>a"
		}
	}
	report := checker.Check(t.Context(), h, checker.MutualExclusion())
	var page bytes.Buffer
	require.NoError(t, checker.Picture(&page, report.Record, report.Results[0].Violations[0]))
	require.Contains(t, page.String(), "<html")
	require.NotContains(t, page.String(), "<script>a")
	require.Contains(t, page.String(), "script\\u0026gt;a", "the name is there, escaped")

	require.ErrorIs(t, checker.Picture(&page, report.Record, checker.Violation{Kind: checker.LostUpdate}), checker.ErrNoPicture)
	require.ErrorIs(t, checker.Picture(&page, report.Record, checker.Violation{Lock: "other"}), checker.ErrNoPicture)
}

func TestPictureDrawsAWindow(t *testing.T) {
	t.Parallel()
	report := checker.Check(t.Context(), turns(500))
	var page bytes.Buffer
	require.NoError(t, checker.Picture(&page, report.Record, checker.Violation{Lock: "k", From: 2000, Until: 2100}))
	n := strings.Count(page.String(), `"OriginalStart"`)
	require.Positive(t, n)
	require.LessOrEqual(t, n, checker.PictureOperations)
}

func FuzzEnginesAgree(f *testing.F) {
	for seed := range uint64(20) {
		f.Add([]byte(oracle.Lines(made(seed))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := history.ReadAll(bytes.NewReader(data))
		if err != nil || len(h.Events) > 80 {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r := checker.Check(ctx, h)
		checker.Explain(ctx, h, &r)
		for _, result := range r.Results {
			if result.Name == "engines-agree" {
				t.Fatal(result.Summary)
			}
		}
	})
}

func TestEnginesThatDifferConvictNobody(t *testing.T) {
	results := []checker.Result{
		{Name: "assumptions", Verdict: checker.Valid},
		{Name: "mutual-exclusion", Verdict: checker.Invalid},
		{Name: "linearizability", Verdict: checker.Valid},
	}
	require.Equal(t, checker.Invalid, checker.Sum(results, false))
	results = append(results, checker.Result{Name: "engines-agree", Verdict: checker.Unknown})
	require.Equal(t, checker.Unknown, checker.Sum(results, true))
	results = append(results, checker.Result{Name: "protected-resource", Verdict: checker.Invalid})
	require.Equal(t, checker.Invalid, checker.Sum(results, true), "what neither of them found stands")
}
