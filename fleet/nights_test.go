package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/fleet"
)

var (
	mutex = fleet.Key{Lock: "mutex", Topology: "sentinel", Faults: "all"}
	other = fleet.Key{Lock: "fair", Topology: "single"}
)

// night is a campaign of so many runs of a lock, some of which found a double grant, after so many seconds less their seed.
func night(id string, key fleet.Key, found, of int) (c fleet.Campaign, runs []fleet.Judged) {
	c.Program, c.Parts = "v1", []string{id}
	for i := range of {
		r := fleet.Judged{Key: key, Seed: uint64(i + 1), Host: "h", Command: fmt.Sprint("seed ", i+1), Kinds: map[string]time.Duration{}}
		if i < found {
			r.Kinds["double-grant"] = time.Duration(of-i) * time.Second
		}
		runs = append(runs, r)
	}
	return c, runs
}

func day(n int) time.Time { return time.Date(2026, 1, n, 3, 0, 0, 0, time.UTC) }

// A finding has the rate of each night from the first in which it was seen, and the run that came to it first; campaigns
// of other locks are no nights of it, and one that is remembered twice counts once.
func TestMemory(t *testing.T) {
	t.Parallel()
	var m fleet.Memory
	add := func(id string, key fleet.Key, found, of, date int) []fleet.Found {
		c, runs := night(id, key, found, of)
		return m.Add(c, runs, day(date))
	}
	require.Empty(t, add("a", mutex, 0, 20, 1), "nothing was found")
	tonight := add("b", mutex, 2, 20, 2)
	require.Len(t, tonight, 1)
	require.Equal(t, "double-grant of mutex on sentinel, faults all", tonight[0].String())
	require.Equal(t, uint64(2), tonight[0].Seed)
	require.Equal(t, 19*time.Second, tonight[0].After)
	require.False(t, tonight[0].Worse(), "there is nothing to compare it with")
	require.Empty(t, add("c", other, 0, 20, 3))
	require.Len(t, add("d", other, 1, 20, 3), 1)

	tonight = add("e", mutex, 0, 20, 4)
	require.Len(t, tonight, 1)
	require.Len(t, tonight[0].Nights, 2)
	require.Len(t, tonight[0].Seen(), 1)
	require.False(t, add("f", mutex, 3, 20, 5)[0].Worse(), "chance explains it")
	tonight = add("g", mutex, 15, 20, 6)
	require.True(t, tonight[0].Worse())
	require.Equal(t, tonight, add("g", mutex, 15, 20, 6), "the same campaign again")
	before, of := tonight[0].Before()
	require.Equal(t, []int{5, 60}, []int{before, of})

	// An earlier night that is told again has its place and its words, also with more folders of it, and with none that was
	// seen it takes its findings with it.
	again := add("b", mutex, 2, 20, 7)
	require.Len(t, again[0].Nights, 1)
	require.False(t, again[0].Worse())
	require.Equal(t, day(2), m.Nights[again[0].Nights[0].Night].Date)
	require.Equal(t, tonight, add("g", mutex, 15, 20, 8))
	c, runs := night("b", mutex, 4, 40)
	c.Parts = []string{"b", "b2"}
	again = m.Add(c, runs, day(9))
	seen, all := again[0].Last()
	require.Equal(t, []int{4, 40}, []int{seen, all})
	require.Len(t, add("d", other, 0, 20, 9), 0)
	require.Len(t, m.Findings, 1)
	require.Len(t, m.Nights, 7)

	dir := t.TempDir()
	require.NoError(t, m.Write(dir))
	read, err := fleet.Remember(dir)
	require.NoError(t, err)
	require.Equal(t, m, read)
}

// In whatever order nights are told, and however often, nothing is counted twice, and what is written can be read.
func TestMemory_AnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m fleet.Memory
		type told struct{ found, of int }
		last := map[string]told{}
		for range rapid.IntRange(1, 12).Draw(t, "times") {
			id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "night")
			n := told{rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(t, "found"), 20}
			last[id] = n
			c, runs := night(id, mutex, n.found, n.of)
			for _, f := range m.Add(c, runs, day(1)) {
				_, of := f.Last()
				require.Equal(t, n.of, of)
				f.Worse()
			}
			require.Len(t, m.Nights, len(last))
		}
		seen, total := 0, 0
		for _, n := range last {
			total += n.found
		}
		for _, f := range m.Findings {
			for _, s := range f.Nights {
				seen += s.Seen
				require.Equal(t, last[m.Nights[s.Night].Parts[0]], told{s.Seen, s.Of})
			}
		}
		require.Equal(t, total, seen)
		dir, err := os.MkdirTemp("", "fleet-") //nolint:usetesting // rapid's T has no TempDir
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		require.NoError(t, m.Write(dir))
		_, err = fleet.Remember(dir)
		require.NoError(t, err)
	})
}

