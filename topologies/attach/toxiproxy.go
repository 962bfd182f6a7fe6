package attach

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// apiTimeout bounds one request to a toxiproxy. Some hang for ever: removing a
// toxic from a connection on which a server pushes data to a client that is
// gone does (Shopify/toxiproxy #427).
const apiTimeout = 5 * time.Second

// A toxiproxy speaks the HTTP API of a toxiproxy server. The client that comes
// with toxiproxy takes no context, and waits half a minute.
type toxiproxy struct {
	base string // "http://127.0.0.1:8474"
	http *http.Client
}

func newToxiproxy(address string) *toxiproxy {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return &toxiproxy{
		base: strings.TrimSuffix(address, "/"),
		http: &http.Client{Timeout: apiTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// host is where the proxies are reached that listen on every address.
func (t *toxiproxy) host() string {
	u, err := url.Parse(t.base)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// A proxy is one listener of a toxiproxy.
type proxy struct {
	Name     string  `json:"name"`
	Listen   string  `json:"listen"`
	Upstream string  `json:"upstream"`
	Enabled  bool    `json:"enabled"`
	Toxics   []toxic `json:"toxics"`
}

// A toxic is something that a proxy does to the data of one stream.
type toxic struct {
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Toxicity   float32        `json:"toxicity"`
	Attributes map[string]any `json:"attributes"`
}

// proxies are all that there are, by their names.
func (t *toxiproxy) proxies(ctx context.Context) (map[string]proxy, error) {
	var all map[string]proxy
	err := t.call(ctx, http.MethodGet, nil, &all, "proxies")
	return all, err
}

// enable makes a proxy listen, or close its listener and all connections.
func (t *toxiproxy) enable(ctx context.Context, name string, on bool) error {
	return t.call(ctx, http.MethodPost, map[string]bool{"enabled": on}, nil, "proxies", name)
}

// markerPrefix begins the name of a marker: a proxy that never listens, and says
// that we have shut the one with the rest of the name. It is no toxic on that
// one, because removing a toxic from a proxy with connections may hang.
const markerPrefix = "lockchaos-shut:"

// mark notes that we are about to shut a proxy. That it is noted already is no
// error.
func (t *toxiproxy) mark(ctx context.Context, p proxy) error {
	err := t.call(ctx, http.MethodPost, map[string]any{
		"name": markerPrefix + p.Name, "listen": "127.0.0.1:0", "upstream": p.Upstream, "enabled": false,
	}, nil, "proxies")
	if errors.Is(err, statusError(http.StatusConflict)) {
		return nil
	}
	return err
}

// unmark removes the note. That there is none is no error.
func (t *toxiproxy) unmark(ctx context.Context, name string) error {
	err := t.call(ctx, http.MethodDelete, nil, nil, "proxies", markerPrefix+name)
	if errors.Is(err, statusError(http.StatusNotFound)) {
		return nil
	}
	return err
}

func (t *toxiproxy) add(ctx context.Context, name string, what toxic) error {
	return t.call(ctx, http.MethodPost, what, nil, "proxies", name, "toxics")
}

func (t *toxiproxy) remove(ctx context.Context, name, what string) error {
	return t.call(ctx, http.MethodDelete, nil, nil, "proxies", name, "toxics", what)
}

func (t *toxiproxy) call(ctx context.Context, method string, in, out any, path ...string) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request to toxiproxy: %w", err)
		}
		body = bytes.NewReader(b)
	}
	address, err := url.JoinPath(t.base, escaped(path)...)
	if err != nil {
		return fmt.Errorf("address of toxiproxy: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return fmt.Errorf("ask toxiproxy: %w", err)
	}
	return exchange(t.http, request, out)
}

func escaped(path []string) []string {
	var parts []string
	for _, p := range path {
		parts = append(parts, url.PathEscape(p))
	}
	return parts
}

// A statusError is an answer other than 2xx.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("%d %s", int(e), http.StatusText(int(e))) }

// exchange sends a request and reads its answer as JSON into out, unless that
// is nil. An answer other than 2xx is an error with the server's words.
func exchange(client *http.Client, request *http.Request, out any) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, err)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %w: %s", request.Method, request.URL.Path, statusError(response.StatusCode), strings.TrimSpace(string(body)))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s %s: unexpected answer: %w", request.Method, request.URL.Path, err)
	}
	return nil
}
