package fleet_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/internal/names"
)

func header(shard fleet.Shard) fleet.Header {
	return fleet.Header{Program: "v1", Build: "aa", Command: "lockchaos run --lock mutex", Seeds: "1-20", Shard: shard.String()}
}

func play(t require.TestingT, j *fleet.Journal, seeds []uint64) {
	for _, seed := range seeds {
		require.NoError(t, j.Append(fleet.Run{Job: fleet.Job("", seed)}, map[string]uint64{"seed": seed}))
	}
}

func TestParseShard(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, there := map[string]string{"INDEX": "0", "LAST": "7", "BEYOND": "8", "WORD": "x", "EMPTY": ""}[name]
		return v, there
	}
	for text, want := range map[string]string{"": "", "1/1": "1/1", "2/8": "2/8", "8/8": "8/8", "@INDEX/8": "1/8", "@LAST/8": "8/8"} {
		s, err := fleet.ParseShard(text, lookup)
		require.NoError(t, err, text)
		require.Equal(t, want, s.String())
	}
	for text, want := range map[string]string{
		"2": `want I/N, such as 2/8`, "0/8": "from 1 to 8", "9/8": "from 1 to 8", "-1/8": "from 1 to 8", "a/8": "from 1 to 8", "1/0": "want I/N", "1/x": "want I/N", "/": "want I/N",
		"@BEYOND/8": `BEYOND must be a whole number from 0 to 7, and is "8"`, "@WORD/8": `is "x"`, "@EMPTY/8": `is ""`, "@NOPE/8": `NOPE must be`,
	} {
		_, err := fleet.ParseShard(text, lookup)
		require.ErrorContains(t, err, want, text)
	}
}

// Shards are all jobs, each once, and none has two more than another.
func TestPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := make([]int, rapid.IntRange(0, 50).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = i
		}
		n := rapid.IntRange(1, 60).Draw(t, "shards")
		var all, sizes []int
		for i := range n {
			part := fleet.Part(fleet.Shard{Index: i + 1, Of: n}, jobs)
			all, sizes = append(all, part...), append(sizes, len(part))
		}
		slices.Sort(all)
		require.Equal(t, jobs, append([]int{}, all...))
		require.LessOrEqual(t, slices.Max(sizes)-slices.Min(sizes), 1)
		require.Equal(t, jobs, fleet.Part(fleet.Shard{}, jobs))
	})
}

// Processes that are killed at any byte of their journals and resumed, copies of folders, and any order of folders
// make the campaign that one process plays.
func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "fleet-") //nolint:usetesting // rapid's T has no TempDir
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		var dirs, want, missing []string
		played, cut := map[string]bool{}, 0
		n := rapid.IntRange(1, 5).Draw(t, "shards")
		for i := range n {
			s, at := fleet.Shard{Index: i + 1, Of: n}, filepath.Join(dir, fmt.Sprint("shard-", i))
			require.NoError(t, os.Mkdir(at, 0o755))
			h := header(s)
			h.Seeds = "1-8"
			part := fleet.Part(s, []uint64{1, 2, 3, 4, 5, 6, 7, 8})
			j, err := fleet.Open(at, h, false)
			require.NoError(t, err)
			play(t, j, part)
			require.NoError(t, j.Close())
			for range rapid.IntRange(0, 2).Draw(t, "kills") {
				info, err := os.Stat(filepath.Join(at, fleet.JournalFile))
				require.NoError(t, err)
				require.NoError(t, os.Truncate(filepath.Join(at, fleet.JournalFile), rapid.Int64Range(0, info.Size()).Draw(t, "bytes")))
				had, _ := fleet.Read(at)
				if !rapid.Bool().Draw(t, "resumed") {
					break
				}
				j, err := fleet.Open(at, h, true)
				require.NoError(t, err)
				for i, seed := range part {
					require.Equal(t, i < len(had.Runs), len(j.Of(fleet.Job("", seed))) == 1)
				}
				play(t, j, part[len(had.Runs):])
				require.NoError(t, j.Close())
			}
			p, err := fleet.Read(at)
			if err != nil { // not even the header is whole
				require.ErrorIs(t, err, os.ErrNotExist)
				continue
			}
			dirs = append(dirs, at)
			if rapid.Bool().Draw(t, "copied") {
				dirs = append(dirs, at+"-copy")
				require.NoError(t, os.CopyFS(at+"-copy", os.DirFS(at)))
			}
			for _, r := range p.Runs {
				played[r.Job] = true
			}
		}
		if len(dirs) == 0 {
			return
		}
		for seed := range uint64(8) {
			if job := fleet.Job("", seed+1); played[job] {
				want = append(want, job)
			} else {
				missing = append(missing, job)
			}
		}
		for _, at := range dirs {
			if p, err := fleet.Read(at); err == nil && p.Cut {
				cut++
			}
		}
		c, err := fleet.Join(rapid.Permutation(dirs).Draw(t, "order"))
		require.NoError(t, err)
		require.Equal(t, want, names.Of(c.Runs, func(r fleet.Run) string { return r.Job }))
		require.Equal(t, missing, c.Missing)
		require.Zero(t, c.Repeated)
		require.Len(t, c.Cut, cut)
		again, err := fleet.Join(rapid.Permutation(dirs).Draw(t, "another order"))
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

