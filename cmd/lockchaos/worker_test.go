//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
)

// Runs with clients on other machines: one that goes well, and those in which some part ends too soon. None of these is valid,
// and none leaves a driver.
func TestWorkers(t *testing.T) {
	t.Parallel()
	needServers(t)
	const coordinator, worker = 0, 1
	for _, tt := range []struct {
		name   string
		whom   int
		signal syscall.Signal // 0: all goes well
		codes  [3]int         // of the coordinator and both workers
		says   string         // the coordinator
	}{
		{"all goes well", coordinator, 0, [3]int{0, 0, 0}, "round trip to the worker of zone-b: "},
		{"a worker is killed", worker, syscall.SIGKILL, [3]int{2, -1, 0}, "the driver of zone-a can't be used: the worker of zone-a on "},
		{"a worker is interrupted", worker, syscall.SIGINT, [3]int{2, 130, 0}, "is lost: its connection ended; the run ended there"},
		{"the coordinator is killed", coordinator, syscall.SIGKILL, [3]int{-1, 255, 255}, ""},
		{"the coordinator is interrupted", coordinator, syscall.SIGINT, [3]int{130, 0, 0}, "lockchaos: interrupted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, out := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "run")
			require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("secret", 6)), 0o600))
			length := "3s"
			if tt.signal != 0 {
				length = "10m"
			}
			var all [3]*exec.Cmd
			logs := t.TempDir()
			said := func(i int) string {
				text, err := os.ReadFile(filepath.Join(logs, strconv.Itoa(i)))
				require.NoError(t, err)
				return string(text)
			}
			begin := func(i int, args ...string) {
				log, err := os.Create(filepath.Join(logs, strconv.Itoa(i)))
				require.NoError(t, err)
				defer log.Close()
				all[i] = lockchaos(t, args...)
				all[i].Stdout, all[i].Stderr = log, log
				require.NoError(t, all[i].Start())
			}
			begin(0, "run", "--listen", "127.0.0.1:0", "--key", key, "--lock", "mutex", "--faults", "none", "--workload", "contended", "--duration", length, "--out", out)
			joins := regexp.MustCompile(`--join (\S+)`)
			awaits(t, "the coordinator", func() bool { return joins.MatchString(said(0)) })
			at := joins.FindStringSubmatch(said(0))[1]
			for i, zone := range []string{"zone-a", "zone-b"} {
				begin(i+1, "worker", "--join", at, "--key", key, "--lock", "mutex")
				awaits(t, zone, func() bool { return strings.Contains(said(i+1), "the clients of "+zone+" are here") })
			}
			if tt.signal != 0 {
				awaits(t, "grants", func() bool {
					history, _ := os.ReadFile(filepath.Join(out, "history.jsonl"))
					return bytes.Count(history, []byte(`"type":"ok","op":"acquire"`)) > 10
				})
				require.NoError(t, all[tt.whom].Process.Signal(tt.signal))
			}
			for i, cmd := range all {
				_ = cmd.Wait()
				require.Equal(t, tt.codes[i], cmd.ProcessState.ExitCode(), "%s\n%s\n%s", said(0), said(1), said(2))
			}
			require.Contains(t, said(0), tt.says)
			var results struct{ Verdict checker.Verdict }
			if text, err := os.ReadFile(filepath.Join(out, "results.json")); tt.codes[coordinator] >= 0 { // else there are none
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(text, &results))
			}
			require.Equal(t, tt.signal == 0, results.Verdict == checker.Valid, results.Verdict)
			awaits(t, "the end of all drivers", func() bool {
				lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
				for _, line := range lines {
					if args, _ := os.ReadFile(line); strings.Contains(string(args), "driver\x00serve\x00mutex") {
						return false
					}
				}
				return true
			})
		})
	}
}
