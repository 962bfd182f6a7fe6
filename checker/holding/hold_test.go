package holding_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// parse reads a history from one line an operation or single event, in order
// of invokes: "process owner op from-to outcome lease", with times in seconds.
func parse(t *testing.T, promise history.Event, lines ...string) *history.History {
	t.Helper()
	h := &history.History{}
	promise.Process, promise.Type, promise.Op, promise.Lock = history.NoProcess, history.OK, history.Declare, "k"
	events := []history.Event{promise}
	for _, line := range lines {
		fields := strings.Fields(line)
		seconds := func(s string) time.Duration {
			d, err := time.ParseDuration(s + "s")
			require.NoError(t, err, line)
			return d
		}
		from, to, _ := strings.Cut(fields[3], "-")
		e := history.Event{
			Process: int(fields[0][0] - '0'), Owner: fields[1], Op: history.Op(fields[2]), Type: history.Invoke,
			Lock: "k", Time: seconds(from),
		}
		if len(fields) > 5 {
			e.Lease = seconds(fields[5])
		}
		if to == "" {
			e.Type = history.Type(fields[4])
			events = append(events, e)
			continue
		}
		events = append(events, e)
		e.Time, e.Type = seconds(to), history.Type(fields[4])
		events = append(events, e)
	}
	for len(events) > 0 {
		first := 0
		for i := range events {
			if events[i].Time < events[first].Time {
				first = i
			}
		}
		e := events[first]
		e.Index = int64(len(h.Events))
		h.Events = append(h.Events, e)
		events = append(events[:first], events[first+1:]...)
	}
	return h
}

