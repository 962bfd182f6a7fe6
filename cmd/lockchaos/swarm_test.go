//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/internal/runtest"
)

// needSwarm gives the engine's swarm the image of the program under test, and ends a swarm that it began.
func needSwarm(t *testing.T) (image string) {
	t.Helper()
	runtest.NoShort(t)
	if out, err := exec.CommandContext(t.Context(), "docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		runtest.LacksEngine(t, fmt.Errorf("no Docker engine answers: %w: %s", err, out))
	}
	if os.Getenv("LOCKCHAOS_TEST_CONTAINERS") != "1" {
		t.Skip("it makes the Docker engine a swarm, which LOCKCHAOS_TEST_CONTAINERS=1 allows")
	}
	const base = "lockchaos/testnode:local"
	if err := exec.CommandContext(t.Context(), "docker", "image", "inspect", base).Run(); err != nil {
		runtest.Lacks(t, fmt.Errorf("there is no image %s: make image", base))
	}
	docker := func(args ...string) string { return command(t, os.Environ(), root, "docker", args...) }
	dir := t.TempDir()
	program, err := exec.LookPath("lockchaos")
	require.NoError(t, err)
	command(t, nil, dir, "cp", "-L", program, "lockchaos")
	image = fmt.Sprintf("lockchaos/lockchaos:test-%d", os.Getpid())
	t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", image).Run() })
	docker("build", "--quiet", "--build-arg", "BASE="+base, "--tag", image, "--file", "images/lockchaos/Dockerfile", dir)
	if strings.TrimSpace(docker("info", "--format", "{{.Swarm.LocalNodeState}}")) == "inactive" {
		docker("swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", "127.0.0.1:2377")
		t.Cleanup(func() {
			defer runtest.EngineLock(t, false)()
			require.NoError(t, exec.Command("docker", "swarm", "leave", "--force").Run())
		})
	}
	return image
}

// Shards on Docker Swarm find what one process finds, also if one of them is killed: it is played again, and counts once.
func TestSwarm_NoRace(t *testing.T) {
	t.Parallel()
	image := needSwarm(t)
	dir, name := t.TempDir(), fmt.Sprintf("lockchaos-test-%d", os.Getpid())
	search := []string{"simulate", "--lock", "mutex", "--seeds", "1-400", "--parallel", "1"}
	one := filepath.Join(dir, "one")
	out, err := lockchaos(t, append(search, "--shard", "1/1", "--out", one, "--judged-is-ok")...).CombinedOutput()
	require.NoError(t, err, "%s", out)

	night := filepath.Join(dir, "night")
	var said strings.Builder
	job := exec.CommandContext(t.Context(), filepath.Join(root, "examples/fleet/swarm"), append([]string{name, night, "8"}, search...)...)
	job.Env = append(os.Environ(), "IMAGE="+image, "CONCURRENT=1") // beside tests that wait for the same engine
	if os.Getuid() != 0 {                                          // so that the folder can be removed
		job.Env = append(job.Env, fmt.Sprintf("RUN_AS=%d:%d", os.Getuid(), os.Getgid()))
	}
	job.Stdout, job.Stderr = &said, &said
	t.Cleanup(func() { _ = exec.Command("docker", "service", "rm", name).Run() })
	require.NoError(t, job.Start())
	awaits(t, "a shard that has played a seed can be killed", func() bool {
		running, err := exec.Command("docker", "ps", "--quiet", "--filter", "label=com.docker.swarm.service.name="+name).Output()
		begun, _ := filepath.Glob(filepath.Join(night, "*", fleet.JournalFile))
		first, _, _ := strings.Cut(string(running), "\n")
		return err == nil && first != "" && len(begun) > 0 && exec.Command("docker", "kill", first).Run() == nil
	})
	require.NoError(t, job.Wait(), "%s", &said)
	require.Contains(t, said.String(), "8 shards are played in "+night+"; tasks that failed, and were played again: 1")

	shards, err := filepath.Glob(filepath.Join(night, "shard-*"))
	require.NoError(t, err)
	require.Len(t, shards, 8)
	read := func(joined string, folders []string) string {
		said, err := lockchaos(t, append([]string{"merge", "--out", joined}, folders...)...).CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.NotContains(t, string(said), "counted as well")
		require.Contains(t, string(said), "400 cases")
		b, err := os.ReadFile(filepath.Join(joined, campaign.SearchFile))
		require.NoError(t, err)
		return regexp.MustCompile(`"(messages|granted)": \d+`).ReplaceAllString(string(b), "") // which only the exact build promises
	}
	require.Equal(t, read(filepath.Join(dir, "joined-one"), []string{one}), read(filepath.Join(dir, "joined"), shards))
}
