package findings

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
)

// What is in the program can be played: its drivers are there, and nothing is missing.
func TestAll(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, f := range all {
		if f.Issue == "" {
			require.Contains(t, Markdown([]Finding{f}), "none found when we looked", f.Name)
		}
		if f.Issue == "" && f.View == "not asked" && f.Fixed == "" {
			require.FileExists(t, "reports/"+f.Name+".md", "a draft for the maintainers")
		}
		require.Contains(t, Markdown(all), "| `"+f.Name+"` | "+f.Library.Name)
	}
	some, err := ByName(all, []string{all[1].Name})
	require.NoError(t, err)
	require.Equal(t, all[1:2], some)
	_, err = ByName(all, []string{all[1].Name + "s"})
	require.ErrorContains(t, err, "did you mean "+all[1].Name)
}

const whole = `library: sherlock
language: python
version: 0.4.1
kind: double-grant
finding: It excludes no other client.
driver: sherlock_lock.py none
packages: [sherlock==0.4.1]
run: --faults none
rate: {found: 1, of: 3}
control: {found: 0, of: 3}
view: defect
`

func TestParse(t *testing.T) {
	f, err := parse("x.yaml", []byte(whole))
	require.NoError(t, err)
	require.Equal(t, "x", f.Name)
	require.Equal(t, "1 of 3 (6–79 %)", f.Rate.String())
	for _, tt := range []struct{ old, new, want string }{
		{"view: defect", "view: bug", "x.yaml: unknown view \"bug\""},
		{"double-grant", "doubled", `unknown kind of violation "doubled"`},
		{"sherlock_lock.py", "sherlok.py", "it needs a driver that is there"},
		{"found: 1", "found: 4", "4 of 3 is no rate"},
		{"found: 1", "found: 0", "no run showed it"},
		{"language: python", "language: perl", `no package manager is known for language "perl"`},
		{"version: 0.4.1", "version: 0.4.1\nfixed: 0.5", "a fixed version has packages and a rate"},
		{"view: defect", "view: defect\nissue: sherlock 37", `the issue "sherlock 37" is no address`},
		{"version: 0.4.1", "versions: 0.4.1", "unknown field"},
		{"run: --faults none\n", "", "it has no finding or no run"},
	} {
		_, err := parse("x.yaml", []byte(strings.Replace(whole, tt.old, tt.new, 1)))
		require.ErrorContains(t, err, tt.want)
	}
}

// A folder that was installed is used again, with the drivers of this program; one that was not is made anew.
func TestInstall(t *testing.T) {
	for language, m := range managers() {
		require.NotEmpty(t, m.install, language)
		require.NotEmpty(t, of(m.start, "file.py"), language)
	}
	f, err := parse("x.yaml", []byte(whole))
	require.NoError(t, err)
	p := Player{Cache: t.TempDir(), Log: t.Output()}
	mark := filepath.Join(p.Cache, "mark")
	require.ErrorContains(t, p.make(t.Context(), p.Cache, "true\nfalse", nil, mark, ""), "false: exit status 1")
	require.NoFileExists(t, mark)
	require.NoError(t, p.make(t.Context(), p.Cache, "true", nil, mark, ""))
	require.FileExists(t, mark)
	r := p.Play(t.Context(), Finding{Library: Library{Language: "go", Driver: "redsync_v8.go", Packages: []string{"no such package"}}}, 1, false)
	require.Contains(t, r.Failed, "install the library")
	require.True(t, r.Uninstalled)
	require.Equal(t, checker.Unknown, r.Verdict())
	require.Equal(t, "sherlock", f.Library.Name)
}

// Each library that can be run by name has its driver, and a topology to be on.
func TestSubjects(t *testing.T) {
	all, known, err := Subjects()
	require.NoError(t, err)
	require.Len(t, known, len(all))
	rows, err := Rows([]string{"mutex", "lib:redis-py", "lib:redis-py@single"})
	require.NoError(t, err)
	require.Equal(t, []string{"mutex", "lib:redis-py@single", "lib:redis-py@sentinel", "lib:redis-py@cluster", "lib:redis-py@single"}, rows)
	rows, err = Rows([]string{"lib:all"})
	require.NoError(t, err)
	require.Greater(t, len(rows), len(known))
	_, err = Rows([]string{"lib:redison-lock"})
	require.ErrorContains(t, err, "did you mean redisson-lock")
	_, err = Player{}.Lock(t.Context(), "lib:redison-lock")
	require.ErrorContains(t, err, "did you mean redisson-lock")
	name, err := Player{}.Lock(t.Context(), "mutex")
	require.NoError(t, err)
	require.Equal(t, "mutex", name)
	const line = "redis-py: {library: redis-py, version: 8.1.0, language: python, driver: redis_py_lock.py none, packages: [redis==8.1.0], topologies: [single]}"
	for _, tt := range []struct{ old, new, want string }{
		{"[single]", "[sinlge]", "did you mean single"},
		{"[single]", "[]", "redis-py: it has no topology"},
		{"version: 8.1.0, ", "", "redis-py: it has no library or no version"},
		{"version", "versions", "unknown field"},
	} {
		_, err := parseSubjects([]byte(strings.Replace(line, tt.old, tt.new, 1)))
		require.ErrorContains(t, err, tt.want)
	}
}
