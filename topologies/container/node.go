package container

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/containerd/errdefs"
	dockercontainer "github.com/moby/moby/api/types/container"
	dockernetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/docker"
)

// A node is one container, killed and started again under the same name and
// address. Its folder is on this host: what is in it survives the container.
type node struct {
	*bootstrap.Host
	docker.Container

	program program
}

// startScript lets the server write its log into its folder, from its first
// word on, and then leaves its place to it.
const startScript = `exec "$0" "$@" >>log 2>&1`

// workdir is where a server finds its folder.
const workdir = "/data"

// create makes the container without starting it. The server runs as our user,
// who must be able to read and remove its files.
func (n *node) create(ctx context.Context, i image, b *bridge, labels map[string]string, c bootstrap.Config) error {
	if err := c.Write(n.Dir); err != nil {
		return fmt.Errorf("prepare %s: %w", n.Name(), err)
	}
	made, err := testcontainers.Run(ctx, i.name,
		testcontainers.WithNoStart(),
		testcontainers.WithName(labels[deploymentLabel]+"-"+n.Name()),
		testcontainers.WithLabels(labels),
		testcontainers.WithEntrypoint("/bin/sh", "-c", startScript, n.program.name),
		testcontainers.WithCmd(c.Args...),
		testcontainers.WithConfigModifier(func(c *dockercontainer.Config) {
			c.Hostname = n.Name()
			c.User = strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid())
			c.WorkingDir = workdir
		}),
		testcontainers.WithHostConfigModifier(func(c *dockercontainer.HostConfig) {
			c.Binds = []string{n.Dir + ":" + workdir + ":Z"} // Z lets it in where SELinux would not
			c.PortBindings = i.onLoopback()
		}),
		network.WithNetwork(nil, b.DockerNetwork),
		testcontainers.WithEndpointSettingsModifier(func(settings map[string]*dockernetwork.EndpointSettings) {
			for _, s := range settings {
				s.IPAMConfig = &dockernetwork.EndpointIPAMConfig{IPv4Address: n.At.Listen.Addr()}
			}
		}),
	)
	if made != nil {
		n.ID = made.GetContainerID()
	}
	if err != nil {
		return fmt.Errorf("make a container for %s: %w", n.Name(), err)
	}
	return nil
}

// remove removes the container, also one that runs or is paused.
func (n *node) remove(ctx context.Context) error {
	if n.ID == "" {
		return nil
	}
	if err := removeContainer(ctx, n.Engine, n.ID); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove the container of %s: %w", n.Name(), err)
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