// Processes that write to one memory at a time lose nothing of each other.
func TestHold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			release, err := fleet.Hold(dir)
			assert.NoError(t, err)
			m, err := fleet.Remember(dir)
			assert.NoError(t, err)
			c, runs := night(fmt.Sprint(i), mutex, 1, 2)
			m.Add(c, runs, day(1))
			assert.NoError(t, m.Write(dir))
			assert.NoError(t, release())
		})
	}
	all.Wait()
	m, err := fleet.Remember(dir)
	require.NoError(t, err)
	require.Len(t, m.Nights, 8)
	require.Len(t, m.Findings[0].Nights, 8)
	_, err = fleet.Hold(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, fleet.KnownFile)
	all, err := fleet.KnownIn(dir)
	require.NoError(t, err)
	require.Empty(t, all)
	require.NoError(t, os.WriteFile(path, []byte("- {kind: double-grant, topology: sentinel, why: replicas lag}\n- {kind: stuck, lock: fair, why: '#12'}\n"), 0o600))
	all, err = fleet.KnownIn(dir)
	require.NoError(t, err)
	key := mutex
	key.Kind = "double-grant"
	require.True(t, all[0].Covers(key))
	require.False(t, all[1].Covers(key))
	key.Topology = "single"
	require.False(t, all[0].Covers(key))
	for text, want := range map[string]string{
		"- {kind: stuck}\n":                                       "entry 1 needs a kind, and a why",
		"- {lock: a, why: b}\n":                                   "entry 1 needs a kind, and a why",
		"- {kind: stuck, why: b, until: never}\n":                 `unknown field "until"`,
		"kind: stuck\n":                                           "known.yaml: ",
		"- {kind: stuck, why: b}\n- {why: no}\n":                  "entry 2",
		"- {kind: double-grants, why: b}\n":                       "did you mean double-grant?",
		"- {kind: stuck, kind: double-grant, why: b}\n":           "known.yaml: ",
		"- {kind: stuck, why: b}\n---\n- {kind: stuck, why: c}\n": "there is more behind the list",
		"- {kind: stuck, why: [b}\n":                              "known.yaml: ",
		"- {kind: &k stuck, why: *k}\n":                           "anchors, aliases and merge keys can't be used here",
		"- " + strings.Repeat("[", 20) + "\n":                     "nested deeper than",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err = fleet.KnownIn(dir)
		require.ErrorContains(t, err, want, text)
	}
}

func TestRemember_Refuses(t *testing.T) {
	t.Parallel()
	const head, night = `{"format":1,"nights":[{"parts":["a"],"date":"2026-01-01T00:00:00Z","program":"v1"}],"findings":[{"lock":"a","kind":"stuck","nights":[`, `{"night":0,"seen":1,"of":2}`
	for text, want := range map[string]string{
		"": "EOF", "{}": "its format is 0", `{"format":1,"findings":[{"lock":"a"}]}`: "has no night", `{"format":1,"found":[]}`: `unknown field "found"`,
		head + night: "unexpected EOF", head + night + "]}]}}": "there is more behind the value",
		head + night + "," + night + "]}]}":                                        "which can't be",
		head + `{"night":1,"seen":1,"of":2}` + "]}]}":                              "1 of 2 runs of night 1, which can't be",
		head + `{"night":0,"seen":3,"of":2}` + "]}]}":                              "3 of 2 runs of night 0, which can't be",
		head + `{"night":0,"seen":0,"of":0}` + "]}]}":                              "which can't be",
		head + night + `]},{"lock":"a","kind":"stuck","nights":[` + night + "]}]}": "stuck of a on  is there twice",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, fleet.FindingsFile), []byte(text), 0o600))
		_, err := fleet.Remember(dir)
		require.ErrorContains(t, err, want, text)
	}
}

func TestUnconvicted(t *testing.T) {
	t.Parallel()
	of := func(host string, kinds ...string) fleet.Judged {
		r := fleet.Judged{Host: host, Kinds: map[string]time.Duration{}}
		for _, k := range kinds {
			r.Kinds[k] = 0
		}
		return r
	}
	runs := []fleet.Judged{of("a"), of("b"), of("c"), of("a")}
	require.Equal(t, []string{"b", "c"}, fleet.Unconvicted(runs, []fleet.Judged{of("a"), of("a", "double-grant"), of("b")}))
}