// A second try of a shard is other draws of its seeds, which count. Of a campaign whose runs are the same each time they count
// once; where they differ all the same, none hides the other.
func TestJoin_SecondTry(t *testing.T) {
	for _, tt := range []struct {
		same     bool
		tries    []string // the result of seed 1 in each
		want     string
		repeated int
	}{
		{false, []string{"0", "0"}, "00", 1},
		{true, []string{"0", "0"}, "0", 0},
		{true, []string{"0", "1", "0"}, "01", 1},
	} {
		var dirs []string
		for _, result := range tt.tries {
			dir := t.TempDir()
			h := header(fleet.Shard{})
			h.Seeds, h.Same = "1-2", tt.same
			j, err := fleet.Open(dir, h, false)
			require.NoError(t, err)
			require.NoError(t, j.Append(fleet.Run{Job: "seed 1"}, json.RawMessage(result)))
			require.NoError(t, j.Close())
			dirs = append(dirs, dir)
		}
		c, err := fleet.Join(dirs)
		require.NoError(t, err)
		got := ""
		for _, r := range c.Runs {
			got += string(r.Result)
		}
		require.Equal(t, tt.want, got)
		require.Equal(t, tt.repeated, c.Repeated)
		require.Equal(t, []string{"seed 2"}, c.Missing)
	}
}

