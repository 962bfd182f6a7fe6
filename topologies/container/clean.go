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

	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// The labels of every container and network that a deployment makes.
const (
	deploymentLabel = "org.lockchaos.deployment" // its name
	harnessLabel    = "org.lockchaos.harness"    // the boot of its host, and its process
	folderLabel     = "org.lockchaos.folder"     // its folder on this host
)

// thisBoot tells this boot of the host from all others.
func thisBoot() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tell this boot from others: %w", err)
	}
	return strings.TrimSpace(string(boot)), nil
}

// folderPrefix begins the names of the folders of deployments.
const folderPrefix = "lockchaos-container-"

// Clean removes what deployments have left whose harness is dead, because no process holds their
// folder or the host was booted since: containers, networks and folders. It returns what it removed,
// in words, also with an error. What belongs to a living harness is not touched, nor what belongs to
// one of which nothing can be known, because it runs in a container itself and its folder is not here.
// Clean fails with [topologies.ErrMissing] if no engine answers.
func Clean(ctx context.Context) (removed []string, err error) {
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	boot, err := thisBoot()
	if err != nil {
		return nil, err
	}
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
	left := func(labels map[string]string) (is bool) {
		of, _, _ := strings.Cut(labels[harnessLabel], "/")
		folder := labels[folderLabel]
		if of == "" || !strings.HasPrefix(filepath.Base(folder), folderPrefix) {
			return false
		}
		scratch.Unheld(folder, func() { is = true })
		if is = is || of != boot; is && !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
		return is
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

// reaperScript removes what a killed harness left: the containers and networks
// with its label, and its folder. It waits for the end of its input, which
// comes when the harness dies in whatever way; one that has tidied up itself
// says so before. The engine may still carry out what it was asked for by a
// harness that is dead by now, so the reaper stays until nothing has turned up
// for three seconds. Without the docker command it can do nothing, and only [Clean] is left.
const reaperScript = `
trap '' INT TERM HUP QUIT
docker=$1 host=$2 label=$3 dir=$4
while read -r word; do [ "$word" = tidy ] && exit 0; done
[ -n "$docker" ] || exit 0
quiet=0 tries=0
while [ "$quiet" -lt 10 ] && [ "$tries" -lt 200 ]; do
	tries=$((tries + 1))
	if containers=$("$docker" -H "$host" ps -aq --filter "label=$label") &&
		networks=$("$docker" -H "$host" network ls -q --filter "label=$label") &&
		[ -z "$containers$networks" ]
	then
		quiet=$((quiet + 1))
		sleep 0.3
		continue
	fi
	quiet=0
	[ -z "$containers" ] || "$docker" -H "$host" rm -fv $containers
	[ -z "$networks" ] || "$docker" -H "$host" network rm $networks
	sleep 0.1
done
rm -rf -- "$dir"
`

// tidy is what it is told.
const tidy = "tidy"
