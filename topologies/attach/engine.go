package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/pkg/stdcopy"
	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/internal/await"
)

// The labels by which Compose marks its containers.
const (
	projectLabel = "com.docker.compose.project"
	serviceLabel = "com.docker.compose.service"
)

// An engine is a Docker engine, as attach uses it.
type engine struct{ docker *client.Client }

// newEngine is the engine that DOCKER_HOST names, or the local one; with TLS, if the certificates are in
// DOCKER_CERT_PATH. The client keeps no connection open, so that there is nothing to close.
func newEngine() (*engine, error) {
	host := cmp.Or(os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost)
	if scheme, _, _ := strings.Cut(host, "://"); scheme != "unix" && scheme != "tcp" {
		return nil, fmt.Errorf("DOCKER_HOST is %q: only unix:// and tcp:// can be used", host)
	}
	// With HTTP/2 a copy of the transport has a TLS configuration, which the client
	// takes for a wish to use TLS.
	transport := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	docker, err := client.New(client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}),
		client.WithTLSClientConfigFromEnv(), client.WithHost(host), client.WithAPIVersionFromEnv())
	if err != nil {
		return nil, fmt.Errorf("DOCKER_HOST is %q: %w", host, err)
	}
	return &engine{docker}, nil
}

// A container is one server of a compose project, or its toxiproxy.
type container struct{ dockercontainer.Summary }

// service is the name that the compose file gives it.
func (c container) service() string { return c.Labels[serviceLabel] }

// addresses are those in its networks, by their names; none of one that shares the
// network of another.
func (c container) addresses() []string {
	if c.NetworkSettings == nil {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.NetworkSettings.Networks)) {
		if n := c.NetworkSettings.Networks[name]; n != nil && n.IPAddress.IsValid() {
			all = append(all, n.IPAddress.String())
		}
	}
	return all
}

// answersTo reports whether a host name or address, as servers know it, is the
// container's.
func (c container) answersTo(host string) bool {
	return host != "" && (host == c.service() || strings.HasPrefix(c.ID, host) ||
		slices.Contains(c.Names, "/"+host) || slices.Contains(c.addresses(), host))
}

// ip is its address in one of its networks; empty if it has none of its own.
func (c container) ip() string { return append(c.addresses(), "")[0] }

// publishedPort is where the host reaches a port of the container.
func (c container) publishedPort(port string) (string, bool) {
	for _, p := range c.Ports {
		if p.Type == "tcp" && p.PublicPort != 0 && strconv.Itoa(int(p.PrivatePort)) == port {
			return outside(p), true
		}
	}
	return "", false
}

// publishes reports whether an address of the host leads to the container.
func (c container) publishes(host, port string) bool {
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return slices.ContainsFunc(c.Ports, func(p dockercontainer.PortSummary) bool {
		return p.Type == "tcp" && outside(p) == net.JoinHostPort(host, port)
	})
}

// outside is where a port is on the host.
func outside(p dockercontainer.PortSummary) string {
	host := p.IP
	if !host.IsValid() || host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(host, p.PublicPort).String()
}

// project lists the containers of a compose project, stopped ones too.
func (e *engine) project(ctx context.Context, name string) ([]container, error) {
	list, err := e.docker.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", projectLabel+"="+name),
	})
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	var found []container
	for _, c := range list.Items {
		found = append(found, container{c})
	}
	slices.SortFunc(found, func(a, b container) int { return strings.Compare(a.service(), b.service()) })
	return found, nil
}

// state is what a container does: running, paused, exited.
func (e *engine) state(ctx context.Context, id string) (string, error) {
	c, err := e.docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	switch {
	case err != nil:
		return "", fmt.Errorf("docker: %w", err)
	case c.Container.State == nil:
		return "", fmt.Errorf("docker: it tells no state of container %s", id)
	default:
		return string(c.Container.State.Status), nil
	}
}

// act kills, starts, pauses or unpauses a container.
func (e *engine) act(ctx context.Context, id, what string) error {
	var err error
	switch what {
	case "kill":
		_, err = e.docker.ContainerKill(ctx, id, client.ContainerKillOptions{})
	case "start":
		_, err = e.docker.ContainerStart(ctx, id, client.ContainerStartOptions{})
	case "pause":
		err = await.Frozen(ctx, func(ctx context.Context) error {
			_, err := e.docker.ContainerPause(ctx, id, client.ContainerPauseOptions{})
			return err
		})
	case "unpause":
		_, err = e.docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	default:
		err = fmt.Errorf("a container can't be told to %s", what)
	}
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

// logs copies what a container without a terminal wrote so far.
func (e *engine) logs(ctx context.Context, id string, to io.Writer) error {
	written, err := e.docker.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err == nil {
		_, err = stdcopy.StdCopy(to, to, written)
		err = errors.Join(err, written.Close())
	}
	if err != nil {
		return fmt.Errorf("docker: logs of %s: %w", id, err)
	}
	return nil
}
