//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// A foreign is a Redis server behind a stock toxiproxy, neither started by lockchaos.
type foreign struct {
	server *redis.Client
	api    string // of the toxiproxy
	stop   func() // ends the toxiproxy
}

// await waits until a condition holds.
func awaits(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 20*time.Millisecond, what)
}

// lockchaos is the program, which is the test binary under this name. It ends with the tests.
func lockchaos(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("lockchaos")
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// runForeign starts one until the test ends.
func runForeign(t *testing.T) foreign {
	t.Helper()
	d := runtest.Start(t, process.Backend{}, topologies.Single, topologies.Options{})
	f := foreign{server: d.Server("redis-1").Observer()}

	dir := t.TempDir()
	host, _, err := net.SplitHostPort(f.server.Options().Addr) // which is the deployment's alone
	require.NoError(t, err)
	config := fmt.Sprintf(`[{"name":"zone-a>redis-1","listen":"%[1]s:21111","upstream":"%[2]s","enabled":true},
		{"name":"zone-b>redis-1","listen":"%[1]s:21121","upstream":"%[2]s","enabled":true}]`, host, f.server.Options().Addr)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "proxies.json"), []byte(config), 0o600))
	cmd := exec.Command(toxiproxyServer, net.JoinHostPort(host, "21100"), filepath.Join(dir, "proxies.json"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	f.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(f.stop)
	f.api = net.JoinHostPort(host, "21100")
	awaits(t, "toxiproxy", func() bool { return strings.Count(f.proxies(), `"listen"`) == 2 })
	return f
}

// proxies are the toxiproxy's, with all that lies on them.
func (f foreign) proxies() string {
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + f.api + "/proxies")
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	said, _ := io.ReadAll(response.Body)
	return string(said)
}

// command is the program, attached to it.
func (f foreign) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return lockchaos(t, append(args, "--backend", "attach", "--toxiproxy", f.api, "--yes", "--out", filepath.Join(t.TempDir(), "run"))...)
}

// TestWhateverEndsAnAttachedRunItsFaultsAreMended ends runs while a fault is in
// effect.
func TestWhateverEndsAnAttachedRunItsFaultsAreMended(t *testing.T) {
	t.Parallel()
	f := runForeign(t)
	before := f.proxies()
	// The reader's end of the pipe for all output, or a signal.
	const pipe = syscall.Signal(0)
	for name, end := range map[string]syscall.Signal{
		"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP, "a reader that has read enough": pipe,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := f.command(t, "run", "--duration", "10m")
			output := f.start(t, cmd)
			awaits(t, "a fault", func() bool { return f.proxies() != before })
			if end == pipe {
				require.NoError(t, output.Close())
			} else {
				send(t, cmd, end)
			}
			_ = cmd.Wait()
			require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%v", cmd.ProcessState)
			require.JSONEq(t, before, f.proxies())
			f.requireClean(t)
			run, err := os.ReadFile(filepath.Join(cmd.Args[len(cmd.Args)-1], "run.json"))
			require.NoError(t, err)
			require.Contains(t, string(run), `"interrupted": true`)
		})
	}
}

// requireClean checks that there is no claim, and no key of ours that does not go
// by itself.
func (f foreign) requireClean(t *testing.T) {
	t.Helper()
	keys, err := f.server.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		require.True(t, strings.HasPrefix(key, "lockchaos:"), key)
		require.NotEqual(t, "lockchaos:claim", key)
		require.NotEqual(t, time.Duration(-1), f.server.PTTL(t.Context(), key).Val(), "%s has no end", key)
	}
}

func send(t *testing.T, cmd *exec.Cmd, s os.Signal) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(s))
}

// start starts the command with a pipe for all that it says, of which the first
// line is read.
func (f foreign) start(t *testing.T, cmd *exec.Cmd) io.Closer {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = read.Close()
	})
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "lockchaos run")
	return read
}

