package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/lockchaos/lockchaos/topologies"
)

// Image returns the image that a [Backend] without one would use, and the
// version of the Redis in it, empty if it does not say. It pulls nothing: an
// image that is not on this machine is [topologies.ErrMissing].
func Image(ctx context.Context) (name, version string, err error) {
	c, err := connect(ctx)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	for _, name = range []string{LocalImage, OfficialImage} {
		found, err := c.ImageInspect(ctx, name)
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return "", "", err
		case found.Config != nil:
			return name, versionIn(topologies.StoreRedis, found.Config.Labels, found.Config.Env), nil
		default:
			return name, "", nil
		}
	}
	return "", "", fmt.Errorf("%w: neither %s (`make image`) nor %s (`docker pull %s`) is here",
		topologies.ErrMissing, LocalImage, OfficialImage, OfficialImage)
}
