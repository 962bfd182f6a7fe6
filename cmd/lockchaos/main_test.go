package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"

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
			_, err := process.FindBinary(t.Context())
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
