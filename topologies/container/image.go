package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	dockernetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/topologies"
)

// The images that are used when none is asked for.
const (
	// LocalImage is what `make image` builds from the machine's own Redis. It
	// is used where it is there.
	LocalImage = "lockchaos/testnode:local"
	// OfficialImage is used where it is not.
	OfficialImage = "redis:7.4"
)

// pullTimeout bounds how long an image may take to arrive.
const pullTimeout = 5 * time.Minute

// An image is what nodes are made of.
type image struct {
	name    string
	asked   bool     // by its name
	version string   // of the server in it; empty if it does not say
	ports   []string // that testcontainers publishes unasked
}

// findImage returns the image that is asked for; for an empty name, the local
// one where it is there, else the official one. What is not on this machine is
// pulled.
func findImage(ctx context.Context, c *client.Client, name, store string, log *slog.Logger) (image, error) {
	i := image{name: cmp.Or(name, LocalImage), asked: name != ""}
	found, err := c.ImageInspect(ctx, i.name)
	if errdefs.IsNotFound(err) && !i.asked {
		i.name = OfficialImage
		found, err = c.ImageInspect(ctx, i.name)
	}
	if errdefs.IsNotFound(err) {
		log.InfoContext(ctx, "pulling", "image", i.name)
		if err := pull(ctx, c, i.name); err != nil && ctx.Err() == nil {
			return image{}, fmt.Errorf("%w: the image %s is not here and can't be pulled (`make image` builds %s, which needs no registry): %w",
				i.unusable(), i.name, LocalImage, err)
		}
		found, err = c.ImageInspect(ctx, i.name)
	}
	switch {
	case ctx.Err() != nil:
		return image{}, context.Cause(ctx)
	case err != nil:
		return image{}, fmt.Errorf("%w: no image %s: %w", i.unusable(), i.name, err)
	}
	if found.Config != nil {
		i.version = versionIn(store, found.Config.Labels, found.Config.Env)
		i.ports = slices.Collect(maps.Keys(found.Config.ExposedPorts))
	}
	return i, nil
}

// unusable is what it is that the image is no good: a mistake of the caller that asked
// for it, else something that the machine lacks.
func (i image) unusable() error {
	if i.asked {
		return topologies.ErrUnusable
	}
	return topologies.ErrMissing
}

func pull(ctx context.Context, c *client.Client, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("it did not arrive within %v", pullTimeout))
	defer cancel()
	progress, err := c.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	return errors.Join(progress.Wait(ctx), progress.Close())
}

// versionIn reads the version of a store's server that an image tells of itself: ours in a
// label, the official ones of Redis in their environment.
func versionIn(store string, labels map[string]string, env []string) string {
	if v := labels["org.lockchaos."+store]; v != "" {
		return v
	}
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, strings.ToUpper(store)+"_VERSION="); ok {
			return v
		}
	}
	return ""
}

// onLoopback keeps testcontainers, which publishes whatever ports an image
// declares, from doing so on every address of the host.
func (i image) onLoopback() dockernetwork.PortMap {
	bindings := dockernetwork.PortMap{}
	for _, p := range i.ports {
		if port, err := dockernetwork.ParsePort(p); err == nil {
			bindings[port] = []dockernetwork.PortBinding{{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
		}
	}
	return bindings
}