func TestHolds(t *testing.T) {
	t.Parallel()
	type hold struct {
		owner      string
		start, end float64 // seconds; 0 for an end that never comes
		ended      holding.End
	}
	reentrant := history.Event{Reentrant: true}
	for _, test := range []struct {
		name    string
		promise history.Event
		give    []string
		want    []hold
	}{
		{"nobody", history.Event{}, nil, nil},
		{"refused", history.Event{}, []string{"1 a acquire 0-1 fail 9"}, nil},
		{"open", history.Event{}, []string{"1 a acquire 0-1 ok"}, []hold{{"a", 1, 0, holding.EndOpen}}},
		{"expired", history.Event{}, []string{"1 a acquire 0-1 ok 9"}, []hold{{"a", 1, 9, holding.EndExpired}}},
		{"drift", history.Event{Drift: time.Second}, []string{"1 a acquire 0-1 ok 9"}, []hold{{"a", 1, 8, holding.EndExpired}}},
		{"released", history.Event{}, []string{"1 a acquire 0-1 ok 9", "1 a release 3-4 ok"}, []hold{{"a", 1, 3, holding.EndReleased}}},
		{"released late", history.Event{}, []string{"1 a acquire 0-1 ok 2", "1 a release 3-4 ok"}, []hold{{"a", 1, 3, holding.EndReleased}}},
		{"release unknown", history.Event{}, []string{"1 a acquire 0-1 ok 9", "1 a release 3-4 info"}, []hold{{"a", 1, 3, holding.EndUnknown}}},
		{"release unknown, then alive", history.Event{}, []string{"1 a acquire 0-1 ok 20", "1 a release 3-4 info", "2 a extend 5-6 ok 20"}, []hold{{"a", 1, 5, holding.EndUnknown}}},
		{"release refused after the lease", history.Event{}, []string{"1 a acquire 0-1 ok 2", "1 a release 3-4 fail"}, []hold{{"a", 1, 2, holding.EndExpired}}},
		{"release refused within the lease", history.Event{}, []string{"1 a acquire 0-1 ok 9", "1 a release 3-4 fail"}, []hold{{"a", 1, 3, holding.EndLost}}},
		{"extended", history.Event{}, []string{"1 a acquire 0-1 ok 9", "2 a extend 3-4 ok 9"}, []hold{{"a", 1, 12, holding.EndExpired}}},
		{"extend unknown promises nothing", history.Event{}, []string{"1 a acquire 0-1 ok 9", "2 a extend 3-4 info 9"}, []hold{{"a", 1, 9, holding.EndExpired}}},
		{"extend unknown may shorten", history.Event{}, []string{"1 a acquire 0-1 ok 9", "2 a extend 3-4 info 2"}, []hold{{"a", 1, 5, holding.EndUnknown}}},
		{"lost", history.Event{}, []string{"1 a acquire 0-1 ok 9", "1 a lost 3 ok"}, []hold{{"a", 1, 3, holding.EndLost}}},
		{"crash within a lease", history.Event{}, []string{"1 a acquire 0-1 ok 9", "1 a crash 3 info"}, []hold{{"a", 1, 9, holding.EndExpired}}},
		{"crash without a lease", history.Event{}, []string{"1 a acquire 0-1 ok", "1 a crash 3 info"}, []hold{{"a", 1, 3, holding.EndExpired}}},
		{"unknown acquire", history.Event{}, []string{"1 a acquire 0-1 info 9"}, nil},
		{"unknown acquire, access", history.Event{}, []string{"1 a acquire 0-1 info 9", "2 a access 2-3 ok"}, nil},
		{"unknown acquire, witness extend", history.Event{}, []string{"1 a acquire 0-1 info 9", "2 a extend 2-3 ok 9"}, []hold{{"a", 3, 11, holding.EndExpired}}},
		{"unknown acquire, witness release", history.Event{}, []string{"1 a acquire 0-1 info 9", "2 a release 2-3 ok"}, []hold{{"a", 3, 2, holding.EndReleased}}},
		{"slow grant", history.Event{}, []string{"1 a acquire 0-5 ok 2"}, []hold{{"a", 5, 2, holding.EndExpired}}},
		{"re-entrant", reentrant, []string{"1 a acquire 0-1 ok 20", "1 a acquire 2-3 ok 20", "1 a release 4-5 ok", "1 a release 6-7 ok"}, []hold{{"a", 1, 6, holding.EndReleased}}},
		{"re-entrant, one release", reentrant, []string{"1 a acquire 0-1 ok 20", "1 a acquire 2-3 ok 20", "1 a release 4-5 ok"}, []hold{{"a", 1, 22, holding.EndExpired}}},
		{"re-entrant, unknown release", reentrant, []string{"1 a acquire 0-1 ok 20", "1 a acquire 2-3 ok 20", "1 a release 4-5 info", "2 a release 6-7 ok"}, []hold{{"a", 1, 6, holding.EndUnknown}}},
		{"not re-entrant", history.Event{}, []string{"1 a acquire 0-1 ok 20", "1 a acquire 2-3 ok 20"}, []hold{{"a", 1, 20, holding.EndExpired}, {"a", 3, 22, holding.EndExpired}}},
		{"owner used again", history.Event{}, []string{"1 a acquire 0-1 ok 20", "1 a release 2-3 ok", "1 a acquire 4-5 ok 20"}, []hold{{"a", 1, 2, holding.EndReleased}, {"a", 5, 24, holding.EndExpired}}},
		{"in order of start", history.Event{}, []string{"1 a acquire 0-6 ok 9", "2 b acquire 1-2 ok 2"}, []hold{{"b", 2, 3, holding.EndExpired}, {"a", 6, 9, holding.EndExpired}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []hold
			l := lockOf(parse(t, test.promise, test.give...))
			for _, h := range l.Holds {
				end := h.End.Seconds()
				if h.End == history.Never {
					end = 0
				}
				got = append(got, hold{l.Record().Name(h.Owner()), h.Start.Seconds(), end, h.Ended})
				require.Equal(t, holding.Exclusive, h.Mode())
				require.Equal(t, 1, h.Permits())
				require.Equal(t, h.Proof.Complete.Time, h.Start)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestHoldTellsCertainFromLate(t *testing.T) {
	t.Parallel()
	h := lockOf(parse(t, history.Event{}, "1 a acquire 0-1 ok 3", "1 a extend 5-6 ok 3", "1 a release 10-11 ok")).Holds
	require.Len(t, h, 1)
	s := func(from, until time.Duration) holding.Span {
		return holding.Span{From: from * time.Second, Until: until * time.Second}
	}
	require.Equal(t, s(1, 10), h[0].Span())
	require.Len(t, h[0].Late, 2)
	require.Equal(t, s(3, 6), h[0].Late[0].Span)
	require.Equal(t, s(8, 10), h[0].Late[1].Span)
	require.Equal(t, []holding.Span{s(1, 3), s(6, 8)}, h[0].Belief)
}

// lockOf derives who held the lock k.
func lockOf(h *history.History) *holding.Lock {
	r := holding.RecordOf(h)
	r.Derive()
	return r.Lock("k")
}

func TestWhatNoHoldExplains(t *testing.T) {
	t.Parallel()
	b := lockOf(parse(t, history.Event{}, "1 a acquire 0-1 ok 9", "1 a release 2-3 ok", "1 a release 4-5 ok",
		"2 b acquire 3-4 ok 9", "2 b release 6-7 fail"))
	require.Len(t, b.Uncovered, 1)
	require.Equal(t, 4*time.Second, b.Uncovered[0].Invoke.Time)
	require.Len(t, b.Denied, 1)
	require.Equal(t, 12*time.Second, b.Denied[0].Good)
	require.Empty(t, b.Unclear)

	b = lockOf(parse(t, history.Event{}, "1 a acquire 0-5 ok 9", "2 a acquire 1-6 ok 9"))
	require.Contains(t, b.Unclear, "overlap")
	require.Empty(t, b.Holds)

	b = lockOf(parse(t, history.Event{}, "1 a acquire 0-1 ok 3", "1 a release 2-4 info", "2 a acquire 5-6 ok 9"))
	require.Contains(t, b.Unclear, "used again")
	require.Empty(t, b.Holds)
}

func TestSpansThatTouchDoNotOverlap(t *testing.T) {
	t.Parallel()
	_, ok := holding.Span{From: 1, Until: 2}.Overlap(holding.Span{From: 2, Until: 3})
	require.False(t, ok)
	both, ok := holding.Span{From: 1, Until: 5}.Overlap(holding.Span{From: 2, Until: 3})
	require.True(t, ok)
	require.Equal(t, holding.Span{From: 2, Until: 3}, both)
}

// An owner may be told again and again that its hold is lost: each notice is of the hold before it.
func TestNoticesOfOneOwner(t *testing.T) {
	t.Parallel()
	const many = 100_000
	r := holding.NewRecord()
	add := func(typ history.Type, op history.Op) {
		at := r.Events
		r.Add(&history.Event{Index: at, Time: time.Duration(at), Process: 1, Type: typ, Op: op, Lock: "k", Owner: "a"})
	}
	for range many {
		add(history.Invoke, history.Acquire)
		add(history.OK, history.Acquire)
		add(history.OK, history.Lost)
	}
	r.Close(0)
	began := time.Now()
	r.Derive()
	require.Less(t, time.Since(began), 10*time.Second, "does each notice look at all that was before it?")
	holds := r.Lock("k").Holds
	require.Len(t, holds, many)
	for i, h := range holds {
		require.Equal(t, holding.EndLost, h.Ended)
		require.EqualValues(t, 3*i+2, h.EndEvent)
	}
}
