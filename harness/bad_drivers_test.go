//go:build linux

package harness_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// badDriver is a driver in a shell that answers hello, pings and releases as it must,
// and a request for a lock by what is put in. It notes its processes in a file.
const badDriver = `#!/bin/sh
echo $$ >>PIDS
while read -r line; do
	id=${line#*\"id\":} && id=${id%%,*} && id=${id%\}}
	case $line in
	*'"op":"hello"'*)
		address=${line#*\"addr\":\"} && address=${address%%\"*}
		echo '{"re":0,"protocol":1,"name":"bad","promises":{PROMISES}}'
		;;
	*'"op":"ping"'*) echo "{\"re\":$id,\"result\":\"ok\"}" ;;
	*'"op":"acquire"'*)
		ACQUIRE
		;;
	*'"op":"release"'*)
		rmdir LOCK 2>/dev/null
		RELEASE
		echo "{\"re\":$id,\"result\":\"ok\"}"
		;;
	*) echo "{\"re\":$id,\"result\":\"unsupported\"}" ;;
	esac
done
END
`

// grantAll grants whatever is asked for. grantByFolder keeps all clients but one out, by
// a folder that the drivers share: it is a correct lock, and asks no server. grantNear is a
// lock on the server, which it asks over the links for its address, once for
// all drivers: two grants are more than the requests that the links saw.
const (
	grantAll  = `echo "{\"re\":$id,\"result\":\"ok\",\"hold\":\"$$-$id\"}"`
	grantNear = `mkdir LOCK 2>/dev/null && redis-cli -h "${address%:*}" -p "${address##*:}" CONFIG GET bind port | awk 'name == "bind" { at = $1 } name == "port" { port = $1 } { name = $1 } END { print at ":" port }' >LOCK/new && mv LOCK/new LOCK/address
		real= && { read -r real <LOCK/address; } 2>/dev/null
		if [ "$real" ] && [ "$(redis-cli -h "${real%:*}" -p "${real##*:}" SET lock 1 NX PX 5000)" = OK ]; then ` + grantAll + `; else echo "{\"re\":$id,\"result\":\"fail\"}"; fi`
	grantByFolder = `if mkdir LOCK 2>/dev/null; then ` + grantAll + `; else echo "{\"re\":$id,\"result\":\"fail\"}"; fi`
)

// badSpec is the lock of a bad driver, of which some parts are others, and the file with its processes.
func badSpec(t *testing.T, instead ...string) (spec harness.LockSpec, pids string) {
	t.Helper()
	dir := t.TempDir()
	pids, path := filepath.Join(dir, "pids"), filepath.Join(dir, "driver.sh")
	text := strings.NewReplacer(instead...).Replace(badDriver)
	text = strings.NewReplacer("PIDS", pids, "LOCK", filepath.Join(dir, "lock")).Replace(text)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755)) //nolint:gosec // a program
	spec, err := harness.Program(path, nil)
	require.NoError(t, err)
	return spec, pids
}

