package importers_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/checker/importers"
)

func ExampleJepsen() {
	h, err := importers.Jepsen(strings.NewReader(`
		{:process 0, :type :invoke, :f :acquire, :value nil, :time 1000000}
		{:process 0, :type :ok,     :f :acquire, :value nil, :time 2000000}
		{:process 1, :type :invoke, :f :acquire, :value nil, :time 3000000}
		{:process 1, :type :ok,     :f :acquire, :value nil, :time 4000000}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	report := checker.Check(context.Background(), h, checker.MutualExclusion())
	fmt.Println(report.Verdict, report.Results[0].Violations[0].Kind)
	// Output: invalid double-grant
}

// The files of testdata are histories as Jepsen writes them; their names begin with what is to become of them, in
// whichever way they are written.
func TestJepsen(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.edn")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		want, _, _ := strings.Cut(filepath.Base(file), "--")
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		text := string(content)
		for _, text := range []string{
			text, "[" + text + "]", "(" + text + ") ; all of it",
			strings.ReplaceAll(text, "{:process", "#jepsen.history.Op{:process"),
			regexp.MustCompile(`, :time \d+`).ReplaceAllString(text, ""),
			strings.ReplaceAll(text, "{:process", `{:more [#inst "2026" \a "\u00e4\n" ##Inf 1/2 3N 4M 1e3 #{} () true nil], :process`),
		} {
			h, err := importers.Jepsen(strings.NewReader(text))
			if want == "refused" {
				require.ErrorContains(t, err, "a mutex")
				continue
			}
			require.NoError(t, err, "%s: %s", file, text)
			r := checker.Check(t.Context(), h)
			require.Equal(t, checker.Verdict(want), r.Verdict, "%s: %s%+v", file, text, r.Results)
		}
	}
}

// A service that locks rightly is never convicted, however its clients time out.
func TestJepsenConvictsNoCorrectLock(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		text := correctMutex(rand.New(rand.NewPCG(seed, 7)))
		h, err := importers.Jepsen(strings.NewReader(text))
		require.NoError(t, err, text)
		r := checker.Check(t.Context(), h)
		require.NotEqual(t, checker.Invalid, r.Verdict, "seed %d: %+v\n%s", seed, r.Results, text)
	}
}

// correctMutex is the history of a correct mutex and of threads that acquire and
// release it in turn. What timed out took effect by then, or never does.
func correctMutex(rng *rand.Rand) string {
	type client struct {
		process         int
		invoked, answer string // empty: nothing is open; the service said nothing
		releases, holds bool   // what it does next; what the service knows
	}
	var b strings.Builder
	clients := make([]client, 1+rng.IntN(5))
	for i := range clients {
		clients[i].process = i
	}
	timeouts := rng.IntN(4)
	for range 60 {
		c := &clients[rng.IntN(len(clients))]
		write := func(kind string) {
			fmt.Fprintf(&b, "{:process %d, :type :%s, :f :%s, :value nil}\n", c.process, kind, c.invoked)
		}
		switch {
		case c.invoked == "":
			c.invoked = map[bool]string{false: "acquire", true: "release"}[c.releases]
			c.releases = !c.releases
			write("invoke")
		case rng.IntN(10) < timeouts:
			write("info")
			c.process += len(clients)
			c.invoked, c.answer = "", ""
		case c.answer == "":
			free := !slices.ContainsFunc(clients, func(c client) bool { return c.holds })
			c.answer = "fail"
			if c.invoked == "acquire" && free || c.invoked == "release" && c.holds {
				c.holds, c.answer = !c.holds, "ok"
			}
		default:
			write(c.answer)
			c.invoked, c.answer = "", ""
		}
	}
	return b.String()
}

func FuzzJepsen(f *testing.F) {
	f.Add([]byte(`[{:process 0, :type :invoke, :f :acquire, :value nil, :time 10} #inst "2026" \a "\u00e4" ##Inf 1/2 3N 4M #{} ()]`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		h, err := importers.Jepsen(bytes.NewReader(data))
		if err == nil && len(h.Events) < 100 {
			holding.RecordOf(h).Derive() // must not panic either
		}
	})
}