// What can't be mended is told of after Ctrl-C, also by commands that make many
// runs: here the toxiproxy is gone that would mend it.
func TestCtrlCDuringManyRunsHidesNoFailedHeal(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "held.yaml")
	require.NoError(t, os.WriteFile(script, []byte(`
name: held
title: a request that waits
topology: single
lock: mutex
clients: {a: zone-a}
expect: {verdict: valid}
steps:
  - {inject: cut, target: zone-a}
  - {client: a, acquire: l, wait: 9s}
`), 0o600))
	for name, args := range map[string][]string{
		"run":       {"run", "--seeds", "1-2", "--duration", "10m"},
		"reproduce": {"reproduce", script, "--repeat", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := runForeign(t)
			before := f.proxies()
			cmd := f.command(t, args...)
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			require.NoError(t, cmd.Start())
			awaits(t, "a fault", func() bool { return f.proxies() != before })
			f.stop()
			send(t, cmd, syscall.SIGINT)
			_ = cmd.Wait()
			require.Equal(t, 255, cmd.ProcessState.ExitCode(), "%s", &said)
			// The links are tried in the order of their names.
			require.Contains(t, said.String(), "not everything could be undone: left behind: restore zone-a>redis-1")
		})
	}
}

// TestTheNextRunMendsWhatAKilledOneLeft kills runs that can't mend anything, at
// once and while they mend.
func TestTheNextRunMendsWhatAKilledOneLeft(t *testing.T) {
	t.Parallel()
	f := runForeign(t)
	before := f.proxies()
	// The locks of the killed run are its own until their leases end.
	mending := []string{"run", "--faults", "none", "--duration", "1s", "--lock", "memory"}
	for name, signals := range map[string][]os.Signal{
		"SIGKILL":     {syscall.SIGKILL},
		"two SIGINTs": {syscall.SIGINT, syscall.SIGINT},
	} {
		t.Run(name, func(t *testing.T) {
			killed := f.command(t, "run", "--duration", "10m")
			f.start(t, killed)
			awaits(t, "a fault", func() bool { return f.proxies() != before })
			for _, s := range signals {
				_ = killed.Process.Signal(s) // it may have ended
			}
			_ = killed.Wait()
			require.NotEqual(t, 0, killed.ProcessState.ExitCode())

			refused, err := f.command(t, mending...).CombinedOutput()
			if f.server.Exists(t.Context(), "lockchaos:claim").Val() == 1 {
				require.Error(t, err)
				require.Contains(t, string(refused), "another run drives this deployment")
				require.Contains(t, string(refused), fmt.Sprintf("process %d on ", killed.Process.Pid))
				require.NoError(t, f.server.Del(t.Context(), "lockchaos:claim").Err(), "as it says")
			}
			out, err := f.command(t, mending...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.JSONEq(t, before, f.proxies())
		})
	}
}

// What the servers can't have is said before anything happens to them.
func TestAnAttachedRunSaysWhatItCantDo(t *testing.T) {
	t.Parallel()
	f := runForeign(t)
	dir := t.TempDir()
	script := func(name, more, step string) string {
		path := filepath.Join(dir, name+".yaml")
		text := "name: " + name + "\ntitle: x\ntopology: single\nlock: mutex\nclients: {a: zone-a}\nexpect: {verdict: valid}\n" + more + "steps:\n  - " + step + "\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, tt := range map[string]struct {
		args []string
		bare bool // without the toxiproxy
		code int
		want string
	}{
		"no fault is possible":   {[]string{"run", "--duration", "1s"}, true, 254, "no toxiproxy is named, so that no link can be broken"},
		"none is wanted":         {[]string{"run", "--duration", "1s", "--faults", "none"}, true, 0, "VALID"},
		"a mix by name":          {[]string{"run", "--faults", "network,process"}, false, 254, "kill, pause, restart, restart-empty can't be done here: no compose project is named"},
		"other servers":          {[]string{"run", "--persistence", "always"}, false, 254, "persistence always was asked for, and the servers have none"},
		"a server of its own":    {[]string{"run", "--faults", "none", "--resource", "redis"}, false, 254, "a resource on Redis needs a server of its own"},
		"a script that restarts": {[]string{"reproduce", "restart-double-grant"}, false, 254, "restart can't be done here: no compose project is named"},
		"one with other servers": {[]string{"reproduce", script("aof", "servers: {persistence: always}\n", "{client: a, acquire: l}")}, false, 254, "persistence always was asked for, and the servers have none"},
		"a link without a proxy": {[]string{"reproduce", script("cut", "", "{inject: cut, target: zone-a}")}, true, 254, "cut can't be done here: no toxiproxy is named"},
		"one that can be played": {[]string{"reproduce", "lease-too-short"}, false, 0, "gave the verdict"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := f.command(t, tt.args...)
			if tt.bare {
				cmd = lockchaos(t, append(tt.args, "--endpoints", f.server.Options().Addr, "--yes", "--out", filepath.Join(t.TempDir(), "run"))...)
			}
			out, _ := cmd.CombinedOutput()
			require.Equal(t, tt.code, cmd.ProcessState.ExitCode(), "%s", out)
			require.Contains(t, string(out), tt.want)
			f.requireClean(t)
		})
	}
}

