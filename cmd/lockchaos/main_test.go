package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

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
	commands["lockchaos"], commands[toxiproxyServer] = main, runToxiproxy
	testscript.Main(m, commands)
}

// toxiproxyServer is a command that is a stock toxiproxy: toxiproxy-server ADDRESS CONFIG. Its signals end it.
const toxiproxyServer = "toxiproxy-server"

func runToxiproxy() {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	server.PopulateConfig(os.Args[2])
	fmt.Fprintln(os.Stderr, server.Listen(os.Args[1]))
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
			"exits":   exits,
			"await":   await,
			"nothing": nothing,
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

// defects are programs with one defect each, which [TestMain] makes commands of.
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

// No defect ends the program with the code of a verdict.
func TestADefectIsNoVerdict(t *testing.T) {
	t.Parallel()
	const aborted = -1 // by a signal
	for _, test := range []struct {
		program string
		code    int
		says    string
	}{
		{"panics", exitHarness, "defects.func"},
		{"panics-alone", aborted, "defects.func"},
		{"recurses", aborted, "stack overflow"},
	} {
		t.Run(test.program, func(t *testing.T) {
			t.Parallel()
			var said bytes.Buffer
			cmd := exec.CommandContext(t.Context(), test.program)
			cmd.Dir, cmd.Stderr = t.TempDir(), &said
			exit, ok := errors.AsType[*exec.ExitError](cmd.Run())
			require.True(t, ok)
			require.Equal(t, test.code, exit.ExitCode(), "%s", said.String())
			require.Contains(t, said.String(), test.says)
		})
	}
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

	ask := func(path string) (int, string, http.Header) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body), resp.Header
	}
	code, body, header := ask("")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `href="./one/report.html"`)
	require.NotEmpty(t, header.Get("Refresh"))
	code, body, header = ask("one/report.html")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "results.json is missing")
	require.NotEmpty(t, header.Get("Refresh"))
	require.NoFileExists(t, filepath.Join(run, reports.HTMLFile))

	record(reports.HTMLFile, "the report")
	_, body, header = ask("one/report.html")
	require.Equal(t, "the report", body)
	require.Empty(t, header.Get("Refresh"))
	for _, path := range []string{"../secret", "..%2fsecret", "%2e%2e/secret", "one/../../secret"} {
		code, body, _ = ask(path)
		require.NotEqual(t, http.StatusOK, code, path)
		require.NotEqual(t, "secret", body, path)
	}
	stop()
	require.NoError(t, <-ended)
}
