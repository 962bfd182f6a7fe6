package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The labels by which Compose marks its containers.
const (
	projectLabel = "com.docker.compose.project"
	serviceLabel = "com.docker.compose.service"
)

// An engine speaks the HTTP API of a Docker engine. It asks for no version of
// it: what is used here is the same in all of them.
type engine struct {
	base string
	http *http.Client
}

// newEngine is the engine that DOCKER_HOST names, or the local one.
func newEngine() (*engine, error) {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	scheme, rest, _ := strings.Cut(host, "://")
	switch {
	case scheme == "unix":
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", rest)
		}
		return &engine{base: "http://docker", http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}, nil
	case scheme == "tcp" && os.Getenv("DOCKER_TLS_VERIFY") == "":
		return &engine{base: "http://" + rest, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}, nil
	default:
		return nil, fmt.Errorf("DOCKER_HOST is %q: only unix:// and tcp:// without TLS can be used", host)
	}
}

// A container is one server of a compose project, or its toxiproxy.
type container struct {
	ID     string            `json:"Id"`
	Names  []string          `json:"Names"`
	State  string            `json:"State"` // running, paused, exited
	Labels map[string]string `json:"Labels"`
	Ports  []publishedPort   `json:"Ports"`
	// NetworkSettings are empty for one that shares the network of another.
	NetworkSettings struct {
		Networks map[string]struct {
			IPAddress string `json:"IPAddress"`
		} `json:"Networks"`
	} `json:"NetworkSettings"`
}

type publishedPort struct {
	IP          string `json:"IP"`
	PrivatePort int    `json:"PrivatePort"`
	PublicPort  int    `json:"PublicPort"` // 0: not published
	Type        string `json:"Type"`
}

// service is the name that the compose file gives it.
func (c container) service() string { return c.Labels[serviceLabel] }

// answersTo reports whether a host name or address, as servers know it, is the
// container's.
func (c container) answersTo(host string) bool {
	if host == "" {
		return false
	}
	if host == c.service() || strings.HasPrefix(c.ID, host) || slices.Contains(c.Names, "/"+host) {
		return true
	}
	for _, n := range c.NetworkSettings.Networks {
		if n.IPAddress == host {
			return true
		}
	}
	return false
}

// ip is its address in one of its networks; empty if it has none of its own.
func (c container) ip() string {
	for _, name := range slices.Sorted(maps.Keys(c.NetworkSettings.Networks)) {
		if ip := c.NetworkSettings.Networks[name].IPAddress; ip != "" {
			return ip
		}
	}
	return ""
}

// publishedPort is where the host reaches a port of the container.
func (c container) publishedPort(port string) (string, bool) {
	for _, p := range c.Ports {
		if p.Type == "tcp" && p.PublicPort != 0 && strconv.Itoa(p.PrivatePort) == port {
			return p.outside(), true
		}
	}
	return "", false
}

// publishes reports whether an address of the host leads to the container.
func (c container) publishes(host, port string) bool {
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return slices.ContainsFunc(c.Ports, func(p publishedPort) bool {
		return p.Type == "tcp" && p.outside() == net.JoinHostPort(host, port)
	})
}

// outside is where the port is on the host.
func (p publishedPort) outside() string {
	host := p.IP
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(p.PublicPort))
}

// project lists the containers of a compose project, stopped ones too.
func (e *engine) project(ctx context.Context, name string) ([]container, error) {
	filters, err := json.Marshal(map[string][]string{"label": {projectLabel + "=" + name}})
	if err != nil {
		return nil, fmt.Errorf("encode filters: %w", err)
	}
	var found []container
	query := url.Values{"all": {"1"}, "filters": {string(filters)}}
	if err := e.call(ctx, http.MethodGet, &found, query, "containers", "json"); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b container) int { return strings.Compare(a.service(), b.service()) })
	return found, nil
}

// state is what a container does: running, paused, exited.
func (e *engine) state(ctx context.Context, id string) (string, error) {
	var c struct{ State struct{ Status string } }
	err := e.call(ctx, http.MethodGet, &c, nil, "containers", id, "json")
	return c.State.Status, err
}

// act kills, starts, pauses or unpauses a container.
func (e *engine) act(ctx context.Context, id, what string) error {
	return e.call(ctx, http.MethodPost, nil, nil, "containers", id, what)
}

func (e *engine) call(ctx context.Context, method string, out any, query url.Values, path ...string) error {
	request, err := e.request(ctx, method, query, path...)
	if err != nil {
		return err
	}
	if err := exchange(e.http, request, out); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

func (e *engine) request(ctx context.Context, method string, query url.Values, path ...string) (*http.Request, error) {
	address, err := url.JoinPath(e.base, path...)
	if err != nil {
		return nil, fmt.Errorf("address of docker: %w", err)
	}
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("ask docker: %w", err)
	}
	return request, nil
}

// logs copies what a container wrote so far. Without a terminal, the engine
// puts eight bytes before each piece, of which the last four are its length.
func (e *engine) logs(ctx context.Context, id string, to io.Writer) error {
	request, err := e.request(ctx, http.MethodGet, url.Values{"stdout": {"1"}, "stderr": {"1"}}, "containers", id, "logs")
	if err != nil {
		return err
	}
	response, err := e.http.Do(request)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("docker: logs of %s: %s", id, response.Status)
	}
	var head [8]byte
	for {
		if _, err := io.ReadFull(response.Body, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("docker: logs of %s: %w", id, err)
		}
		size := int64(head[4])<<24 | int64(head[5])<<16 | int64(head[6])<<8 | int64(head[7])
		if _, err := io.CopyN(to, response.Body, size); err != nil {
			return fmt.Errorf("docker: logs of %s: %w", id, err)
		}
	}
}