// An engine that accepts and never answers is being waited for.
func TestCtrlCWhileTheEngineIsLookedForIsAnInterruption(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "engine.sock")
	engine, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	var said bytes.Buffer
	dir := filepath.Join(t.TempDir(), "run")
	cmd := lockchaos(t, "run", "--topology", "single", "--backend", "container", "--out", dir)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+socket)
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	require.NoError(t, engine.(*net.UnixListener).SetDeadline(time.Now().Add(patience)))
	asked, err := engine.Accept()
	require.NoError(t, err)
	defer asked.Close()
	send(t, cmd, syscall.SIGINT)
	_ = cmd.Wait()
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", said.String())
	require.NoDirExists(t, dir)
}

// needServers skips the test where servers can't be run.
func needServers(t *testing.T) {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
}

// Ctrl-C ends the whole of a command that plays several scenarios, one or some at
// a time.
func TestCtrlCEndsAllScenarios(t *testing.T) {
	t.Parallel()
	needServers(t)
	script := filepath.Join(t.TempDir(), "waits.yaml")
	require.NoError(t, os.WriteFile(script, []byte(`
name: waits
title: one who waits until the signal comes
topology: single
lock: mutex
clients: {a: zone-a, b: zone-b}
expect: {verdict: valid}
steps:
  - {client: a, acquire: l, lease: 10m}
`+strings.Repeat("  - {client: b, acquire: l, wait: 9s, until: refused}\n", 14)), 0o600))
	for _, parallel := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d at a time", parallel), func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			cmd := lockchaos(t, "reproduce", script, "lease-too-short",
				"--repeat", "3", "--parallel", strconv.Itoa(parallel), "--out", out)
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			for run := range parallel {
				awaits(t, "the record of each of the first runs", func() bool {
					_, err := os.Stat(filepath.Join(out, fmt.Sprintf("waits-%d", run+1), "history.jsonl"))
					return err == nil
				})
			}
			send(t, cmd, syscall.SIGINT)
			said, err := io.ReadAll(stderr)
			require.NoError(t, err)
			_ = cmd.Wait()
			require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", said)
			require.NotContains(t, string(said), fmt.Sprintf("run %d of 3", parallel+1))
			require.NotContains(t, string(said), "lease-too-short")
			entries, err := os.ReadDir(out)
			require.NoError(t, err)
			require.Len(t, entries, parallel)
		})
	}
}

