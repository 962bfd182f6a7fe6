package importers_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/checker/importers"
)

// mutex is a history as Jepsen writes it; two processes take turns.
const mutex = `{:process 0, :type :invoke, :f :acquire, :value nil, :time 10, :index 0}
{:process 1, :type :invoke, :f :acquire, :value nil, :time 11, :index 1}
{:process 0, :type :ok, :f :acquire, :value nil, :time 20, :index 2}
{:process :nemesis, :type :info, :f :start, :value [:isolated {"n1" #{"n2" "n3"}}], :time 25, :index 3}
{:process 0, :type :invoke, :f :release, :value nil, :time 30, :index 4}
{:process 0, :type :ok, :f :release, :value nil, :time 40, :index 5}
{:process 1, :type :ok, :f :acquire, :value nil, :time 50, :index 6}
`

func TestJepsen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, give string
		want       checker.Verdict
	}{
		{"turns", mutex, checker.Valid},
		{"as a vector", "[" + mutex + "]", checker.Valid},
		{"tagged", strings.ReplaceAll(mutex, "{:process", "#jepsen.history.Op{:process"), checker.Valid},
		{"without times", strings.NewReplacer(":time 10,", "", ":time 11,", "", ":time 20,", "", ":time 30,", "", ":time 40,", "", ":time 50,", "").Replace(mutex), checker.Valid},
		{"comments and discards", "; a comment\n#_{:process 7}\n" + mutex, checker.Valid},
		{"granted twice", strings.Replace(mutex, ":time 50", ":time 22", 1) +
			`{:process 1, :type :invoke, :f :release, :value nil, :time 60}`, checker.Valid}, // in the order of the file
		{"two holders", `
{:process 0, :type :invoke, :f :acquire, :value "u1", :time 1}
{:process 0, :type :ok, :f :acquire, :value {:client "c0", :fence 3, :uid "u1"}, :time 2}
{:process 1, :type :invoke, :f :acquire, :value "u2", :time 3}
{:process 1, :type :ok, :f :acquire, :value {:client "c1", :fence 4, :uid "u2"}, :time 4}`, checker.Invalid},
		{"an unknown acquire excuses nothing", `
{:process 0, :type :invoke, :f :acquire, :value nil}
{:process 0, :type :info, :f :acquire, :value nil, :error "timeout"}
{:process 1, :type :invoke, :f :acquire, :value nil}
{:process 1, :type :ok, :f :acquire, :value nil}
{:process 2, :type :invoke, :f :acquire, :value nil}
{:process 2, :type :ok, :f :acquire, :value nil}`, checker.Invalid},
		{"the next process of a thread gives back what the last may have got", `
{:process 0, :type :invoke, :f :acquire, :value nil}
{:process 1, :type :invoke, :f :acquire, :value nil}
{:process 0, :type :info, :f :acquire, :value nil}
{:process 2, :type :invoke, :f :release, :value nil}
{:process 2, :type :ok, :f :release, :value nil}
{:process 1, :type :ok, :f :acquire, :value nil}`, checker.Valid},
		{"keys apart", `
{:process 0, :type :invoke, :f :acquire, :value [0 nil]}
{:process 0, :type :ok, :f :acquire, :value [0 nil]}
{:process 1, :type :invoke, :f :acquire, :value [1 nil]}
{:process 1, :type :ok, :f :acquire, :value [1 nil]}
{:process 2, :type :invoke, :f :acquire, :value [1 nil]}
{:process 2, :type :fail, :f :acquire, :value [1 nil]}`, checker.Valid},
		{"empty", "", checker.Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, err := importers.Jepsen(strings.NewReader(test.give))
			require.NoError(t, err)
			r := checker.Check(t.Context(), h)
			require.Equal(t, test.want, r.Verdict, "%+v", r.Results)
		})
	}
}

func TestJepsenErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ give, want string }{
		{"\n\n{:process 0", `line 3: the file ends, want '}'`},
		{"{:process 0 :type}", "line 1: a map ends after a key, want its value"},
		{":acquire", "line 1: want a map of an operation"},
		{"{:type :invoke, :f :acquire}", "line 1: an operation has no :process"},
		{"{:process 0, :type :begin, :f :acquire}", "line 1: :type is :begin, want :invoke, :ok, :fail or :info"},
		{"\n{:process 0, :type :invoke, :f :read}", "line 2: :f is :read, want :acquire or :release"},
		{"{:process 0, :type :ok, :f :acquire}", "line 1: :acquire :ok of process 0 has no :invoke"},
		{"{:process 0, :type :invoke, :f :acquire}\n{:process 0, :type :invoke, :f :release}", "line 2: process 0 invokes :release while its :acquire is open"},
		{"{:process 0, :type :invoke, :f :acquire}\n{:process 0, :type :ok, :f :release}", "line 2: process 0 completes :release while its :acquire is open"},
		{"{:process 0, :type :invoke, :f :acquire, :time 1.5}", "line 1: :time is 1.5, want nanoseconds"},
		{`{:process 0, :error "\q"}`, `line 1: unknown escape \q in a string`},
		{"{:process 0, :error \"\xff\"}", "line 1: a string is not UTF-8"},
		{`{:process 0, :error "\ud800"}`, `line 1: \ud800 is half a character`},
		{"{:process 0, :type " + strings.Repeat("9", 1<<20) + "x}", "…"},
		{"}", "line 1: found '}', want a value"},
		{"{:process 12x}", `line 1: "12x" is no number`},
		{strings.Repeat("[", 2000), "line 1: values lie more than 1000 deep"},
	} {
		_, err := importers.Jepsen(strings.NewReader(test.give))
		require.ErrorContains(t, err, test.want)
		require.Less(t, len(err.Error()), 700)
	}
}

// The files of testdata are histories as Jepsen writes them; their names begin with
// what is to become of them.
func TestJepsenFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.edn")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		want, _, _ := strings.Cut(filepath.Base(file), "--")
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			h, err := importers.Jepsen(bytes.NewReader(content))
			if want == "refused" {
				require.ErrorContains(t, err, "a mutex")
				return
			}
			require.NoError(t, err)
			r := checker.Check(t.Context(), h)
			require.Equal(t, checker.Verdict(want), r.Verdict, "%+v", r.Results)
		})
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
		process int
		invoked string // empty: nothing is open
		applied string // what the service said, if it did
	}
	var b strings.Builder
	clients := make([]client, 1+rng.IntN(5))
	holds, next := make([]bool, len(clients)), make([]bool, len(clients))
	for i := range clients {
		clients[i].process = i
	}
	write := func(c *client, kind string) {
		fmt.Fprintf(&b, "{:process %d, :type :%s, :f :%s, :value nil}\n", c.process, kind, c.invoked)
	}
	timeouts := rng.IntN(4)
	for range 60 {
		i := rng.IntN(len(clients))
		c := &clients[i]
		switch {
		case c.invoked == "":
			c.invoked = "acquire"
			if next[i] {
				c.invoked = "release"
			}
			next[i] = !next[i]
			write(c, "invoke")
		case c.applied == "" && rng.IntN(10) < timeouts:
			write(c, "info")
			*c = client{process: c.process + len(clients)}
		case c.applied == "":
			free := !slices.Contains(holds, true)
			c.applied = "fail"
			if c.invoked == "acquire" && free || c.invoked == "release" && holds[i] {
				holds[i], c.applied = c.invoked == "acquire", "ok"
			}
		case rng.IntN(10) < timeouts:
			write(c, "info")
			*c = client{process: c.process + len(clients)}
		default:
			write(c, c.applied)
			*c = client{process: c.process}
		}
	}
	return b.String()
}

func FuzzJepsen(f *testing.F) {
	f.Add([]byte(mutex))
	f.Add([]byte(`[#inst "2026" \a "\u00e4" ##Inf 1/2 3N 4M #{} () #_ 1]`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		h, err := importers.Jepsen(strings.NewReader(string(data)))
		if err == nil && len(h.Events) < 100 {
			holding.Of(h) // must not panic either
		}
	})
}
