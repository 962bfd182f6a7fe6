package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/client"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// toxicPrefix begins the names of our toxics. What a run that was killed left
// behind is known by it.
const toxicPrefix = "lockchaos-"

// A link is a link that passes a proxy of a toxiproxy. Its faults add up, as far
// as that can do so.
type link struct {
	linkProxy
	probe.Prober
	announced string // of the server behind it
	toxiproxy *toxiproxyAPI
	access    access
	// peers counts the connections of other servers; nil for a zone's wire.
	peers func(ctx context.Context) int
	log   *slog.Logger

	mu    sync.Mutex
	cuts  int
	made  int             // toxics, so that each has a name of its own
	put   map[string]bool // the toxics that lie on it
	shut  bool            // by us
	conns int             // of clients, that are open
}

// Name is the link's name.
func (w *link) Name() string { return w.Link.Name() }

// Cut has toxiproxy close the listener and every connection: they end, they are
// not reset. A failure is logged, and probes of the link show it.
func (w *link) Cut() (mend func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts++
	w.noted("cut", w.follow())
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cuts--
		w.noted("mend", w.follow())
	})
}

// follow has the proxy disabled or enabled, as the cuts want it.
func (w *link) follow() error {
	want := w.cuts > 0
	if want == w.shut {
		return nil
	}
	w.shut = true // it may be, even if the answer gets lost
	p := *w.Proxy
	p.Enabled = !want // else its listener and all connections are closed
	err := told(0, p.Save)
	if err == nil {
		w.shut = want
	}
	return err
}

// Reset closes every connection once, by shutting the proxy for a moment, and
// reports how many there were. A wire that is cut has none.
func (w *link) Reset() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts > 0 {
		return 0
	}
	open := w.conns
	if w.peers != nil {
		ctx, cancel := context.WithTimeout(context.Background(), meetTimeout)
		defer cancel()
		open = w.peers(ctx)
	}
	w.cuts++
	err := w.follow()
	w.cuts--
	if err = errors.Join(err, w.follow()); err != nil {
		w.noted("reset", err)
		return 0
	}
	return open
}

// Put lays a toxic on a stream. Where the server has no hold, as a stock toxiproxy, a bandwidth of nothing stands for it: that
// keeps what comes as well, and passes on the end of a stream that carries nothing.
func (w *link) Put(s topologies.Stream, t topologies.Toxic) (mend func(), err error) {
	streams, err := topologies.StreamsOf(s)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var put []string
	for _, stream := range streams {
		w.made++
		name := fmt.Sprintf("%s%d", toxicPrefix, w.made)
		// It may lie on the wire even if the answer got lost.
		w.put[name] = true
		put = append(put, name)
		if err := w.add(name, stream, t); err != nil {
			return nil, errors.Join(fmt.Errorf("put %s on %s: %w", t.Type, w.Name(), err), w.lift(put))
		}
	}
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.noted("mend", w.lift(put))
	}), nil
}

func (w *link) add(name, stream string, t topologies.Toxic) error {
	attributes := toxiproxy.Attributes{}
	for key, value := range t.Attributes {
		attributes[key] = value
	}
	_, err := inTime(func() (*toxiproxy.Toxic, error) { return w.AddToxic(name, t.Type, stream, 1, attributes) })
	if refused := (*toxiproxy.ApiError)(nil); t.Type == topologies.TypeHold && errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		return w.add(name, stream, topologies.Rate(0))
	}
	return err
}

// Toxics are those that lie on the link, of other users of the toxiproxy as well.
func (w *link) Toxics(context.Context) (types []string, enabled bool, err error) {
	p, err := inTime(func() (*toxiproxy.Proxy, error) { return w.toxiproxy.Proxy(w.Proxy.Name) })
	if err != nil {
		return nil, false, err
	}
	for _, t := range p.ActiveToxics {
		types = append(types, t.Type)
	}
	return types, p.Enabled, nil
}

// lift removes toxics. One that can't be removed stays noted, to be tried again
// at the end.
func (w *link) lift(names []string) error {
	var errs []error
	for _, name := range names {
		if !w.put[name] {
			continue
		}
		if err := told(http.StatusNotFound, func() error { return w.RemoveToxic(name) }); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(w.put, name)
	}
	return errors.Join(errs...)
}

// noted logs what could not be done; there is no caller to return it to.
func (w *link) noted(what string, err error) {
	if err != nil {
		w.log.Warn("toxiproxy did not do as told", "what", what, "link", w.Name(), "error", err)
	}
}

// leftover notes what a run that was killed left on the proxy, for restore to
// end it.
func (w *link) leftover() (found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.ActiveToxics {
		if strings.HasPrefix(t.Name, toxicPrefix) {
			w.put[t.Name] = true
			found = true
		}
	}
	w.shut = !w.Enabled
	return found || w.shut
}

// restore ends every fault.
func (w *link) restore() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts = 0
	names := slices.Sorted(maps.Keys(w.put))
	if err := errors.Join(w.lift(names), w.follow()); err != nil {
		return fmt.Errorf("restore %s: %w", w.Name(), err)
	}
	return nil
}

// ProbeBandwidth has the server echo so many bytes, which it does for users whom it knows.
func (w *link) ProbeBandwidth(ctx context.Context, size int) (time.Duration, error) {
	rdb := w.access.observer(w.at, w.announced, meetTimeout)
	defer rdb.Close()
	start := time.Now()
	if err := rdb.Echo(ctx, strings.Repeat("x", size)).Err(); err != nil {
		return 0, fmt.Errorf("probe %s: %w", w.Name(), err)
	}
	return time.Since(start), nil
}

// dial opens a connection of a client and counts it until it is closed.
func (w *link) dial(ctx context.Context) (net.Conn, error) {
	count := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns += n
	}
	return w.access.dial(ctx, w.at, w.announced, func() (closed func()) {
		count(1)
		return sync.OnceFunc(func() { count(-1) })
	})
}

// A conn is a connection to a server at the address that it announces, wherever
// it was dialled: go-redis looks at that to tell which connections lead to a
// master that was replaced. It is a TCP connection in all else, so that go-redis
// sees when it was closed.
type conn struct {
	*net.TCPConn
	announced address
	closed    func() // nil: closed links are not counted
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// RemoteAddr is the address that the server announces.
func (c *conn) RemoteAddr() net.Addr { return c.announced }

// Close closes the connection.
func (c *conn) Close() error {
	if c.closed != nil {
		c.closed()
	}
	return c.TCPConn.Close()
}