// What an interrupted boot could not remove is told of, and the next boot removes
// it: here the process is killed that removes what a boot has made. The servers of
// that boot never answer, so that it goes on until the signal comes.
func TestCtrlCDuringABootHidesNoErrorOfItsCleanUp(t *testing.T) {
	t.Parallel()
	needServers(t)
	tmp, out := t.TempDir(), t.TempDir()
	command := func(args ...string) *exec.Cmd {
		cmd := lockchaos(t, append(args, "--out", filepath.Join(out, "run"))...)
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		return cmd
	}
	silent := filepath.Join(t.TempDir(), "redis-server")
	require.NoError(t, os.WriteFile(silent, []byte("#!/bin/sh\n"+
		`[ "$1" = --version ] && exec echo 'Redis server v=7.2.0 sha=00000000:0 malloc=libc bits=64 build=0'`+"\n"+
		"echo started\nexec sleep 1000\n"), 0o700))
	var said bytes.Buffer
	cmd := command("run", "--topology", "cluster")
	cmd.Env = append(cmd.Env, process.BinaryVariable+"="+silent)
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	var logs []string
	awaits(t, "the masters, which come before their replicas", func() bool {
		logs, _ = filepath.Glob(filepath.Join(tmp, "lockchaos-process-*", "redis-?", "log"))
		return len(logs) == 3 && !slices.ContainsFunc(logs, func(log string) bool {
			info, err := os.Stat(log)
			return err != nil || info.Size() == 0
		})
	})
	folder := filepath.Dir(filepath.Dir(logs[0]))
	// Else it might give up first, when the last of them is late.
	send(t, cmd, syscall.SIGSTOP)
	awaits(t, "the end of what would remove the folder", func() bool {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, line := range lines {
			args, err := os.ReadFile(line)
			if err == nil && strings.HasSuffix(string(args), "lockchaos-reaper\x00"+folder+"\x00") {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
				return err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return false
	})
	send(t, cmd, syscall.SIGINT)
	send(t, cmd, syscall.SIGCONT)
	_ = cmd.Wait()
	require.Equal(t, 255, cmd.ProcessState.ExitCode(), "%s", &said)
	require.Contains(t, said.String(), "lockchaos: interrupted, and not everything could be undone: left behind: ")
	require.Contains(t, said.String(), folder)
	require.NotContains(t, said.String(), "context canceled")
	require.DirExists(t, folder)
	// A verdict of any kind will do: it booted.
	_ = command("run", "--topology", "single", "--duration", "1s", "--faults", "none").Run()
	require.NoDirExists(t, folder)
	awaits(t, "an empty folder", func() bool { return len(leftovers(tmp)) == 0 })
}

// A shard that is killed at any moment goes on, and finds what one finds that nothing stops.
func TestAKilledShardGoesOn_NoRace(t *testing.T) {
	t.Parallel()
	simulate := func(out string) *exec.Cmd {
		return lockchaos(t, "simulate", "--lock", "broken-plain-delete", "--seeds", "1-12", "--parallel", "1", "--shrink", "5", "--judged-is-ok", "--resume", "--out", out)
	}
	whole := filepath.Join(t.TempDir(), "whole")
	out, err := simulate(whole).CombinedOutput()
	require.NoError(t, err, "%s", out)
	want, err := os.ReadFile(filepath.Join(whole, campaign.SearchFile))
	require.NoError(t, err)

	killed := filepath.Join(t.TempDir(), "killed")
	journal := filepath.Join(killed, fleet.JournalFile)
	lines := func() int {
		b, _ := os.ReadFile(journal)
		return bytes.Count(b, []byte("\n"))
	}
	for _, after := range []int{1, 4, 9, 13} { // at the header, amid the seeds, and while what was found is made small
		cmd := simulate(killed)
		require.NoError(t, cmd.Start())
		awaits(t, "a line of the journal", func() bool { return lines() >= after })
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	before := lines()
	require.Equal(t, 13, before, "the header, and each seed once")
	out, err = simulate(killed).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, before, lines(), "no seed was played again")
	got, err := os.ReadFile(filepath.Join(killed, campaign.SearchFile))
	require.NoError(t, err)
	replayed := regexp.MustCompile(`"replayed_identically": \w+`) // which only the exact build promises
	require.Equal(t, replayed.ReplaceAllString(string(want), ""), replayed.ReplaceAllString(string(got), ""))
}

// judged runs lockchaos check on a history with a limit of memory, in MB. It returns
// the exit code, and what was said.
func judged(t *testing.T, limit int, write func(io.Writer) error) (code int, said string) {
	t.Helper()
	var out bytes.Buffer
	cmd := lockchaos(t, "check", "-")
	cmd.Env = append(os.Environ(), "GOGC=100", fmt.Sprintf("GOMEMLIMIT=%dMiB", limit)) // make test sets another GOGC
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &out
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	if err := write(in); !errors.Is(err, syscall.EPIPE) {
		require.NoError(t, err)
	}
	_ = in.Close() // it may be closed already
	err = cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// A history that needs more memory than there may be is unknown, with the reason, before all of it was read.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit, input, rest = 60, 200, 5000 // MB
	code, said := judged(t, limit, func(w io.Writer) error {
		long := strings.Repeat("x", 1<<20)
		for i := range input {
			if _, err := fmt.Fprintf(w, `{"time":%d,"process":1,"type":"ok","op":"lost","lock":"%d%s"}`+"\n", i, i, long); err != nil {
				return err
			}
		}
		for range rest { // which takes no memory, and would be read to its end
			if _, err := io.WriteString(w, strings.Repeat("\n", 1<<20)); err != nil {
				return err
			}
		}
		return errors.New("it read all")
	})
	require.Equal(t, exitUnknown, code, said)
	require.Contains(t, said, "It could not be decided: it takes more than 80 MB of memory")
}

// togetherIn writes a history in which so many readers hold a lock at once.
func togetherIn(w io.Writer, readers int) error {
	out := bufio.NewWriter(w)
	now := 0
	for _, op := range [...]string{"acquire", "release"} {
		for i := range readers {
			for _, typ := range [...]string{"invoke", "ok"} {
				now++
				_, _ = fmt.Fprintf(out, `{"time":%d,"process":%d,"type":%q,"op":%q,"lock":"k","owner":"o%d","mode":"read"}`+"\n", now, i, typ, op, i)
			}
		}
	}
	return out.Flush()
}

// A hundred thousand readers at once are judged in 400 MB: 120 do on an idle machine, and 90 don't.
func TestMemoryOfManyReadersAtOnceIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the histories are long")
	}
	t.Parallel()
	for limit, enough := range map[int]bool{60: false, 400: true} {
		code, said := judged(t, limit, func(w io.Writer) error { return togetherIn(w, 100_000) })
		if enough {
			require.NotContains(t, said, "memory", code)
		} else {
			require.Equal(t, exitUnknown, code, said)
			require.Regexp(t, "it takes more than (60|80) MB of memory", said) // where the search gives up, or at the end
		}
	}
}

