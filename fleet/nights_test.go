package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/fleet"
)

var (
	mutex = fleet.Key{Lock: "mutex", Topology: "sentinel", Faults: "all"}
	other = fleet.Key{Lock: "fair", Topology: "single"}
)

// night is a campaign of so many runs of a lock, some of which found a double grant, after so many seconds less their seed.
func night(id string, key fleet.Key, found, of int) (c fleet.Campaign, runs []fleet.Judged) {
	c.Program = "v1"
	for i := range of {
		c.Runs = append(c.Runs, fleet.Joined{Run: fleet.Run{ID: fmt.Sprint(id, i)}})
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
	before, of := tonight[0].Rate(false)
	require.Equal(t, []int{5, 60}, []int{before, of})

	dir := t.TempDir()
	require.NoError(t, m.Write(dir))
	again, err := fleet.Remember(dir)
	require.NoError(t, err)
	require.Equal(t, m, again)
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
		"- {kind: stuck}\n":                   "entry 1 needs a kind, and a why",
		"- {lock: a, why: b}\n":               "entry 1 needs a kind, and a why",
		"- {kind: a, why: b, until: never}\n": `unknown field "until"`,
		"kind: a\n":                           "known.yaml: ",
		"- {kind: a, why: b}\n- {why: no}\n":  "entry 2",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err = fleet.KnownIn(dir)
		require.ErrorContains(t, err, want, text)
	}
}

func TestRemember_Refuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "EOF", "{}": "its format is 0", `{"format":1,"findings":[{"lock":"a"}]}`: "has no night", `{"format":1,"found":[]}`: `unknown field "found"`,
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
