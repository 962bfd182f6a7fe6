package attach

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

const (
	// meetTimeout bounds how long a server may take to say what it is.
	meetTimeout = 3 * time.Second
	// lookTimeout bounds how long a look at it may take later on, when it may be
	// paused. Attached servers may be further away than those that the program started.
	lookTimeout = 500 * time.Millisecond
)

// An access is how servers of one kind let us in.
type access struct {
	username, password string
	tls                *tls.Config
	to                 string // what a server must be: "etcd member"; empty: "Redis server"
}

// dial opens a connection to at, of a server that is called announced, with TLS where that is wanted. opened is
// called once it is there, and closed when it is closed; nil: neither is.
func (a access) dial(ctx context.Context, at, announced string, opened func() (closed func())) (net.Conn, error) {
	var d net.Dialer
	dialled, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: dialled.(*net.TCPConn), announced: address(announced)}
	if opened != nil {
		c.closed = opened()
	}
	if a.tls == nil {
		return c, nil
	}
	config := a.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(announced)
	}
	secured := tls.Client(c, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return secured, nil
}

// observer is a client that looks at one server, past every proxy.
func (a access) observer(at, announced string, limit time.Duration) *redis.Client {
	o := bootstrap.ObserverOptions(announced)
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return a.dial(ctx, at, announced, nil) }
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = limit, limit, limit
	o.Username, o.Password = a.username, a.password
	return redis.NewClient(o)
}

// refused says in one sentence why a server can't be talked to.
func (a access) refused(server string, err error) error {
	var (
		record tls.RecordHeaderError
		verify *tls.CertificateVerificationError
		netErr net.Error
	)
	said := err.Error()
	switch {
	case strings.HasPrefix(said, "WRONGPASS"):
		return usage("%s refuses the user name or the password", server)
	case strings.HasPrefix(said, "NOAUTH"):
		return usage("%s wants a password", server)
	case strings.HasPrefix(said, "ERR AUTH") || strings.HasPrefix(said, "ERR Client sent AUTH"):
		return usage("%s has no password, and one was given", server)
	case strings.HasPrefix(said, "NOPERM"):
		return usage("%s does not permit what is needed: %s", server, said)
	case strings.HasPrefix(said, "OOM"), strings.HasPrefix(said, "MISCONF"), strings.HasPrefix(said, "NOREPLICAS"):
		return usage("%s takes no writes: %s", server, said)
	case errors.As(err, &record):
		return usage("%s does not speak TLS", server)
	case errors.As(err, &verify):
		return usage("%s has a certificate that isn't trusted: %w", server, err)
	case a.tls != nil && (errors.Is(err, io.EOF) || strings.Contains(said, "tls: ")):
		return usage("%s does not agree on TLS: %w", server, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return usage("nothing listens at %s", server)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(said, "server closed idle connection"): // net/http, if that came before the request; it exports no such error
		return usage("%s closed the connection: it is no %s, or wants TLS", server, cmp.Or(a.to, "Redis server"))
	case a.tls != nil && errors.As(err, &netErr) && netErr.Timeout(): // Redis waits for the rest of a line
		return usage("%s does not answer within %v: it may not speak TLS", server, meetTimeout)
	case errors.As(err, &netErr) && netErr.Timeout():
		return usage("%s does not answer within %v", server, meetTimeout)
	default:
		return usage("%s can't be asked: %w", server, err)
	}
}

// serverInfo says what a server is in its own words.
type serverInfo struct {
	mode    string // of redis_mode: standalone, sentinel, cluster
	role    string // [topologies.Master] or Replica; empty for a sentinel
	master  string // of a replica: the address that it follows
	version string
	id      string // of this run of the server
}

// look asks a server what it is.
func look(ctx context.Context, c *redis.Client) (serverInfo, error) {
	said, err := c.Info(ctx, "server").Result()
	if err != nil {
		return serverInfo{}, err
	}
	info := bootstrap.Info(said)
	r := serverInfo{mode: info["redis_mode"], version: info["redis_version"], id: info["run_id"]}
	if r.mode == "" {
		return serverInfo{}, errors.New("its INFO has no redis_mode")
	}
	if r.mode == "sentinel" {
		return r, nil
	}
	r.role, r.master, err = topologies.RoleOf(ctx, c)
	return r, err
}