// The first signal ends a check that waits for its input: what runs it under a limit of time is not kept waiting.
func TestASignalEndsACheckThatWaits(t *testing.T) {
	t.Parallel()
	for name, arg := range map[string]string{"standard input": "-", "a pipe without a writer": "pipe", "a pipe whose writer is silent": "./pipe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := lockchaos(t, "check", arg)
			cmd.Dir = t.TempDir()
			var said bytes.Buffer
			cmd.Stderr = &said
			pipe := filepath.Join(cmd.Dir, "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			waits := func() bool { return opens(cmd.Process.Pid) }
			if arg != "pipe" {
				writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
				require.NoError(t, err)
				defer writer.Close()
				cmd.Stdin = writer
				_, err = writer.WriteString(`{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k"}` + "\n")
				require.NoError(t, err)
				waits = func() bool { return unread(t, writer) == 0 }
			}
			require.NoError(t, cmd.Start())
			awaits(t, "it waits for its input", waits)
			send(t, cmd, syscall.SIGTERM)
			_ = cmd.Wait()
			require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%v: %s", cmd.ProcessState, &said)
			require.Contains(t, said.String(), "interrupted")
		})
	}
}

// opens reports whether a thread of a process waits in an open.
func opens(pid int) bool {
	calls, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "syscall"))
	return slices.ContainsFunc(calls, func(path string) bool {
		call, err := os.ReadFile(path)
		return err == nil && strings.HasPrefix(string(call), strconv.Itoa(syscall.SYS_OPENAT)+" ")
	})
}

// unread is how many bytes of a pipe were not read yet.
func unread(t *testing.T, pipe *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	require.NoError(t, err)
	return n
}

// The names of run directories are of another author, too: what a terminal would obey in them is shown.
func TestNamesOfDirectoriesAreEscaped(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a\x1b[2J\nforged\u202e")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for file, text := range map[string]string{
		"run.json": `{"version":1,"program":"v0.1.0","command":"lockchaos run","seed":1,"topology":{"name":"single","nodes":[{"name":"redis-1","kind":"redis","role":"master"}],"links":[]},"lock":"mutex","started":"2026-11-21T09:30:00Z","duration":5000000}`,
		"history.jsonl": `{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a"}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a"}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	for _, args := range [][]string{
		{"check", dir},
		{"check", "--json", dir},
		{"check", filepath.Join(dir, "history.jsonl")},
		{"report", dir},
		{"report", "--format", "text", dir},
		{"report", "--format", "markdown", dir},
		{"compare", dir, dir},
		{"check", dir + "/nowhere"},
		{"report", dir + "/nowhere"},
		{"compare", dir, dir + "/nowhere"},
		{"serve", dir},
		{"run", "--replay", dir},
		{"simulate", "--replay", dir},
		{"reproduce", dir + "/nowhere.yaml"},
	} {
		var out, errs bytes.Buffer
		run(args, &out, &errs)
		said := out.String() + errs.String()
		require.NotEmpty(t, said, args)
		require.NotRegexp(t, regexp.MustCompile("\x1b\\[2J|\n *forged|\u202e"), said, "%q", args)
	}
}