// A run with a driver that breaks the protocol, or does not ask the servers, is never
// valid, says why, and leaves no process behind. How a driver can break the protocol otherwise,
// TestDriver_Broken of package driver plays.
func TestBadDrivers(t *testing.T) {
	t.Parallel()
	const fromMemory = "the driver answers from memory, or reaches the servers past the proxies"
	// Before each fault the harness proves that clients reach the servers: that is not the driver's work.
	resets := []faults.Step{}
	for i := range 4 {
		resets = append(resets, faults.Step{At: time.Duration(i) * 200 * time.Millisecond, Fault: "reset", Target: "zone-a>redis-1"})
	}
	// It has neither session nor descriptors nor environment of the driver, and is waited for, so that it is there.
	const escapes, escape = "leaves a process behind that forked twice", `env -i setsid /bin/sh -c '
			exec <&- >&- 2>&-
			/bin/sh -c "echo \$\$ >>PIDS; echo >PIDS.left; exec sleep 1000" &
			exit 0'; while ! [ -e PIDS.left ]; do sleep 0.05; done`
	for _, c := range []struct {
		name, promises, acquire, release, end, want string
		plan                                        []faults.Step
	}{
		{name: "reaches the server past the proxies", acquire: grantNear, release: `read -r real <LOCK/address; redis-cli -h "${real%:*}" -p "${real##*:}" DEL lock >/dev/null`, want: fromMemory},
		{name: "answers from memory and promises to hand over", promises: `"hands_over":true`, acquire: grantByFolder, want: "and 0 requests reached the servers over the links: " + fromMemory},
		{name: "answers from memory and promises re-entry", promises: `"reentrant":true`, acquire: grantByFolder, want: fromMemory},
		{name: "goes on at the end of its input", acquire: grantByFolder, end: "sleep 1000 & echo $! >>PIDS; wait", want: fromMemory},
		{name: "answers from memory", acquire: grantByFolder, want: "times, and 0 requests reached the servers over the links: " + fromMemory},
		{name: "answers from memory while links are reset", acquire: grantByFolder, plan: resets, want: "times, and 0 requests reached the servers over the links: " + fromMemory},
		{name: "hangs", acquire: "sleep 1000 & echo $! >>PIDS; wait", want: "for a lock"},
		{name: "hangs at the end", acquire: `if [ "${answered:-}" ]; then sleep 1000 & echo $! >>PIDS; wait; else answered=1; ` + grantAll + `; fi`, want: "did not answer request"},
		{name: "leaves a process of another group behind", acquire: "[ \"${left:-}\" ] || { setsid sleep 1000 >/dev/null 2>&1 & left=$!; echo $left >>PIDS; }; " + grantByFolder, want: fromMemory},
		{name: escapes, acquire: "[ \"${left:-}\" ] || { " + escape + "; left=1; }; " + grantByFolder, want: fromMemory},
		{name: "calls all requests refused", acquire: `echo "{\"re\":$id,\"result\":\"fail\"}"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := spawn.Families(); c.name == escapes && err != nil {
				runtest.Lacks(t, fmt.Errorf("nothing ends such a process here, as lockchaos doctor says: %w", err))
			}
			config := runtest.Setup(t)
			spec, pids := badSpec(t, "PROMISES", c.promises, "ACQUIRE", c.acquire, "RELEASE", c.release, "END\n", c.end+"\n")
			r := harness.RandomRun{Topology: topologies.Single, Lock: spec, Faults: faults.MixNone, Length: time.Second}
			if c.release != "" { // it asks over the links once, and starts programs for each grant
				r.Length = 4 * time.Second
			}
			r.Workload.Clients, r.Workload.Locks, r.Plan = 4, 1, c.plan
			if c.plan != nil { // several looks at the servers for each grant
				r.Length, r.Workload.Hold, r.Faults = 4*time.Second, 2*time.Second, ""
			}
			require.NoError(t, r.Run(t.Context(), config))

			told, _, report := runtest.Judged(t, config.Dir)
			require.NotEqual(t, checker.Valid, report.Verdict)
			require.Contains(t, told.DriverFault, c.want)
			started, err := os.ReadFile(pids)
			require.NoError(t, err)
			for pid := range strings.FieldsSeq(string(started)) {
				require.Eventually(t, func() bool { return ended(pid) }, time.Minute, 10*time.Millisecond, "process %s goes on", pid)
			}
		})
	}
}

// A driver that exits in the middle of a run takes its clients with it, and the run ends there. The lock is correct: its
// grants have no lease, and it renews them until it exits, so that another zone may have them after that.
func TestBadDrivers_ExitsInTheMiddle(t *testing.T) {
	t.Parallel()
	config := runtest.Setup(t)
	// The lock is a folder with the number of the driver that has it, whose end is the end of the hold.
	// The driver that is granted the lock first ends half a second later, while its client works.
	acquire := `if mkdir LOCK 2>/dev/null || { read -r of <LOCK/pid && ! kill -0 "$of"; } 2>/dev/null; then
			mkdir -p LOCK && echo $$ >LOCK/pid
			` + grantAll + `
			! mkdir LOCK.first 2>/dev/null || { sleep 0.5; exit 0; }
		else echo "{\"re\":$id,\"result\":\"fail\"}"; fi`
	spec, _ := badSpec(t, "PROMISES", `"watchdog":true`, "ACQUIRE", acquire, "rmdir LOCK", "rm -r LOCK", "RELEASE", "", "END\n", "")
	r := harness.RandomRun{Topology: topologies.Single, Lock: spec, Kind: "watchdog", Faults: faults.MixNone, Length: time.Hour}
	r.Workload = workload.Config{Clients: 4, Locks: 1, Hold: 2 * time.Second}
	require.NoError(t, r.Run(t.Context(), config))

	told, h, report := runtest.Judged(t, config.Dir)
	require.Equal(t, checker.Unknown, report.Verdict, "%+v", report)
	require.Regexp(t, `^the driver of zone-[ab] can't be used: it ended: exit status 0; the run ended there$`, told.DriverFault)
	crashed := map[string]time.Duration{}
	for i := range h.Events {
		e := &h.Events[i]
		client, _, _ := strings.Cut(e.Owner, "#")
		end, dead := crashed[client]
		switch {
		case e.Op == history.Crash:
			crashed[client] = e.Time
		case e.Op == history.Access && e.Type == history.OK:
			require.False(t, dead, "event %d: %s crashed at %v, and wrote at %v", i, client, end, e.Time)
		}
	}
	require.Len(t, crashed, 2, "each client of the zone")
}

// A driver that does not start is told by what it did.
func TestBadDrivers_NoStart(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"/no/such/driver --fast": `start driver "/no/such/driver --fast": the driver can't be used: it ended before it answered hello: exit status 127`,
		"echo hello":             `start driver "echo hello": the driver can't be used: it sent the line "hello", which is no message`,
		"false":                  `start driver "false": the driver can't be used: it ended before it answered hello: exit status 1`,
		`echo '{"re":0,"result":"fail","why":"no library"}'`:                `it refused hello with "fail": "no library"`,
		"sh -c 'printf \"main: no library\\n  in frame 7\\n\" >&2; exit 3'": "exit status 3; it logged \"in frame 7\"\nits log ends with:\n  main: no library\n    in frame 7",
		" ": "needs a command",
	} {
		_, err := harness.Program(command, nil)
		require.ErrorContains(t, err, want, command)
	}
}

// One that starts, and then can't serve the servers of a run, is no failure of the harness.
func TestBadDrivers_NoStartOfARun(t *testing.T) {
	t.Parallel()
	for does, want := range map[string]string{
		"echo no such module >&2; exit 3":                                 `it ended before it answered hello: exit status 3; it logged "no such module"`,
		`echo '{"re":0,"result":"fail","why":"it has no such topology"}'`: `it refused hello with "fail": "it has no such topology"`,
	} {
		config := runtest.Setup(t)
		spec, _ := badSpec(t, badDriver, "#!/bin/sh\nread -r line\ncase $line in *servers*) "+does+";; *) echo '{\"re\":0,\"protocol\":1,\"name\":\"bad\"}';; esac\nread -r line\n")
		r := harness.RandomRun{Topology: topologies.Single, Lock: spec, Faults: faults.MixNone, Length: time.Second}
		require.NoError(t, r.Run(t.Context(), config))
		told, _, report := runtest.Judged(t, config.Dir)
		require.Equal(t, checker.Unknown, report.Verdict)
		require.Contains(t, told.DriverFault, want)
		require.Empty(t, told.Failed)
	}
}

// ended reports whether a process is gone, or waits to be collected.
func ended(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
