package lock

import (
	"strings"
	"testing"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// Each file is part of a script, and each script has a name and compiles.
func TestScriptsAreMadeOfTheFiles(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t, nil)
	named := map[string]string{}
	var all strings.Builder
	for name, source := range Scripts() {
		digest, err := rdb.ScriptLoad(t.Context(), source).Result()
		require.NoError(t, err, name)
		require.Len(t, named[digest], 0, "two names for one script")
		require.Equal(t, digest, scripts()[name].Digest, name)
		named[digest] = name
		all.WriteString(source)
	}
	files, err := scriptFiles.ReadDir("scripts")
	require.NoError(t, err)
	for _, file := range files {
		text, err := scriptFiles.ReadFile("scripts/" + file.Name())
		require.NoError(t, err)
		require.True(t, strings.Contains(all.String(), string(text)), file.Name())
	}
}

// A kind sends the scripts that are named after it.
func TestScriptsOfTheKinds(t *testing.T) {
	c := closedClient(t)
	for prefix, kind := range map[string]*kind{
		"": kinds.mutex, "fair_": kinds.fair, "rw_": kinds.write, "semaphore_": permitsKind(1, true),
	} {
		o := c.object("name", kind)
		g := o.grant(Options{})
		extend := prefix
		if kind == kinds.fair {
			extend = ""
		}
		require.Equal(t, scripts()[prefix+"acquire"].Digest, kind.acquire(g).Script.Digest)
		require.Equal(t, scripts()[extend+"extend"].Digest, kind.extend(g, 1).Script.Digest)
		require.Equal(t, scripts()[prefix+"release"].Digest, kind.release(g, false).Script.Digest)
		if kind.force != nil {
			require.Equal(t, scripts()[prefix+"force"].Digest, kind.force(&o).Script.Digest)
		}
	}
}