// What is not of one campaign is refused, and why is said.
func TestJoin_Refuses(t *testing.T) {
	base := header(fleet.Shard{Index: 1, Of: 2})
	base.Files = map[string]string{"driver.py": "aa"}
	for name, c := range map[string]struct {
		change func(*fleet.Header, *fleet.Run)
		want   string
	}{
		"program":    {func(h *fleet.Header, _ *fleet.Run) { h.Program = "v2" }, "the program is v1, and v2"},
		"build":      {func(h *fleet.Header, _ *fleet.Run) { h.Build = "bb" }, "the file of the program has the SHA-256 aa, and bb"},
		"command":    {func(h *fleet.Header, _ *fleet.Run) { h.Command = "lockchaos run --lock redlock" }, "--lock mutex, and lockchaos run --lock redlock"},
		"seeds":      {func(h *fleet.Header, _ *fleet.Run) { h.Seeds = "1-21" }, "the seeds are 1-20, and 1-21"},
		"cells":      {func(h *fleet.Header, _ *fleet.Run) { h.Cells = []string{"a"} }, "the cells are [], and [a]"},
		"driver":     {func(h *fleet.Header, _ *fleet.Run) { h.Files = map[string]string{"driver.py": "bb"} }, "the files of the driver are [driver.py:aa], and [driver.py:bb]"},
		"no driver":  {func(h *fleet.Header, _ *fleet.Run) { h.Files = nil }, "the files of the driver are [driver.py:aa], and []"},
		"plan":       {func(h *fleet.Header, _ *fleet.Run) { h.Plan = []byte(`{"a":1}`) }, "the machines can play other cells"},
		"simulated":  {func(h *fleet.Header, _ *fleet.Run) { h.Same = true }, "virtual time"},
		"abilities":  {func(_ *fleet.Header, r *fleet.Run) { r.LeftOut = []string{"clock"} }, `can make other faults`},
		"other seed": {func(_ *fleet.Header, r *fleet.Run) { r.Job = "seed 21" }, "seed 21 is none of the seeds 1-20"},
	} {
		t.Run(name, func(t *testing.T) {
			var dirs []string
			for i := range 2 {
				h, r := base, fleet.Run{Job: fleet.Job("", uint64(i+1))}
				h.Shard = fleet.Shard{Index: i + 1, Of: 2}.String()
				if i == 1 {
					c.change(&h, &r)
				}
				dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
				require.NoError(t, os.Mkdir(dir, 0o755))
				j, err := fleet.Open(dir, h, false)
				require.NoError(t, err)
				require.NoError(t, j.Append(r, 1))
				require.NoError(t, j.Close())
				dirs = append(dirs, dir)
			}
			_, err := fleet.Join(dirs)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := fleet.Join(nil)
	require.ErrorContains(t, err, "no folder")
	_, err = fleet.Join([]string{t.TempDir()})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Of the words of a driver's command the files are known by what is in them.
func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my driver.py")
	require.NoError(t, os.WriteFile(path, []byte("a"), 0o600))
	files, err := fleet.Files("python3 '"+path+"'>log --from "+filepath.Dir(path)+" nowhere.py", "sh")
	require.NoError(t, err)
	require.Equal(t, map[string]string{path: "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}, files)
}

// A journal that somebody changed is refused, by its line; one that is resumed by another campaign or shard, too.
func TestRead_Refuses(t *testing.T) {
	const head = `{"format":1,"program":"v1","build":"aa","command":"c","seeds":"1-3"}` + "\n"
	for give, want := range map[string]string{
		"\n":                             `runs.jsonl:1: `,
		"{}\n":                           "its format is 0",
		head[:10] + `2` + head[11:] + "": "its format is 2",
		head + "x\n":                     `runs.jsonl:2: `,
		head + `{"id":"a"}` + "\n":       "needs a job",
		head + `{"id":"a","job":"seed 1","result":1}` + "\n" + `{"id":"a","job":"seed 2","result":1}` + "\n": "runs.jsonl:3: a run needs a job, and an id that no other has",
		head + `{"id":"a","job":"seed 1","result":1,"more":2}` + "\n":                                        "more",
		head + `{"id":"a","job":"seed 1","dir":"../x","result":1}` + "\n":                                    `the run directory "../x" is not beside the journal`,
		head + `{"id":"a","job":"seed 1","dir":"/x","result":1}` + "\n":                                      `the run directory "/x" is not beside the journal`,
		head + `{"id":"a","job":"seed 1","dir":"..","result":1}` + "\n":                                      `the run directory ".." is not beside the journal`,
		head + `{"id":"a","job":"seed 1","dir":".","result":1}` + "\n":                                       `the run directory "." is not beside the journal`,
		head + `{"id":"a","job":"seed 1","result":1} {}` + "\n":                                              "there is more behind the value",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, fleet.JournalFile), []byte(give), 0o600))
		_, err := fleet.Read(dir)
		require.ErrorContains(t, err, want, give)
	}

	dir := t.TempDir()
	j, err := fleet.Open(dir, header(fleet.Shard{Index: 1, Of: 2}), false)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	_, err = fleet.Open(dir, header(fleet.Shard{Index: 1, Of: 2}), false)
	require.ErrorIs(t, err, os.ErrExist)
	_, err = fleet.Open(dir, header(fleet.Shard{Index: 2, Of: 2}), true)
	require.ErrorContains(t, err, `the shard is "1/2", and "2/2"`)
	other := header(fleet.Shard{Index: 1, Of: 2})
	other.Build = "bb"
	_, err = fleet.Open(dir, other, true)
	require.ErrorContains(t, err, "the file of the program")
}
