package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/container"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can run, and how to install what is missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			a.doctorProcesses(ctx)
			a.doctorEtcd(ctx)
			a.doctorZooKeeper(ctx)
			a.doctorContainers(ctx)
			a.doctorCompose(ctx)
			a.doctorCompiler()
			a.doctorDrivers()
			b, name, err := (&serverFlags{backend: autoBackend}).open(ctx, nil, topologies.StoreRedis, func(string) {})
			if err != nil {
				return err
			}
			return a.doctorBoot(ctx, b, name)
		},
	}
}

// finding prints one line: what is there, or what is not and how to get it.
func (a *app) finding(good bool, format string, args ...any) {
	sign := "✓"
	if !good {
		sign = "✗"
	}
	a.printf("%s %s\n", sign, fmt.Sprintf(format, args...))
}

// doctorProcesses looks for what the process backend needs.
func (a *app) doctorProcesses(ctx context.Context) {
	if runtime.GOOS != "linux" {
		a.finding(false, "processes: they need Linux, and this is %s", runtime.GOOS)
		return
	}
	binary, err := process.FindBinary(ctx)
	if err != nil {
		a.finding(false, "processes: %v", err)
		return
	}
	a.finding(true, "processes: %s-server %s at %s", binary.Product, binary.Version, binary.Path)
}

// doctorEtcd looks for what topology etcd needs.
func (a *app) doctorEtcd(ctx context.Context) {
	if runtime.GOOS != "linux" {
		return // doctorProcesses said so
	}
	binary, err := process.FindEtcd(ctx)
	if err != nil {
		a.finding(false, "processes: %v; topology etcd alone needs it", err)
		return
	}
	a.finding(true, "processes: etcd %s at %s (topology etcd)", binary.Version, binary.Path)
}

// doctorZooKeeper looks for what topology zookeeper needs, but for a compiler.
func (a *app) doctorZooKeeper(ctx context.Context) {
	if runtime.GOOS != "linux" {
		return // doctorProcesses said so
	}
	const alone = "topology zookeeper"
	binary, err := process.FindZooKeeper(ctx)
	if err != nil {
		a.finding(false, "processes: %v; %s alone needs it", err, alone)
		return
	}
	a.finding(true, "processes: ZooKeeper %s, run by java at %s (%s)", binary.Version, binary.Path, alone)
}

// doctorContainers looks for what the container backend needs.
func (a *app) doctorContainers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	engine, err := container.Available(ctx)
	if err != nil {
		a.finding(false, "containers: %v", err)
		return
	}
	image, version, err := container.Image(ctx)
	if err != nil {
		a.finding(false, "containers: engine %s, but %v", engine, err)
		return
	}
	if version == "" {
		version = "of a version that it does not tell"
	}
	a.finding(true, "containers: engine %s with image %s, Redis %s", engine, image, version)
}

// doctorCompose looks for what `make up` needs.
func (a *app) doctorCompose(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, command := range [][]string{{"docker", "compose", "version", "--short"}, {"docker-compose", "version", "--short"}} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output(); err == nil {
			a.finding(true, "compose %s (make up)", strings.TrimSpace(string(out)))
			return
		}
	}
	a.finding(false, "compose: neither docker compose nor docker-compose (`apt-get install docker-compose`); make up alone needs it")
}

// doctorCompiler looks for what the race detector needs, and the faults of
// clocks and disks.
func (a *app) doctorCompiler() {
	path, err := process.FindCompiler()
	if err != nil {
		a.finding(false, "C compiler: none (`make compiler`); make test needs it for the race detector, and faults of clocks and disks do")
		return
	}
	a.finding(true, "C compiler at %s (make test; faults of clocks and disks)", path)
}

// doctorDrivers looks for what ends all that a driver starts.
func (a *app) doctorDrivers() {
	if err := spawn.Families(); err != nil {
		a.finding(false, "drivers: a process that a driver starts outlives the run if it leaves the driver's process group and clears its environment: %v", err)
		return
	}
	a.finding(true, "drivers: all processes that a driver starts end with the run (control groups)")
}

// doctorBoot boots the largest topology and takes it down again.
func (a *app) doctorBoot(ctx context.Context, b topologies.Backend, of string) error {
	t, err := topologies.ByName(topologies.Cluster)
	if err != nil {
		return harnessError{err}
	}
	start := time.Now()
	d, err := b.Start(ctx, t)
	if err != nil {
		a.finding(false, "topology %s does not boot", t.Name)
		return harnessError{err}
	}
	took := time.Since(start)
	if err := d.Close(); err != nil {
		a.finding(false, "topology %s does not come down", t.Name)
		return harnessError{err}
	}
	a.finding(true, "topology %s: %d servers (%s) ready in %.1f s, and gone again", t.Name, len(t.Servers()), of, took.Seconds())
	return nil
}
