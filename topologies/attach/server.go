package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/docker"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// A server is one that the program did not start. What runs it is a container, or unknown.
type server struct {
	*foundServer
	container *docker.Container // nil if there is none
	why       string            // nothing can be done to its process; empty if it can
	direct    string            // where it is dialled past every proxy
	logs      *scratch.Folder
	claim     *claim

	mu      sync.Mutex
	touched bool // we had it killed or paused, even if the answer got lost
}

func (s *server) Name() string            { return s.name }
func (s *server) Observer() *redis.Client { return s.client }

// restoreTimeout bounds how long one thing may take that is put back.
const restoreTimeout = 10 * time.Second

// do does something to the container, unless nothing may be done. It is seen through even if it is called off: the engine
// would carry it out anyway, perhaps after everything was restored.
func (s *server) do(ctx context.Context, what string, act func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != "" {
		return fmt.Errorf("%s %s: %s", what, s.name, s.why)
	}
	ctx, cancel, err := await.Through(ctx)
	if err == nil {
		defer cancel()
		s.touched = true
		err = act(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, s.name, err)
	}
	return nil
}

// Kill sends SIGKILL to the container and waits until it has exited. To kill one
// that has is no error.
func (s *server) Kill(ctx context.Context) error {
	return s.do(ctx, "kill", func(ctx context.Context) error {
		if err := s.container.Kill(ctx); err != nil {
			return err
		}
		return s.container.Ended(ctx)
	})
}

// Pause freezes the container.
func (s *server) Pause(ctx context.Context) error { return s.do(ctx, "pause", s.container.Pause) }

// Resume thaws it.
func (s *server) Resume(ctx context.Context) error { return s.do(ctx, "resume", s.container.Resume) }

// Restart starts the container again and waits until the server answers.
func (s *server) Restart(ctx context.Context) error { return s.do(ctx, "start", s.start) }

func (s *server) start(ctx context.Context) error {
	running, err := s.container.Running(ctx)
	if err == nil && running {
		err = errors.New("it still runs")
	}
	if err == nil {
		err = s.container.Start(ctx)
	}
	if err != nil {
		return err
	}
	// With a client of its own: one that failed to dial too often stops trying
	// for a while.
	c := s.access.observer(s.direct, s.announced, lookTimeout)
	defer c.Close()
	if err := await.Until(ctx, func() error { return c.Ping(ctx).Err() }); err != nil {
		return fmt.Errorf("%w\n%s", err, bootstrap.TailLog(s.Log()))
	}
	if s.kind == topologies.Redis { // it may have forgotten the claim
		s.claim.renew(ctx, c, s.claimKey())
	}
	return nil
}

// noWiping is why Wipe does nothing.
const noWiping = "the data of servers that run elsewhere is never removed"

// Wipe fails: the data is not the program's.
func (s *server) Wipe(context.Context) error {
	return fmt.Errorf("wipe %s: %s", s.name, noWiping)
}

// restore lets run again what was killed or paused.
func (s *server) restore() error {
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	s.mu.Lock()
	touched := s.touched
	s.mu.Unlock()
	if !touched {
		return nil
	}
	switch state, err := s.container.State(ctx); {
	case err != nil:
		return err
	case state == dockercontainer.StatePaused:
		return s.Resume(ctx)
	case state == dockercontainer.StateExited:
		return s.Restart(ctx)
	default:
		return nil // what was asked for did not happen, or is over
	}
}

// Log is a copy of what the container has written so far; empty if there is
// none.
func (s *server) Log() string {
	if s.container == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	file, err := os.Create(filepath.Join(s.logs.Path, s.name+".log"))
	if err != nil {
		return ""
	}
	defer file.Close()
	written, err := s.container.Engine.ContainerLogs(ctx, s.container.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return ""
	}
	defer written.Close()
	if _, err := stdcopy.StdCopy(file, file, written); err != nil { // it has no terminal
		return ""
	}
	return file.Name()
}

// callers counts the connections that other servers have to this one: replicas
// and sentinels, or, on a cluster's bus, all other nodes. Redis knows them apart
// from clients; that it does not say counts as none.
func (s *server) callers(bus bool) func(context.Context) int {
	if bus {
		return func(ctx context.Context) int {
			links, err := s.client.WithTimeout(meetTimeout).ClusterLinks(ctx).Result()
			if err != nil {
				return 0
			}
			return len(slices.DeleteFunc(links, func(l redis.ClusterLink) bool { return l.Direction != "from" }))
		}
	}
	return func(ctx context.Context) int {
		list, err := s.client.WithTimeout(meetTimeout).ClientList(ctx).Result()
		if err != nil {
			return 0
		}
		return len(regexp.MustCompile(`(?m)^.* (name=sentinel-|flags=\w*S).*$`).FindAllString(list, -1))
	}
}

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
