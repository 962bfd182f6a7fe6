package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"
	dockercontainer "github.com/moby/moby/api/types/container"
	dockernetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// A node is one container, killed and started again under the same name and
// address. Its folder is on this host: what is in it survives the container.
type node struct {
	name     string
	dir      string
	at       bootstrap.Address
	program  program
	engine   *client.Client
	observer *redis.Client
	id       string // of the container; empty before create
}

func (n *node) Name() string            { return n.name }
func (n *node) Observer() *redis.Client { return n.observer }
func (n *node) Log() string             { return filepath.Join(n.dir, "log") }

// startScript lets the server write its log into its folder, from its first
// word on, and then leaves its place to it.
const startScript = `exec "$0" "$@" >>log 2>&1`

// workdir is where a server finds its folder.
const workdir = "/data"

// create makes the container without starting it. The server runs as our user,
// who must be able to read and remove its files.
func (n *node) create(ctx context.Context, i image, b *bridge, labels map[string]string, c bootstrap.Config) error {
	if err := c.Write(n.dir); err != nil {
		return fmt.Errorf("prepare %s: %w", n.name, err)
	}
	made, err := testcontainers.Run(ctx, i.name,
		testcontainers.WithNoStart(),
		testcontainers.WithName(labels[deploymentLabel]+"-"+n.name),
		testcontainers.WithLabels(labels),
		testcontainers.WithEntrypoint("/bin/sh", "-c", startScript, n.program.name),
		testcontainers.WithCmd(c.Args...),
		testcontainers.WithConfigModifier(func(c *dockercontainer.Config) {
			c.Hostname = n.name
			c.User = strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid())
			c.WorkingDir = workdir
		}),
		testcontainers.WithHostConfigModifier(func(c *dockercontainer.HostConfig) {
			c.Binds = []string{n.dir + ":" + workdir + ":Z"} // Z lets it in where SELinux would not
			c.PortBindings = i.onLoopback()
		}),
		network.WithNetwork(nil, b.DockerNetwork),
		testcontainers.WithEndpointSettingsModifier(func(settings map[string]*dockernetwork.EndpointSettings) {
			for _, s := range settings {
				s.IPAMConfig = &dockernetwork.EndpointIPAMConfig{IPv4Address: n.at.Listen.Addr()}
			}
		}),
	)
	if made != nil {
		n.id = made.GetContainerID()
	}
	if err != nil {
		return fmt.Errorf("make a container for %s: %w", n.name, err)
	}
	return nil
}

// remove removes the container, also one that runs or is paused.
func (n *node) remove(ctx context.Context) error {
	if n.id == "" {
		return nil
	}
	if err := removeContainer(ctx, n.engine, n.id); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove the container of %s: %w", n.name, err)
	}
	return nil
}

// removeContainer removes a container. While another program does so, such as the
// reaper of a harness that died, the engine refuses, and then there is none.
func removeContainer(ctx context.Context, c *client.Client, id string) error {
	return insist(ctx, func(ctx context.Context) error {
		_, err := c.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		return err
	}, "already in progress", "did not receive an exit event")
}

func (n *node) running(ctx context.Context) (bool, error) {
	seen, err := n.engine.ContainerInspect(ctx, n.id, client.ContainerInspectOptions{})
	if err != nil {
		return false, err
	}
	return seen.Container.State.Running, nil
}

// ended waits until the server has ended.
func (n *node) ended(ctx context.Context) error {
	end := n.engine.ContainerWait(ctx, n.id, client.ContainerWaitOptions{Condition: dockercontainer.WaitConditionNotRunning})
	select {
	case <-end.Result:
		return nil
	case err := <-end.Error:
		return err
	}
}

// Kill ends the server with SIGKILL and waits until it is gone. To kill one
// that is gone is no error.
func (n *node) Kill(ctx context.Context) error {
	_, err := n.engine.ContainerKill(ctx, n.id, client.ContainerKillOptions{Signal: "SIGKILL"})
	if errdefs.IsConflict(err) { // it does not run
		err = nil
	}
	if err == nil {
		err = n.ended(ctx)
	}
	if err != nil {
		return fmt.Errorf("kill %s: %w", n.name, err)
	}
	return nil
}

// Restart starts the server again and waits until it answers.
func (n *node) Restart(ctx context.Context) error {
	running, err := n.running(ctx)
	if err == nil && running {
		err = errors.New("it still runs")
	}
	if err == nil {
		_, err = n.engine.ContainerStart(ctx, n.id, client.ContainerStartOptions{})
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	return n.answers(ctx)
}

// answers waits until the server answers, or has ended.
func (n *node) answers(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		if err := n.ended(ctx); err == nil {
			cancel(errors.New("it ended"))
		}
	})
	if err := await.Until(ctx, func() error { return n.program.store.Alive(ctx, n.at) }); err != nil {
		return fmt.Errorf("await %s: %w\n%s", n.name, err, bootstrap.TailLog(n.Log()))
	}
	return nil
}

// Pause freezes the container. The engine answers once it stands still.
func (n *node) Pause(ctx context.Context) error {
	err := await.Frozen(ctx, func(ctx context.Context) error {
		_, err := n.engine.ContainerPause(ctx, n.id, client.ContainerPauseOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("pause %s: %w", n.name, err)
	}
	return nil
}

// Resume lets a frozen container go on.
func (n *node) Resume(ctx context.Context) error {
	if _, err := n.engine.ContainerUnpause(ctx, n.id, client.ContainerUnpauseOptions{}); err != nil {
		return fmt.Errorf("resume %s: %w", n.name, err)
	}
	return nil
}

// Wipe removes the data of a server that does not run.
func (n *node) Wipe(ctx context.Context) error {
	running, err := n.running(ctx)
	if err == nil && running {
		err = errors.New("it still runs")
	}
	if err == nil {
		err = bootstrap.Wipe(n.dir)
	}
	if err != nil {
		return fmt.Errorf("wipe %s: %w", n.name, err)
	}
	return nil
}
