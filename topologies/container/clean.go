package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// The labels of every container and network that a deployment makes.
const (
	deploymentLabel = "org.lockchaos.deployment" // its name
	harnessLabel    = "org.lockchaos.harness"    // its owner
	folderLabel     = "org.lockchaos.folder"     // its folder on this host
)

// folderPrefix begins the names of the folders of deployments.
const folderPrefix = "lockchaos-container-"

// Clean removes what deployments have left whose harness is dead: containers,
// networks and folders. It returns what it removed, in words, also with an
// error. What belongs to a living harness is not touched, nor what belongs to
// one of which nothing can be known, because it runs in a container itself.
// Clean fails with [topologies.ErrMissing] if no engine answers.
func Clean(ctx context.Context) (removed []string, err error) {
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ours := client.Filters{}.Add("label", deploymentLabel)
	containers, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	networks, err := c.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	var errs []error
	note := func(what string, err error) {
		switch {
		case err == nil:
			removed = append(removed, what)
		case !errdefs.IsNotFound(err): // a reaper was quicker
			errs = append(errs, fmt.Errorf("remove %s: %w", what, err))
		}
	}
	var folders []string
	left := func(labels map[string]string) bool {
		o, ok := parseOwner(labels[harnessLabel])
		if !ok {
			return false
		}
		dead, err := o.dead()
		errs = append(errs, err)
		if folder := labels[folderLabel]; dead && strings.HasPrefix(filepath.Base(folder), folderPrefix) && !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
		return dead
	}
	for _, found := range containers.Items {
		if left(found.Labels) {
			note("container "+strings.TrimPrefix(strings.Join(found.Names, " "), "/"), removeContainer(ctx, c, found.ID))
		}
	}
	for _, found := range networks.Items {
		if left(found.Labels) {
			note("network "+found.Name, letGo(ctx, c, found.ID, func(ctx context.Context) error {
				_, err := c.NetworkRemove(ctx, found.ID, client.NetworkRemoveOptions{})
				return err
			}))
		}
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); err == nil {
			note("folder "+folder, os.RemoveAll(folder))
		}
	}
	return removed, errors.Join(errs...)
}
