// Package docker has the process of a server in a container of a Docker engine.
package docker

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/internal/await"
)

// A Container runs a server. It is started and killed again and again.
type Container struct {
	Engine *client.Client
	ID     string // empty before it is made
}

// State is what the engine says that it does: [container.StateRunning], [container.StatePaused], [container.StateExited].
func (c *Container) State(ctx context.Context) (container.ContainerState, error) {
	seen, err := c.Engine.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}
	return seen.Container.State.Status, nil
}

// Running reports whether it runs, or is paused.
func (c *Container) Running(ctx context.Context) (bool, error) {
	state, err := c.State(ctx)
	return state == container.StateRunning || state == container.StatePaused, err
}

// Start starts the container.
func (c *Container) Start(ctx context.Context) error {
	_, err := c.Engine.ContainerStart(ctx, c.ID, client.ContainerStartOptions{})
	return err
}

// Ended waits until the server has.
func (c *Container) Ended(ctx context.Context) error {
	end := c.Engine.ContainerWait(ctx, c.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-end.Result:
		return nil
	case err := <-end.Error:
		return err
	}
}

// Kill has the engine kill the server.
func (c *Container) Kill(ctx context.Context) error {
	_, err := c.Engine.ContainerKill(ctx, c.ID, client.ContainerKillOptions{Signal: "SIGKILL"})
	if errdefs.IsConflict(err) { // it does not run
		err = nil
	}
	return err
}

// Pause freezes the container. The engine answers once it stands still.
func (c *Container) Pause(ctx context.Context) error {
	return await.Frozen(ctx, func(ctx context.Context) error {
		_, err := c.Engine.ContainerPause(ctx, c.ID, client.ContainerPauseOptions{})
		return err
	})
}

// Resume lets a frozen container go on.
func (c *Container) Resume(ctx context.Context) error {
	_, err := c.Engine.ContainerUnpause(ctx, c.ID, client.ContainerUnpauseOptions{})
	return err
}
