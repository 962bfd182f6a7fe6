package main

import (
	"cmp"
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
	"github.com/lockchaos/lockchaos/topologies/shim"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can run, and how to install what is missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			a.doctorProcesses(ctx)
			short, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			a.doctorContainers(short)
			if path, err := shim.FindCompiler(); err != nil {
				a.finding(false, "C compiler: none (`make compiler`); make test needs it for the race detector, and faults of clocks, also of the clients of drivers, and disks do")
			} else {
				a.finding(true, "C compiler at %s (make test; faults of clocks and disks)", path)
			}
			if err := spawn.Families(); err != nil {
				a.finding(false, "drivers: a process that a driver starts outlives the run if it leaves the driver's process group and clears its environment: %v", err)
			} else {
				a.finding(true, "drivers: all processes that a driver starts end with the run (control groups)")
			}
			a.took.Do(func() {}) // it is told at the end
			b, name, err := a.openServers(ctx, &serverFlags{backend: autoBackend}, nil, topologies.StoreRedis)
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

// doctorProcesses looks for what the process backend needs, for each store.
func (a *app) doctorProcesses(ctx context.Context) {
	if runtime.GOOS != "linux" {
		a.finding(false, "processes: they need Linux, and this is %s", runtime.GOOS)
		return
	}
	for _, store := range topologies.Stores() {
		needs, is := "; topology "+store+" alone needs it", store
		binary, err := process.Find(ctx, store)
		if store == topologies.StoreRedis {
			needs, is = "", binary.Product+"-server"
		}
		if err != nil {
			a.finding(false, "processes: %v%s", err, needs)
		} else {
			a.finding(true, "processes: %s %s at %s", is, binary.Version, binary.Path)
		}
	}
}

// doctorContainers looks for what the container backend needs, and `make up`.
func (a *app) doctorContainers(ctx context.Context) {
	engine, err := container.Available(ctx)
	image, version, noImage := "", "", err
	if err == nil {
		image, version, noImage = container.Image(ctx)
	}
	switch {
	case err != nil:
		a.finding(false, "containers: %v", err)
	case noImage != nil:
		a.finding(false, "containers: engine %s, but %v", engine, noImage)
	default:
		a.finding(true, "containers: engine %s with image %s, Redis %s", engine, image, cmp.Or(version, "of a version that it does not tell"))
	}
	for _, command := range [][]string{{"docker", "compose", "version", "--short"}, {"docker-compose", "version", "--short"}} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output(); err == nil {
			a.finding(true, "compose %s (make up)", strings.TrimSpace(string(out)))
			return
		}
	}
	a.finding(false, "compose: neither docker compose nor docker-compose (`apt-get install docker-compose`); make up alone needs it")
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
