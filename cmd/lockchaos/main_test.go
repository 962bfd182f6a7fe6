//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// raceOptions is the environment variable that the race detector reads.
const raceOptions = "GORACE"

func TestMain(m *testing.M) {
	// With the race detector each program would sleep for a second before it exits.
	if _, set := os.LookupEnv(raceOptions); !set {
		_ = os.Setenv(raceOptions, "atexit_sleep_ms=10")
	}
	commands := defects()
	commands["lockchaos"] = main
	testscript.Main(m, commands)
}

// TestCommandLine drives the program as a user does. The scripts in testdata
// that begin with server_ start real servers.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	scripts(t, "testdata")
}

// TestSimulate_NoRace drives simulations in the same way.
func TestSimulate_NoRace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: searches take some seconds of processor time")
	}
	t.Parallel()
	scripts(t, "testdata/simulations")
}

func scripts(t *testing.T, dir string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			// Data folders of servers go where the script can look for them.
			tmp := filepath.Join(env.WorkDir, "tmp")
			env.Setenv("TMPDIR", tmp)
			for _, name := range []string{raceOptions, "GOGC"} { // scripts have no other variables of ours
				env.Setenv(name, os.Getenv(name))
			}
			env.Values["scene"] = &scene{tb: env.T().(testing.TB)}
			return os.Mkdir(tmp, 0o755)
		},
		Condition: func(cond string) (bool, error) {
			if cond != "servers" {
				return false, errors.New("unknown condition " + cond)
			}
			_, err := process.Find(t.Context(), topologies.StoreRedis)
			if err != nil && os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
				return false, err
			}
			return err == nil && !testing.Short(), nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    exits,
			"await":    await,
			"signal":   signaled,
			"exited":   exited,
			"attached": attached,
			"links":    links,
			"nothing":  nothing,
		},
	})
}

// exits runs a command and checks its exit code: exits CODE COMMAND...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// patience bounds the wait for what comes at once on an idle machine.
const patience = 2 * time.Minute

