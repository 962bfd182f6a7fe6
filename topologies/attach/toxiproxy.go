package attach

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2/client"
)

// apiTimeout bounds one request to a toxiproxy. Some hang for ever: removing a
// toxic from a connection on which a server pushes data to a client that is
// gone does (Shopify/toxiproxy #427).
const apiTimeout = 5 * time.Second

// A toxiproxyAPI is the HTTP API of a toxiproxy server.
type toxiproxyAPI struct {
	*toxiproxy.Client

	base string // "http://127.0.0.1:8474"
}

func newToxiproxy(address string) *toxiproxyAPI {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base := strings.TrimSuffix(address, "/")
	return &toxiproxyAPI{toxiproxy.NewClient(base), base}
}

// host is where the proxies are reached that listen on every address.
func (t *toxiproxyAPI) host() string {
	u, err := url.Parse(t.base)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// inTime does not wait for a request longer than it may take.
func inTime[T any](ask func() (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		got, err := ask()
		done <- answer{got, err}
	}()
	select {
	case a := <-done:
		return a.got, a.err
	case <-time.After(apiTimeout):
		return *new(T), fmt.Errorf("no answer within %v", apiTimeout)
	}
}

// told has something done, which that there is nothing to do is no error of.
func told(done int, ask func() error) error {
	_, err := inTime(func() (struct{}, error) { return struct{}{}, ask() })
	if refused := (*toxiproxy.ApiError)(nil); errors.As(err, &refused) && refused.Status == done {
		return nil
	}
	return err
}

// proxies are all that there are, by their names.
func (t *toxiproxyAPI) proxies() (map[string]*toxiproxy.Proxy, error) { return inTime(t.Proxies) }

// enable makes a proxy listen, or close its listener and all connections.
func enable(p toxiproxy.Proxy, on bool) error {
	p.Enabled = on
	return told(0, p.Save)
}

// markerPrefix begins the name of a marker: a proxy that never listens, and says
// that we have shut the one with the rest of the name. It is no toxic on that
// one, because removing a toxic from a proxy with connections may hang.
const markerPrefix = "lockchaos-shut:"

// marker is that of a proxy.
func (t *toxiproxyAPI) marker(of *toxiproxy.Proxy) *toxiproxy.Proxy {
	p := t.NewProxy()
	p.Name, p.Listen, p.Upstream = markerPrefix+of.Name, "127.0.0.1:0", of.Upstream
	return p
}

// mark notes that we are about to shut a proxy. That it is noted already is no
// error.
func (t *toxiproxyAPI) mark(p *toxiproxy.Proxy) error {
	return told(http.StatusConflict, t.marker(p).Save)
}

// unmark removes the note. That there is none is no error.
func (t *toxiproxyAPI) unmark(p *toxiproxy.Proxy) error {
	return told(http.StatusNotFound, t.marker(p).Delete)
}
