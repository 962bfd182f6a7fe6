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

	"github.com/lockchaos/lockchaos/topologies/internal/docker"
)

// The labels by which Compose marks its containers.
const (
	projectLabel = "com.docker.compose.project"
	serviceLabel = "com.docker.compose.service"
)

// newEngine is the engine that DOCKER_HOST names, or the local one; with TLS, if the certificates are in
// DOCKER_CERT_PATH. The client keeps no connection open, so that there is nothing to close.
func newEngine() (*client.Client, error) {
	host := cmp.Or(os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost)
	if scheme, _, _ := strings.Cut(host, "://"); scheme != "unix" && scheme != "tcp" {
		return nil, fmt.Errorf("DOCKER_HOST is %q: only unix:// and tcp:// can be used", host)
	}
	// With HTTP/2 a copy of the transport has a TLS configuration, which the client
	// takes for a wish to use TLS.
	transport := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	engine, err := client.New(client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}),
		client.WithTLSClientConfigFromEnv(), client.WithHost(host), client.WithAPIVersionFromEnv())
	if err != nil {
		return nil, fmt.Errorf("DOCKER_HOST is %q: %w", host, err)
	}
	return engine, nil
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

// containersOf lists the containers of a compose project, stopped ones too.
func containersOf(ctx context.Context, engine *client.Client, project string) ([]container, error) {
	list, err := engine.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", projectLabel+"="+project),
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

// writeLogs copies what a container without a terminal wrote so far.
func writeLogs(ctx context.Context, c *docker.Container, to io.Writer) error {
	written, err := c.Engine.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err == nil {
		_, err = stdcopy.StdCopy(to, to, written)
		err = errors.Join(err, written.Close())
	}
	return err
}
