package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"

	"github.com/lockchaos/lockchaos/topologies"
)

// setUp tells testcontainers, which has one configuration a process, to be
// quiet and to leave its own reaper out: Ryuk must come from a registry, gets
// the engine's socket, publishes a port on every address of the host and stays
// for ten seconds after the harness. Only the word "true" switches it off.
var setUp = sync.OnceValue(func() error { //nolint:gochecknoglobals // see above
	log.SetDefault(log.NewNoopLogger())
	return os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
})

// connect finds the engine that answers; the caller closes the client. It fails
// with [topologies.ErrMissing] if there is none that can be used.
func connect(ctx context.Context) (*client.Client, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("%w: containers are driven on Linux only, where the host has an address on their networks", topologies.ErrMissing)
	}
	if err := setUp(); err != nil {
		return nil, fmt.Errorf("set up testcontainers: %w", err)
	}
	c, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		err = noEngine(err)
	} else if err = usable(ctx, c.Client); err != nil {
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return c.Client, nil
}

// noEngine says in a sentence what testcontainers says of every place in which
// it looked for an engine.
func noEngine(err error) error {
	if strings.Contains(err.Error(), "permission denied") {
		return fmt.Errorf("%w: you may not use the socket of the Docker engine (join the group docker, or become root)", topologies.ErrMissing)
	}
	why, _, _ := strings.Cut(err.Error(), "\n")
	if strings.HasPrefix(why, "rootless") {
		why = "it has no socket where it should be"
	}
	return fmt.Errorf("%w: no Docker engine answers (install one with `apt-get install docker.io`, or start it): %s", topologies.ErrMissing, why)
}

// usable checks that the engine is the one that was meant, on this machine.
func usable(ctx context.Context, c *client.Client) error {
	if _, err := c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return noEngine(err)
	}
	// testcontainers passes over a host that does not answer.
	if wanted := os.Getenv("DOCKER_HOST"); wanted != "" && wanted != c.DaemonHost() {
		return fmt.Errorf("%w: DOCKER_HOST names %s, where no Docker engine answers", topologies.ErrMissing, wanted)
	}
	if !strings.HasPrefix(c.DaemonHost(), "unix://") {
		return fmt.Errorf("%w: the Docker engine is at %s, and must be on this machine, for the links between containers pass this process",
			topologies.ErrMissing, c.DaemonHost())
	}
	return nil
}

// Available returns the version of the engine that [Backend.Start] would use.
// It fails with [topologies.ErrMissing] if there is none.
func Available(ctx context.Context) (version string, err error) {
	c, err := connect(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	v, err := c.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", fmt.Errorf("ask the Docker engine for its version: %w", err)
	}
	return v.Version, nil
}
