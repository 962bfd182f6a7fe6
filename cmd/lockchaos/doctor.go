package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can run, and how to get what it lacks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			redis := a.doctorRedis(cmd.Context())
			a.doctorDocker(cmd.Context())
			if redis != nil {
				return harnessError{redis}
			}
			return a.doctorBoot(cmd.Context())
		},
	}
}

func (a *app) finding(good bool, format string, args ...any) {
	sign := "✓"
	if !good {
		sign = "✗"
	}
	a.printf("%s %s\n", sign, fmt.Sprintf(format, args...))
}

func (a *app) doctorRedis(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		a.finding(false, "processes: the process backend needs Linux, and this is %s", runtime.GOOS)
		return harnessError{errors.New("no backend can run here")}
	}
	binary, err := process.FindBinary(ctx)
	if err != nil {
		a.finding(false, "redis-server: %v", err)
		return err
	}
	a.finding(true, "redis-server %s at %s", binary.Version, binary.Path)
	return nil
}

// doctorDocker looks for an engine. It is not needed.
func (a *app) doctorDocker(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Output()
	if err != nil {
		a.finding(true, "docker: no engine answers (it is not needed: servers run as local processes)")
		return
	}
	a.finding(true, "docker engine %s (not used: servers run as local processes)", strings.TrimSpace(string(out)))
}

// doctorBoot boots the largest topology and takes it down again.
func (a *app) doctorBoot(ctx context.Context) error {
	names := topologies.Names()
	t, err := topologies.ByName(names[len(names)-1])
	if err != nil {
		return harnessError{err}
	}
	start := time.Now()
	d, err := process.Backend{}.Start(ctx, t)
	if err != nil {
		a.finding(false, "topology %s does not boot", t.Name)
		return harnessError{err}
	}
	took := time.Since(start)
	if err := d.Close(); err != nil {
		a.finding(false, "topology %s does not come down", t.Name)
		return harnessError{err}
	}
	a.finding(true, "topology %s: %d processes ready in %.1f s, and gone again", t.Name,
		len(t.Of(topologies.Redis))+len(t.Of(topologies.Sentinel)), took.Seconds())
	return nil
}