// await waits until a file matches a pattern and is not empty: await GLOB.
func await(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		files, err := filepath.Glob(ts.MkAbs(args[0]))
		ts.Check(err)
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.Size() > 0 {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	ts.Fatalf("%s did not come", args[0])
}

// A scene is what the commands of a script share.
type scene struct {
	tb       testing.TB
	signaled *exec.Cmd // to which a signal was sent last

	server    *redis.Client // which lockchaos did not start
	toxiproxy *toxiproxy.ApiServer
	whole     string // what the toxiproxy says of its links before the first fault
	gone      func() // ends the API of the toxiproxy
}

func sceneOf(ts *testscript.TestScript) *scene { return ts.Value("scene").(*scene) }

// signaled sends a signal to the command that was started last, unless that has ended: signal NAME.
func signaled(ts *testscript.TestScript, _ bool, args []string) {
	started := ts.BackgroundCmds()
	cmd := started[len(started)-1]
	if err := cmd.Process.Signal(unix.SignalNum("SIG" + args[0])); !errors.Is(err, os.ErrProcessDone) {
		ts.Check(err)
	}
	sceneOf(ts).signaled = cmd
}

// exited checks, after a wait, the exit code of the command to which a signal was sent: exited CODE.
func exited(ts *testscript.TestScript, _ bool, args []string) {
	if state := sceneOf(ts).signaled.ProcessState; strconv.Itoa(state.ExitCode()) != args[0] {
		ts.Fatalf("it ended with %v, want exit code %s", state, args[0])
	}
}

// attached starts a Redis server and a stock toxiproxy before it, neither of lockchaos, whose addresses are in SERVER and TOXIPROXY.
func attached(ts *testscript.TestScript, _ bool, _ []string) {
	s := sceneOf(ts)
	s.server = runtest.Start(s.tb, process.Backend{}, topologies.Single, topologies.Options{}).Server("redis-1").Observer()
	at := s.server.Options().Addr
	host, _, err := net.SplitHostPort(at) // at which lockchaos looks for all that is of loopback alone
	ts.Check(err)
	s.toxiproxy = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	config := fmt.Sprintf(`[{"name":"zone-a>redis-1","listen":"%[1]s:0","upstream":"%[2]s","enabled":true},
		{"name":"zone-b>redis-1","listen":"%[1]s:0","upstream":"%[2]s","enabled":true}]`, host, at)
	_, err = s.toxiproxy.Collection.PopulateJson(s.toxiproxy, strings.NewReader(config))
	ts.Check(err)
	api := httptest.NewUnstartedServer(s.toxiproxy.Routes())
	ts.Check(api.Listener.Close())
	api.Listener, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	ts.Check(err)
	api.Start()
	s.gone = api.Close
	s.tb.Cleanup(func() {
		api.Close()
		require.NoError(s.tb, s.toxiproxy.Collection.Clear())
	})
	s.whole = s.links()
	ts.Setenv("SERVER", at)
	ts.Setenv("TOXIPROXY", api.Listener.Addr().String())
}

// links is what the toxiproxy says of its links, with all toxics.
func (s *scene) links() string {
	said := httptest.NewRecorder()
	s.toxiproxy.ProxyIndex(said, nil)
	return said.Body.String()
}

// links waits until a link has a fault (links broken), checks that none has, and that of lockchaos' own keys the server has none
// that does not end by itself, and no claim (links whole), or ends what could mend them (links lost).
func links(ts *testscript.TestScript, _ bool, args []string) {
	s := sceneOf(ts)
	switch args[0] {
	case "broken":
		require.Eventually(s.tb, func() bool { return s.links() != s.whole }, patience, 20*time.Millisecond)
	case "lost":
		s.gone()
	default:
		require.JSONEq(s.tb, s.whole, s.links())
		keys, err := s.server.Keys(s.tb.Context(), "*").Result()
		ts.Check(err)
		for _, key := range keys {
			require.Regexp(s.tb, "^lockchaos:", key)
			require.NotEqual(s.tb, "lockchaos:claim", key)
			require.NotEqual(s.tb, time.Duration(-1), s.server.PTTL(s.tb.Context(), key).Val(), "%s has no end", key)
		}
	}
}

// nothing waits until no process works in a folder and it is empty, and fails
// if that does not come: nothing FOLDER.
func nothing(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	deadline := time.Now().Add(patience)
	for {
		left := leftovers(dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("left behind: %s", strings.Join(left, ", "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func leftovers(dir string) []string {
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range cwds {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			left = append(left, link)
		}
	}
	return left
}

// defects are programs with one defect each, which [TestMain] makes commands of. None ends with the code of a verdict.
func defects() map[string]func() {
	program := func(run func()) func() {
		return func() {
			os.Exit(guarded(os.Stderr, func() int { //nolint:forbidigo // each is a program of its own
				run()
				return exitValid
			}))
		}
	}
	return map[string]func(){
		"panics": program(func() { panic("a defect") }),
		"panics-alone": program(func() {
			go panic("a defect")
			select {}
		}),
		"recurses": program(func() { _ = recurse(1) }),
	}
}

func recurse(n int) int {
	if n == 0 {
		return 0
	}
	return recurse(n+1) + 1
}

// What the program says without a server is in testdata/says.list: for each command its exit code, its words, and patterns
// of what it prints, or of its complaint where the code is not a verdict (!: has not). A line that begins with a tab goes
// on with the one before. They are played in this process, one after another, in a folder that has the files.
func TestSays(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/says.list")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	for _, f := range archive.Files {
		require.NoError(t, os.MkdirAll(filepath.Dir(f.Name), 0o755))
		require.NoError(t, os.WriteFile(f.Name, f.Data, 0o600))
	}
	for line := range strings.Lines(strings.ReplaceAll(string(archive.Comment), "\n\t", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, " :: ")
		words := shellWords(parts[0])
		var stdout, stderr bytes.Buffer
		code := run(words[1:], &stdout, &stderr)
		require.Equal(t, words[0], strconv.Itoa(code), "%s\n%s%s", line, &stdout, &stderr)
		said := stdout.String()
		if code > exitUnknown {
			said = stderr.String()
		}
		for _, pattern := range parts[1:] {
			pattern, not := strings.CutPrefix(pattern, "! ")
			require.Equal(t, !not, regexp.MustCompile("(?m)"+pattern).MatchString(said), "%s\n%s", line, said)
		}
		require.NoDirExists(t, "reports", line)
		require.NoDirExists(t, "cached", line)
	}
}

// A served folder shows its runs, and of the one that is under way what there
// is, to this machine alone, until it is stopped.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := filepath.Join(dir, "one")
	require.NoError(t, os.Mkdir(run, 0o755))
	record := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(run, name), []byte(content), 0o644))
	}
	record(reports.RunFile, `{"version":1,"seed":1,"topology":{"name":"single","nodes":[],"links":[]},"lock":"mutex"}`)
	record(reports.HistoryFile, `{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a"}`+"\n"+`{"time":1`)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(dir), "secret"), []byte("secret"), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	a := &app{stdout: w, stderr: io.Discard}
	ended := make(chan error, 1)
	go func() { ended <- a.serve(ctx, dir, 0) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	base := strings.TrimSpace(line)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/$`, base)

	ask := func(path string) (int, string, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body), resp.Header.Get("Refresh")
	}
	for path, has := range map[string]string{"": `href="./one/report.html"`, "one/report.html": "results.json is missing"} {
		code, body, refresh := ask(path)
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, has)
		require.NotEmpty(t, refresh)
	}
	require.NoFileExists(t, filepath.Join(run, reports.HTMLFile))
	record(reports.HTMLFile, "the report")
	_, body, refresh := ask("one/report.html")
	require.Equal(t, "the report", body)
	require.Empty(t, refresh)
	for _, path := range []string{"../secret", "..%2fsecret", "%2e%2e/secret", "one/../../secret"} {
		code, body, _ := ask(path)
		require.NotEqual(t, http.StatusOK, code, path)
		require.NotEqual(t, "secret", body, path)
	}
	stop()
	require.NoError(t, <-ended)
}
