package checker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// verdicts is what a report says of each property.
func verdicts(r checker.Report) string {
	var b strings.Builder
	for _, result := range r.Results {
		fmt.Fprintf(&b, "%s %s\n", result.Name, result.Verdict)
	}
	return b.String()
}

// same reports whether two reports agree. Of a lock that is broken, a window may
// show another side than the whole, and one where it is a mystery on the whole.
func same(whole, parts checker.Report, legal bool) bool {
	switch {
	case legal && parts.Verdict == checker.Invalid:
		return false
	case whole.Verdict != checker.Valid && parts.Verdict == checker.Invalid:
		return true
	default:
		return verdicts(whole) == verdicts(parts)
	}
}

// inMilliseconds is a history with a millisecond for each nanosecond.
func inMilliseconds(h *history.History) *history.History {
	for i := range h.Events {
		e := &h.Events[i]
		for _, t := range []*time.Duration{&e.Time, &e.Lease, &e.Expires, &e.Drift} {
			*t *= time.Millisecond
		}
	}
	return h
}

// A history that is judged in windows gets the verdicts of the whole.
func TestWindowsKeepTheVerdict(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name  string
		legal bool
		of    func(rnd *rand.Rand) *history.History
	}{
		{"random", false, randomHistory},
		{"simulated", true, func(rnd *rand.Rand) *history.History { return simulate(rnd, 2+rnd.IntN(4), 60+rnd.IntN(200)) }},
		{"mutated", false, func(rnd *rand.Rand) *history.History {
			h := simulate(rnd, 2+rnd.IntN(4), 60+rnd.IntN(200))
			mutate(rnd, h)
			return h
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(cases(t, 200)) {
				rnd := source(seed)
				h := inMilliseconds(kind.of(rnd))
				text := dump(h)
				least := 4 + rnd.IntN(40)
				whole := checker.Check(t.Context(), h)
				parts, err := checker.CheckWindows(t.Context(), history.NewReader(bytes.NewReader([]byte(text))), least)
				require.NoError(t, err)
				require.True(t, same(whole, parts, kind.legal), "%s\n%s\nseed %d, windows of %d: %+v\n%+v\n%s", verdicts(whole), verdicts(parts), seed, least, whole.Results, parts.Results, text)
			}
		})
	}
}

// The same of what clients record who use a resource under a lock: accesses
// find the holds of their owners, and updates the ones before.
func TestWindowsKeepTheVerdictOfAWorkload_NoRace(t *testing.T) {
	for seed := range uint64(6) {
		var record bytes.Buffer
		synctest.Test(t, func(t *testing.T) {
			r := history.NewRecorder(&record)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			c := workload.Config{Seed: seed, Lease: 50 * time.Millisecond, Careless: seed%2 == 1}
			workload.Run(ctx, c, []workload.Zone{{Name: "zone", Locker: memory.New()}}, r, &workload.Processes{})
			require.NoError(t, r.Close())
		})
		h, err := history.ReadAll(bytes.NewReader(record.Bytes()))
		require.NoError(t, err)
		whole := checker.Check(t.Context(), h)
		require.Greater(t, len(h.Events), 1000)
		for _, least := range []int{20, 150, 1000} {
			parts, err := checker.CheckWindows(t.Context(), history.NewReader(bytes.NewReader(record.Bytes())), least)
			require.NoError(t, err)
			require.Equal(t, verdicts(whole), verdicts(parts), "seed %d, windows of %d: %+v", seed, least, parts.Results)
			for i := range whole.Results {
				require.Equal(t, whole.Results[i].Total, parts.Results[i].Total, "seed %d, windows of %d: %s", seed, least, whole.Results[i].Name)
				if whole.Results[i].Verdict == checker.Valid {
					require.Equal(t, whole.Results[i].Summary, parts.Results[i].Summary, "seed %d, windows of %d", seed, least)
				}
			}
		}
	}
}

// The corpus judged in windows that end at every instant, and at every few.
func TestWindowsKeepTheVerdictOfTheCorpus_NoRace(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.jsonl")
	require.NoError(t, err)
	for _, path := range files {
		h := load(t, path)
		for _, forget := range []bool{false, true} {
			for least := 1; least <= 7; least += 2 {
				require.Empty(t, differences(t, h, least, forget), "%s, windows of %d, forgetful: %v", path, least, forget)
			}
		}
	}
}

// A listed is a history to be read that is in memory.
type listed struct {
	rest []history.Event
	cut  int
}

func list(h *history.History) *listed { return &listed{h.Events, h.Truncated} }

func (l *listed) ReadSome(list []history.Event) ([]history.Event, error) {
	n := min(cap(list)-len(list), len(l.rest))
	list = append(list, l.rest[:n]...)
	l.rest = l.rest[n:]
	if len(l.rest) == 0 {
		return list, io.EOF
	}
	return list, nil
}

func (l *listed) Truncated() int { return l.cut }
