package campaign_test

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

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/fleet"
)

var (
	mutex = campaign.Key{Lock: "mutex", Topology: "sentinel", Faults: "all"}
	other = campaign.Key{Lock: "fair", Topology: "single"}
)

// night is a campaign of so many runs of a lock, some of which found a double grant, after so many seconds less their seed.
func night(id string, key campaign.Key, found, of int) (c fleet.Campaign, runs []campaign.Judged) {
	c.Program, c.Parts = id[:1], strings.Fields(id)
	for i := range of {
		r := campaign.Judged{Key: key, Seed: uint64(i + 1), Host: "h", Command: fmt.Sprint("seed ", i+1), Kinds: map[string]time.Duration{}}
		if i < found {
			r.Kinds["double-grant"] = time.Duration(of-i) * time.Second
		}
		runs = append(runs, r)
	}
	return c, runs
}

func day(n int) time.Time { return time.Date(2026, 1, n, 3, 0, 0, 0, time.UTC) }

// A finding has its rate of the last night and of those before, from the first in which it was seen, and the run that came to it
// first. Campaigns of other locks are no nights of it; one that is told again, also with other folders, has its old place.
func TestMemory(t *testing.T) {
	t.Parallel()
	var m campaign.Memory
	for _, tt := range []struct {
		night     string
		key       campaign.Key
		found, of int
		want      string // of the finding, if there is one: how often, how often before, in how many nights, and the first of them
		worse     bool
	}{
		{"a", mutex, 0, 20, "", false},
		{"b", mutex, 2, 20, "2/20 0/0 1 b", false}, // there is nothing to compare it with
		{"c", other, 0, 20, "", false},
		{"d", other, 1, 20, "1/20 0/0 1 d", false},
		{"e", mutex, 0, 20, "0/20 2/20 1 b", false},
		{"f", mutex, 3, 20, "3/20 2/40 2 b", false}, // chance explains it
		{"g", mutex, 15, 20, "15/20 5/60 3 b", true},
		{"g", mutex, 15, 20, "15/20 5/60 3 b", true},
		{"b", mutex, 2, 20, "2/20 0/0 1 b", false},
		{"a b", mutex, 4, 40, "4/40 0/0 1 a", false},
		{"f", mutex, 3, 20, "3/20 4/60 2 a", false},
		{"d", other, 0, 20, "", false},
	} {
		c, runs := night(tt.night, tt.key, tt.found, tt.of)
		found := m.Add(c, runs, day(len(m.Nights)+1))
		got := ""
		for _, f := range found {
			got = fmt.Sprintf("%d/%d %d/%d %d %s", f.Seen, f.Of, f.Before, f.OfBefore, f.Nights, strings.Fields(f.First)[1])
			require.Equal(t, tt.worse, f.Worse())
			require.Equal(t, "double-grant of "+map[campaign.Key]string{mutex: "mutex on sentinel, faults all", other: "fair on single"}[tt.key], f.String())
		}
		require.Equal(t, tt.want, got, tt)
	}
	require.Len(t, m.Nights, 6)
	dir := t.TempDir()
	require.NoError(t, m.Write(dir))
	read, err := campaign.Remember(dir)
	require.NoError(t, err)
	require.Equal(t, m, read)
	require.Len(t, m.Findings, 1)
	require.Equal(t, []any{uint64(15), 6 * time.Second, "seed 15", 22}, []any{m.Findings[0].Seed, m.Findings[0].After, m.Findings[0].Command, m.Findings[0].Runs})
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
			m, err := campaign.Remember(dir)
			assert.NoError(t, err)
			c, runs := night(fmt.Sprint(i), mutex, 1, 2)
			m.Add(c, runs, day(1))
			assert.NoError(t, m.Write(dir))
			assert.NoError(t, release())
		})
	}
	all.Wait()
	m, err := campaign.Remember(dir)
	require.NoError(t, err)
	require.Len(t, m.Nights, 8)
	require.Equal(t, 8, m.Findings[0].Nights)
	_, err = fleet.Hold(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, campaign.KnownFile)
	all, err := campaign.KnownIn(dir)
	require.NoError(t, err)
	require.Empty(t, all)
	require.NoError(t, os.WriteFile(path, []byte("- {kind: double-grant, topology: sentinel, why: replicas lag}\n- {kind: stuck, lock: fair, why: '#12'}\n"), 0o600))
	all, err = campaign.KnownIn(dir)
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
		"- {kind: stuck, why: b}\n---\n- {kind: stuck, why: c}\n": "there is more behind the first value",
		"- {kind: stuck, why: [b}\n":                              "known.yaml: ",
		"- {kind: &k stuck, why: *k}\n":                           "anchors, aliases and merge keys can't be used here",
		"- " + strings.Repeat("[", 20) + "\n":                     "nested deeper than",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err = campaign.KnownIn(dir)
		require.ErrorContains(t, err, want, text)
	}
}

func TestRemember_Refuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "EOF", "{}": "its format is 0", `{"format":1,"found":[]}`: `unknown field "found"`, `{"format":1,"findings":null,"nights":[`: "unexpected EOF", `{"format":1}}`: "there is more behind the value",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, campaign.FindingsFile), []byte(text), 0o600))
		_, err := campaign.Remember(dir)
		require.ErrorContains(t, err, want, text)
	}
}

func TestUnconvicted(t *testing.T) {
	t.Parallel()
	of := func(host string, kinds ...string) campaign.Judged {
		r := campaign.Judged{Host: host, Kinds: map[string]time.Duration{}}
		for _, k := range kinds {
			r.Kinds[k] = 0
		}
		return r
	}
	runs := []campaign.Judged{of("a"), of("b"), of("c"), of("a")}
	require.Equal(t, []string{"b", "c"}, campaign.Unconvicted(runs, []campaign.Judged{of("a"), of("a", "double-grant"), of("b")}))
}
